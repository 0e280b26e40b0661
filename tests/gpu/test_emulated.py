"""Groups of which one member is real, with tensors on a GPU: values as on the host, and streams
that are held by the GPU itself.

Times are of the GPU's own events, and asserted from below alone.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import gear.emu as emu

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402, behind the skip
from torch.distributed.distributed_c10d import (  # noqa: E402
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)
from torch.utils import cpp_extension  # noqa: E402

from gear.emu import gpu  # noqa: E402
from gear.emu.group import make  # noqa: E402
from gear.emu.library import find  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        find() is None, reason="no library of gear_emu for this torch: tools/c10d.sh --emulator"
    ),
]

SIZE = 4
HELD_S = 0.02
AT_LEAST_S = HELD_S - 10e-6  # a hold is shorter by what its own launches take


def flat(operation: str, shape: emu.Shape, links: emu.Links) -> emu.Curve:
    """A model: everything takes as long."""
    return _flat(HELD_S)


def long(operation: str, shape: emu.Shape, links: emu.Links) -> emu.Curve:
    """So long that the host is back before, whatever else this machine does."""
    return _flat(1.0)


def _flat(seconds: float) -> emu.Curve:
    return emu.Curve.of(
        [(0, seconds), *((1 << power, seconds) for power in range(31))], "given", "a test's"
    )


@pytest.fixture(autouse=True, scope="module")
def _made_once() -> None:
    """What the first operation of a process takes is no hold."""
    for is_async in (True, False):
        own = torch.ones(4, device="cuda")
        group().allreduce([own], asked(AllreduceOptions(), asyncOp=is_async)).wait()
    torch.cuda.synchronize()


def group(timeout_s: float = 60.0, *, model: str = f"{__name__}:flat", **words: Any) -> Any:
    job = emu.Job(SIZE, real=(0,), model=model, **words)
    return make(job, range(SIZE), 0, dist.HashStore(), timedelta(seconds=timeout_s))


def asked(options: Any, **words: Any) -> Any:
    for name, value in words.items():
        setattr(options, name, value)
    return options


def elapsed_s(play: Callable[[], object]) -> float:
    """Of the current stream, until it has taken all that `play` has waited for."""
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    began.record()
    play()
    ended.record()
    torch.cuda.synchronize()
    return float(began.elapsed_time(ended)) / 1e3


def parts(device: str, count: int = SIZE) -> list[Any]:
    return [torch.arange(6, dtype=torch.float32, device=device) + 10 * i for i in range(count)]


def outputs(device: str, count: int = SIZE) -> list[Any]:
    return [torch.full((6,), float("nan"), device=device) for _ in range(count)]


# Each: with an emulated group, a device and whether it is asynchronous -> what it gives.
def _all_reduce(op: Any) -> Callable[..., list[Any]]:
    def play(group: Any, device: str, is_async: bool) -> list[Any]:
        (own,) = parts(device, 1)
        options = asked(AllreduceOptions(), reduceOp=op, asyncOp=is_async)
        group.allreduce([own], options).wait()
        return [own]

    return play


def _all_gather(group: Any, device: str, is_async: bool) -> list[Any]:
    found, (own,) = outputs(device), parts(device, 1)
    group.allgather([found], [own], asked(AllgatherOptions(), asyncOp=is_async)).wait()
    return found


def _all_gather_flat(group: Any, device: str, is_async: bool) -> list[Any]:
    found, (own,) = torch.empty(6 * SIZE, device=device), parts(device, 1)
    group._allgather_base(found, own, asked(AllgatherOptions(), asyncOp=is_async)).wait()
    return [found]


def _reduce_scatter(group: Any, device: str, is_async: bool) -> list[Any]:
    found = outputs(device, 1)
    options = asked(ReduceScatterOptions(), asyncOp=is_async)
    group.reduce_scatter(found, [parts(device)], options).wait()
    return found


def _reduce_scatter_flat(group: Any, device: str, is_async: bool) -> list[Any]:
    (found,) = outputs(device, 1)
    options = asked(ReduceScatterOptions(), asyncOp=is_async, reduceOp=ReduceOp.AVG)
    group._reduce_scatter_base(found, torch.cat(parts(device)), options).wait()
    return [found]


def _all_to_all(group: Any, device: str, is_async: bool) -> list[Any]:
    found = outputs(device)
    alike = [part.clone() for part in [parts(device)[0]] * SIZE]
    group.alltoall(found, alike, asked(AllToAllOptions(), asyncOp=is_async)).wait()
    return found


def _broadcast(group: Any, device: str, is_async: bool) -> list[Any]:
    (own,) = parts(device, 1)
    options = asked(BroadcastOptions(), rootRank=2, asyncOp=is_async)
    group.broadcast([own], options).wait()
    return [own]


def _reduce(group: Any, device: str, is_async: bool) -> list[Any]:
    (own,) = parts(device, 1)
    group.reduce([own], asked(ReduceOptions(), rootRank=0, asyncOp=is_async)).wait()
    return [own]


def _gather(group: Any, device: str, is_async: bool) -> list[Any]:
    found = outputs(device)
    options = asked(GatherOptions(), rootRank=0, asyncOp=is_async)
    group.gather([found], parts(device, 1), options).wait()
    return found


def _scatter(group: Any, device: str, is_async: bool) -> list[Any]:
    found = outputs(device, 1)
    options = asked(ScatterOptions(), rootRank=0, asyncOp=is_async)
    group.scatter(found, [parts(device)], options).wait()
    return found


OPERATIONS = {
    "all_reduce": _all_reduce(ReduceOp.SUM),
    "all_reduce_avg": _all_reduce(ReduceOp.AVG),
    "all_reduce_max": _all_reduce(ReduceOp.MAX),
    "all_gather": _all_gather,
    "all_gather_flat": _all_gather_flat,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_flat": _reduce_scatter_flat,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
}


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_values_are_those_of_the_host(operation: str, is_async: bool) -> None:
    one = group()
    on_host = OPERATIONS[operation](one, "cpu", is_async)
    found: list[Any] = []
    took_s = elapsed_s(lambda: found.extend(OPERATIONS[operation](one, "cuda", is_async)))
    assert took_s >= AT_LEAST_S
    for mine, theirs in zip(found, on_host, strict=True):
        assert mine.is_cuda
        torch.testing.assert_close(mine.cpu(), theirs, rtol=0, atol=0)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_wait_holds_the_stream_and_not_the_host(is_async: bool) -> None:
    one, own = group(model=f"{__name__}:long"), torch.ones(4, device="cuda")
    torch.cuda.synchronize()
    work = one.allreduce([own], asked(AllreduceOptions(), asyncOp=is_async))
    work.wait()
    behind = torch.cuda.Event()
    behind.record()
    early = behind.query(), work.is_completed()
    torch.cuda.synchronize()
    assert early == (False, False), "the host came back when the GPU was through"
    assert work.is_completed()
    assert work.is_success()


def test_a_future_holds_the_stream_of_who_waits_for_it() -> None:
    one, own = group(), torch.ones(4, device="cuda")
    found: list[Any] = []

    def play() -> None:
        future = one.allreduce([own]).get_future()
        found.append(future.then(lambda done: done.value()[0] + 1).wait())

    assert elapsed_s(play) >= AT_LEAST_S
    assert found[0].tolist() == [5.0] * 4


def test_operations_of_one_group_follow_each_other_on_whatever_streams() -> None:
    one = group()

    def play() -> None:
        works = [
            one.allreduce(
                [torch.ones(4, device="cuda")], asked(AllreduceOptions(), asyncOp=is_async)
            )
            for is_async in (True, False, True)
        ]
        for work in works:
            work.wait()

    assert elapsed_s(play) >= 3 * AT_LEAST_S


def test_two_groups_share_their_link() -> None:
    groups = group(), group()

    def play() -> None:
        works = [one.allreduce([torch.ones(4, device="cuda")]) for one in groups]
        for work in works:
            work.wait()

    play()  # what is made once
    # The second may begin a launch later than the first.
    assert elapsed_s(play) >= 2 * HELD_S - 1e-3


def test_memory_stays_until_the_stream_has_read_it() -> None:
    """The second operation reads when the first has ended; by then its tensors have been freed."""
    one = group()
    one.allreduce([torch.ones(4, device="cuda")])
    found = torch.empty(SIZE << 16, device="cuda")
    work = one._allgather_base(found, torch.ones(1 << 16, device="cuda"))
    for _ in range(8):
        torch.full((1 << 16,), float("nan"), device="cuda")
    work.wait()
    assert found.sum().item() == SIZE << 16
    # And nobody waits for these.
    for _ in range(4):
        one._allgather_base(found, torch.full((1 << 16,), 2.0, device="cuda"))
        torch.full((1 << 16,), float("nan"), device="cuda")
    one.barrier(asked(BarrierOptions(), device_ids=[0])).wait()
    assert found.sum().item() == 2 * SIZE << 16


def test_a_graph_captures_values_and_hold() -> None:
    one, own = group(), torch.ones(4, device="cuda")
    options = asked(AllreduceOptions(), asyncOp=False)
    one.allreduce([own], options).wait()  # what is made once
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        one.allreduce([own], options).wait()
        one.allreduce([own], asked(AllreduceOptions(), asyncOp=True)).wait()
    own.fill_(1.0)

    def play() -> None:
        graph.replay()
        graph.replay()

    assert elapsed_s(play) >= 4 * AT_LEAST_S
    assert own.tolist() == [256.0] * 4
    one.allreduce([own], options).wait()
    assert own.tolist() == [1024.0] * 4


def test_a_barrier_waits_for_the_stream() -> None:
    one, own = group(), torch.ones(4, device="cuda")
    one.allreduce([own]).wait()
    behind = torch.cuda.Event()
    behind.record()
    early = behind.query()
    one.barrier().wait()
    assert (early, behind.query()) == (False, True)


def test_a_dead_rank_is_named_and_the_gpu_goes_on() -> None:
    one = group(0.2, events=(emu.Dead(rank=3, call=0),))
    own = torch.ones(4, device="cuda")
    with pytest.raises(dist.DistBackendError, match="rank 3 is dead"):
        one.allreduce([own]).wait()
    assert (own + 1).tolist() == [2.0] * 4


def test_ranks_that_compute_longer_are_refused() -> None:
    one = group(events=(emu.Slow(rank=1, by=1.5),))
    with pytest.raises(ValueError, match=r"a tensor on cuda:\d was given: events 'slow' and"):
        one.allreduce([torch.ones(4, device="cuda")])


def test_tensors_of_two_devices_are_refused() -> None:
    found, own = torch.empty(4 * SIZE), torch.ones(4, device="cuda")
    with pytest.raises(ValueError, match=r"tensors on cpu and cuda:\d were given to one operation"):
        group()._allgather_base(found, own)


def test_a_thread_may_begin_with_an_operation() -> None:
    """It has had nothing to do with CUDA before."""
    one, own = group(), torch.ones(4, device="cuda")
    torch.cuda.synchronize()

    def play() -> None:
        one.allreduce([own], asked(AllreduceOptions(), asyncOp=False)).wait()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(play).result()
    torch.cuda.synchronize()
    assert own.tolist() == [4.0] * 4


def test_no_toolkit_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    mark, hold = gpu.kernels()
    assert mark
    assert hold


def test_messages_to_an_emulated_rank_are_held() -> None:
    one = group()
    assert elapsed_s(lambda: one.send([torch.ones(4, device="cuda")], 1, 0).wait()) >= AT_LEAST_S


def test_a_footprint_is_taken_as_it_was_measured(tmp_path: Path) -> None:
    """One of as many blocks as NCCL's, with more memory than a kernel has without asking."""
    links = emu.Links.load("hgx-h100").with_footprints(
        [emu.Footprint("all_reduce", 0, 24, 544, 103808)]
    )
    links.save(tmp_path / "links.json")
    one, own = group(links=str(tmp_path / "links.json")), torch.ones(4, device="cuda")
    assert elapsed_s(lambda: one.allreduce([own]).wait()) >= AT_LEAST_S
    assert own.tolist() == [4.0] * 4

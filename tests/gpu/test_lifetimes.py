"""Who may go first: batches, loaders, buffers, streams, the process; and captures in between."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from numbered import SCHEMA, check, write
from places import as_numpy

import gear

torch = pytest.importorskip("torch")

PLACES = [("host", None), ("pinned", "zero_copy"), ("pinned", "staged"), ("device", None)]
place = pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(filter(None, place)))

EXIT = """
import sys
import numpy as np, torch
sys.path.insert(0, {tests!r})
from numbered import SCHEMA, write
import gear
buffer = gear.ReplayBuffer(SCHEMA, 4096, tier={tier!r})
write(buffer, 1, [2000], np.random.default_rng(0))
to_gpu = dict(device="cuda", path={path!r}, framework="torch")
loader = buffer.loader(256, sampler=gear.Weighted(), **to_gpu)
batches = [next(loader) for _ in range(6)]
tensors = [batch["obs"] for batch in batches]
torch.cuda._sleep(100_000_000)
buffer.update(batches[0].ids, batches[0].weights)
cycle = [loader, tensors]
cycle.append(cycle)
"""


def filled(gpu: Any, tier: str) -> gear.ReplayBuffer:
    buffer = gear.ReplayBuffer(SCHEMA, 4096, **gpu.place(tier).arguments())
    write(buffer, 1, [2000], np.random.default_rng(0))
    return buffer


def arguments(gpu: Any, path: str | None) -> dict[str, Any]:
    return {"framework": "torch", **gpu.to_gpu(path)}


@place
def test_a_process_ends_with_everything_alive(gpu, place: Any) -> None:
    if gpu.rehearsal:
        pytest.skip("the end of a process with CUDA")
    tests = str(__file__).rsplit("/gpu/", 1)[0]
    program = EXIT.format(tests=tests, tier=place[0], path=place[1] or "auto")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


@place
def test_batches_outlive_loader_and_buffer(gpu, place: Any) -> None:
    buffer = filled(gpu, place[0])
    loader = buffer.loader(256, **arguments(gpu, place[1]))
    batches = [next(loader) for _ in range(3)]
    late = next(loader)  # without a tensor so far
    tensors = [{name: batch[name] for name in batch} for batch in batches]
    loader.close()
    buffer.close()
    del loader, buffer, batches
    for tensor in [*tensors, late]:
        check({name: as_numpy(tensor[name]) for name in tensor})


@place
def test_tensors_that_go_in_another_thread(gpu, place: Any) -> None:
    with filled(gpu, place[0]) as buffer, buffer.loader(64, **arguments(gpu, place[1])) as loader:
        for _ in range(12):
            held = [next(loader)["obs"]]
            thread = threading.Thread(target=held.clear)
            thread.start()
            thread.join()
        batch = next(loader)
        check({name: as_numpy(batch[name]) for name in batch})


@place
def test_loaders_end_beside_the_captures_of_others(gpu, place: Any) -> None:
    """Loaders of one GPU share a stream, on which each captures its graphs."""
    failed: list[BaseException] = []

    def come_and_go(size: int) -> None:
        try:
            for turn in range(25):
                with buffer.loader(size + turn, **arguments(gpu, place[1])) as loader:
                    for _ in range(8):
                        batch = next(loader)
                check({name: as_numpy(batch[name]) for name in batch})
        except BaseException as error:  # noqa: BLE001  # for the thread that waits
            failed.append(error)

    with filled(gpu, place[0]) as buffer:
        threads = [threading.Thread(target=come_and_go, args=(size,)) for size in (8, 64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed, failed


@place
def test_captures_of_the_consumer(gpu, place: Any) -> None:
    """A batch is not first used within a capture, and may go within one."""
    if gpu.rehearsal:
        pytest.skip("CUDA graphs")
    with filled(gpu, place[0]) as buffer, buffer.loader(64, **arguments(gpu, place[1])) as loader:
        seen = next(loader)
        unseen = next(loader)
        held = [seen["obs"]]
        target = torch.zeros(4, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            with pytest.raises(gear.InvalidArgument, match=r"captured.*before the capture"):
                unseen["obs"]
            held.clear()
            del seen
            target += 1
        graph.replay()
        torch.cuda.synchronize()
        assert target.tolist() == [1, 1, 1, 1]
        check({name: as_numpy(unseen[name]) for name in unseen})
        for _ in range(12):
            batch = next(loader)
            check({name: as_numpy(batch[name]) for name in batch})


def test_a_stream_that_goes_before_the_tensors(gpu) -> None:
    cupy = pytest.importorskip("cupy")
    if gpu.rehearsal:
        pytest.skip("streams are the GPU's")
    with (
        filled(gpu, "device") as buffer,
        buffer.loader(64, device="cuda", framework="cupy") as loader,
    ):
        for _ in range(12):
            stream = cupy.cuda.Stream()
            with stream:
                batch = next(loader)
                arrays = {name: batch[name] for name in batch}
                copies = {name: array.copy() for name, array in arrays.items()}
            stream.synchronize()
            del stream
            del arrays, batch
            check({name: copy.get() for name, copy in copies.items()})


@place
@pytest.mark.parametrize("sampler", [gear.Uniform(), gear.Weighted(), gear.Sequential()], ids=str)
def test_a_state_goes_from_one_device_to_the_other(gpu, place: Any, sampler: Any) -> None:
    with filled(gpu, place[0]) as buffer:
        to_gpu = arguments(gpu, place[1])
        to_host = {"framework": "torch"}
        for first, second in [(to_gpu, to_host), (to_host, to_gpu)]:
            with buffer.loader(96, sampler=sampler, seed=3, **first) as loader:
                for _ in range(5):
                    next(loader)
                state = loader.state_dict()
                expected = [as_numpy(next(loader).ids) for _ in range(6)]
            with buffer.loader(96, sampler=sampler, seed=3, **second) as loader:
                loader.load_state_dict(state)
                for ids in expected:
                    batch = next(loader)
                    assert np.array_equal(as_numpy(batch.ids), ids)
                    check({name: as_numpy(batch[name]) for name in batch})

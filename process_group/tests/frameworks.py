"""What torch builds on process groups, on gear_mpi and on gloo: `frameworks.py FOLDER`, one of two
ranks, started by mpirun. Writes what went wrong to FOLDER/RANK.json."""

from __future__ import annotations

import copy
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import gear
import gear_mpi

STEPS = 8


def model() -> torch.nn.Sequential:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 300), torch.nn.ReLU(),
        torch.nn.Linear(300, 4),
    )  # fmt: skip


def losses(trained: Any, rank: int) -> list[float]:
    """Of some steps, each rank on data of its own."""
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    found = []
    for _ in range(STEPS):
        inputs = torch.randn(16, 20, generator=generator)
        loss = trained(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def close(given: list[float], wanted: list[float]) -> None:
    torch.testing.assert_close(torch.tensor(given), torch.tensor(wanted), rtol=1e-6, atol=1e-7)


def data_parallel(mpi: Any, gloo: Any, folder: Path) -> None:
    rank = dist.get_rank()
    both = [
        losses(DistributedDataParallel(model(), process_group=group, bucket_cap_mb=0.03), rank)
        for group in (mpi, gloo)
    ]
    close(*both)


def sparse_gradients(mpi: Any, gloo: Any, folder: Path) -> None:
    """Of an embedding, of whose rows each rank needs others."""
    weights = []
    for group in (mpi, gloo):
        torch.manual_seed(1)
        table = torch.nn.Sequential(torch.nn.Embedding(1000, 8, sparse=True), torch.nn.Linear(8, 4))
        trained = DistributedDataParallel(table, process_group=group)
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(dist.get_rank())
        for _ in range(STEPS):
            rows = torch.randint(0, 1000, (5 + 20 * dist.get_rank(),), generator=generator)
            optimizer.zero_grad()
            trained(rows).square().mean().backward()
            assert table[0].weight.grad.is_sparse
            optimizer.step()
        weights.append(table[0].weight.detach())
    torch.testing.assert_close(*weights, rtol=1e-6, atol=1e-7)


def names_in_logging_data(mpi: Any, gloo: Any, folder: Path) -> None:
    both = dist.new_group(backend="cpu:gear_mpi,cuda:gloo")
    told = [
        DistributedDataParallel(model(), process_group=group)._get_ddp_logging_data()
        for group in (mpi, gloo, both)
    ]
    names = [one["backend_name"] for one in told]
    assert names == ["gear_mpi", "gloo", dist.get_backend(both)], names


def compressed_data_parallel(mpi: Any, gloo: Any, folder: Path) -> None:
    rank = dist.get_rank()
    gear_mpi.set_compression("bf16", mpi)
    given = DistributedDataParallel(model(), process_group=mpi)
    found = losses(given, rank)
    gear_mpi.set_compression("none", mpi)
    wanted = losses(DistributedDataParallel(model(), process_group=gloo), rank)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted), rtol=2e-2, atol=1e-3)
    weights = torch.cat([p.detach().flatten() for p in given.parameters()])
    others = [torch.empty_like(weights) for _ in range(2)]
    dist.all_gather(others, weights, group=gloo)
    assert torch.equal(*others), "the ranks drift apart"


def sharded(group: Any) -> tuple[Any, DeviceMesh]:
    mesh = DeviceMesh.from_group(group, "cpu", mesh_dim_names=("dp",))
    made = model()
    for layer in made:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(made, mesh=mesh), mesh


def fully_sharded(mpi: Any, gloo: Any, folder: Path) -> None:
    close(*[losses(sharded(group)[0], dist.get_rank()) for group in (mpi, gloo)])


def checkpoints(mpi: Any, gloo: Any, folder: Path) -> None:
    trained, _ = sharded(mpi)
    losses(trained, dist.get_rank())
    state = get_model_state_dict(trained)
    checkpoint.save(state, checkpoint_id=folder / "checkpoint", process_group=mpi)
    again, _ = sharded(mpi)
    empty = get_model_state_dict(again)
    checkpoint.load(empty, checkpoint_id=folder / "checkpoint", process_group=mpi)
    set_model_state_dict(again, empty)
    for one, other in zip(trained.parameters(), again.parameters(), strict=True):
        assert torch.equal(one.full_tensor(), other.full_tensor())


def tensor_parallel(mpi: Any, gloo: Any, folder: Path) -> None:
    mesh = DeviceMesh.from_group(mpi, "cpu", mesh_dim_names=("tp",))
    whole = model()
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    divided = parallelize_module(copy.deepcopy(whole), mesh, plan)
    close(losses(divided, 7), losses(whole, 7))


def tensors_over_ranks(mpi: Any, gloo: Any, folder: Path) -> None:
    mesh = DeviceMesh.from_group(mpi, "cpu", mesh_dim_names=("dp",))
    values = torch.arange(35.0).reshape(7, 5)
    rows = distribute_tensor(values, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    assert isinstance(columns, DTensor)
    assert torch.equal(columns.redistribute(mesh, [Replicate()]).to_local(), values)
    assert torch.equal(rows.sum(0).full_tensor(), values.sum(0))


def functional_collectives(mpi: Any, gloo: Any, folder: Path) -> None:
    def step(given: torch.Tensor) -> torch.Tensor:
        total = functional.all_reduce(given * 2, "sum", mpi)
        gathered = functional.all_gather_tensor(total, 0, mpi)
        return functional.reduce_scatter_tensor(gathered, "sum", 0, mpi) + 1

    own = torch.full((6,), float(dist.get_rank() + 1))
    wanted = torch.full((6,), 2.0 * 2 * 3 + 1)
    assert torch.equal(step(own), wanted)
    assert torch.equal(torch.compile(step, backend="aot_eager")(own), wanted)


def replay_group(mpi: Any, gloo: Any, folder: Path) -> None:
    group = gear.Group.from_torch(mpi)
    assert (group.rank, group.size) == (dist.get_rank(), 2)
    assert group.exchange({"rank": group.rank}) == [{"rank": 0}, {"rank": 1}]
    schema = gear.Schema([gear.Column("x", (3,), "float32")])
    buffer = gear.ReplayBuffer(schema, 64, tier="shared", group=group)
    writer = buffer.writer()
    for step in range(20):
        writer.append(x=torch.full((3,), float(100 * group.rank + step)).numpy())
    writer.end_episode(terminated=True)
    loader = buffer.loader(batch_size=8, outputs={"x": gear.Window(0, 1)}, framework="torch")
    seen = {int(v) // 100 for _ in range(10) for v in next(loader)["x"].flatten().tolist()}
    assert seen == {0, 1}
    loader.close()
    group.barrier()


def profiled(mpi: Any, gloo: Any, folder: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(10), group=mpi)
        dist.barrier(group=mpi)
    names = {event.key for event in profile.key_averages()}
    assert {"gear_mpi:all_reduce", "gear_mpi:barrier"} <= names, names


def profiled_before_futures_end(mpi: Any, gloo: Any, folder: Path) -> None:
    """The end of what has been waited for is in the profile, although a callback of another future
    still goes on: it would be written to a profile that is gone."""
    apart_s = 0.3
    may_end, has_begun = threading.Event(), threading.Event()
    go = torch.zeros(1)
    if dist.get_rank() == 1:
        dist.recv(go, 0, group=mpi)
        dist.all_reduce(go, group=mpi)
    else:
        first = dist.all_reduce(torch.ones(1), group=mpi, async_op=True)
        first.get_future().then(lambda _: (has_begun.set(), may_end.wait(60)))
        dist.send(go, 1, group=mpi)
        has_begun.wait()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        if dist.get_rank() == 1:
            time.sleep(apart_s)  # rank 0 waits for this one
        work = dist.all_reduce(torch.ones(10), group=mpi, async_op=True)
        time.sleep(2 * apart_s)  # the engine's own thread finds its end
        work.wait()
    [event] = [one for one in profile.events() if one.name == "gear_mpi:all_reduce"]
    may_end.set()
    dist.barrier(group=mpi)
    if dist.get_rank() == 0:
        lasted_s = event.time_range.elapsed_us() / 1e6
        assert lasted_s > apart_s / 2, f"its end after {lasted_s} s is not when rank 1 came"


CASES: dict[str, Callable[[Any, Any, Path], None]] = {
    function.__name__: function
    for function in (
        data_parallel,
        sparse_gradients,
        names_in_logging_data,
        compressed_data_parallel,
        fully_sharded,
        checkpoints,
        tensor_parallel,
        tensors_over_ranks,
        functional_collectives,
        replay_group,
        profiled,
        profiled_before_futures_end,
    )
}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(gear_mpi.NAME)
    gloo = dist.new_group(backend="gloo")
    said = {}
    folder = Path(sys.argv[1])
    for name, call in CASES.items():
        said[name] = ""
        try:
            call(dist.group.WORLD, gloo, folder)
        except Exception:  # noqa: BLE001  # pytest says what it is
            said[name] = traceback.format_exc()
            print(said[name], file=sys.stderr, flush=True)
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(said))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""What the ranks of a launched test do: `group_ranks.py SCENARIO` is one rank, under a launcher.

`group_ranks.py serve` forks ranks by hand for each line of JSON that it reads, [scenario,
[variables of rank 0, of rank 1, ...]], so that torch is imported once for many tests.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

import gear
from gear.distributed import SharedLoader, process_life

COLUMNS = [gear.Column("obs", (3,), "float32"), gear.Column("reward", (), "float32")]


def talk() -> dict[str, Any]:
    """Two groups in turn; the first one's calls."""
    group = gear.Group.from_env(timeout_s=100)
    small = group.exchange({"rank": group.rank, "of": [group.size, None, 0.5]})
    large = group.exchange("x" * 3000 * group.rank)
    group.barrier()
    places = [group.nodes, group.node, group.num_nodes, group.local_rank, group.local_size]
    channel = group.channel()
    sent = [memoryview(bytes([10 * group.rank + peer])) for peer in range(group.size)]
    received = b"".join(channel.exchange_bytes(sent, [1] * group.size))
    # Of which one alone is longer than what tells how long they are, or none.
    for length in (9000, 0):
        own = b"x" * (length if group.rank == group.size - 1 else group.rank)
        came = channel.exchange_bytes(
            [memoryview(own if peer == 0 else b"") for peer in range(group.size)]
        )
        lengths = [length if peer == group.size - 1 else peer for peer in range(group.size)]
        assert [len(one) for one in came] == [n if group.rank == 0 else 0 for n in lengths]
    missing = group.missing(10.0)
    group.close()
    with gear.Group.from_env() as again:
        members = again.exchange(os.getpid())
    return {
        "launcher": group.launcher,
        "place": [group.rank, group.size],
        "places": places,
        "small": small,
        "large": [len(text) for text in large],
        "received": list(received),
        "missing": missing,
        "members": members == [member.pid for member in group.members],
        "torch is untouched": _torch_is_untouched(),
        "modules": [name for name in ("torch", "mpi4py", "horovod") if name in sys.modules],
    }


def without() -> dict[str, Any]:
    """`talk`, where the packages of WITHOUT are not installed."""
    for package in os.environ["WITHOUT"].split(","):
        sys.modules[package] = None  # type: ignore[assignment]
    with gear.Group.from_env(timeout_s=30) as group:
        carried = group.transport().name
        group.barrier()
    result = talk()
    result["modules"] = [name for name in result["modules"] if sys.modules[name] is not None]
    return {**result, "carried": carried}


def links() -> dict[str, Any]:
    """`gear bench links`, for a moment; with what connected the ranks, by what was measured."""
    from gear.cli.bench import links
    from gear.cli.bench.rates import Work

    group_by, connected = links._group_by, {}

    def noting(kind: str, group: gear.Group) -> gear.Group:
        used = group_by(kind, group)
        connected[kind] = used.channel().kind
        return used

    links._group_by = noting
    with gear.Group.from_env(timeout_s=60) as group:
        work = Work(pool_bytes=1 << 18, batch_bytes=1 << 14, seconds=0.01)
        report = links.measure(group, [64, 4096], work)
    links._group_by = group_by
    rates = [[row.kind, row.row_bytes, row.rows_per_s] for row in report.measured]
    bounded = {row.kind for row in report.measured if row.bound is not None}
    return {
        "rates": rates,
        "told": report.told,
        "bounded": sorted(bounded),
        "connected": connected,
    }


def _torch_is_untouched() -> bool:
    if sys.modules.get("torch") is None:
        return True
    import torch.distributed

    return not torch.distributed.is_initialized()


def by_horovod() -> dict[str, Any]:
    """`talk`, then a call that the last rank takes no part in."""
    sys.path.insert(0, str(Path(__file__).with_name("stand_in")))
    result = talk()
    group = gear.Group.from_env()
    folder, others = Path(os.environ["HOROVOD_STAND_IN"]), group.size - 1
    if group.rank < others:
        result |= _failure(lambda: group.barrier(0.5))
        (folder / f"gave up {group.rank}").touch()
    else:
        while len(list(folder.glob("gave up *"))) < others:
            time.sleep(0.02)
    return result


def carry() -> dict[str, Any]:
    """A transport of the kind that CARRY_BY asks for."""
    if "CARRY_NODES" in os.environ:
        rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
        os.environ["GEAR_NODE"] = os.environ["CARRY_NODES"][rank]
    group = gear.Group.from_env(timeout_s=30, transport=os.environ["CARRY_BY"])
    transport = group.transport()
    twin = transport.duplicate()
    all = [t.allgather(b"%d" % (group.rank + n)).decode() for n, t in enumerate((transport, twin))]
    parts = transport.exchange(
        [b"x" * (group.rank * group.size + peer) for peer in range(group.size)]
    )
    return {
        "place": [group.rank],
        "name": transport.name,
        "all": all,
        "parts": [len(part) for part in parts],
    }


def chosen() -> dict[str, Any]:
    """A group by ``"auto"``, whose ranks take memory of this host for MPI, and with STORE, the rank
    that only holds steps, libfabric over TCP for a network card. On rank WHO the former fails amid
    its first exchange, or the rank is killed: WHAT."""
    from gear import _core
    from gear.distributed.channels import transports

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    class Faulty:
        """Fails in the sixth call."""

        def __init__(self, transport: _core.Transport, failure: _core.Failure) -> None:
            self.transport, self.failure, self.calls = transport, failure, 0

        def count(self) -> None:
            self.calls += 1
            if self.calls == 6 and rank == int(os.environ.get("WHO", "-1")):
                if os.environ["WHAT"] == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                self.failure.tell(f"[transport] rank {rank} lost its card")

        def look(self) -> None:
            self.transport.look()

        def allgather(self, mine: memoryview, all: memoryview) -> None:
            self.count()
            all[:] = self.transport.allgather(bytes(mine))

        def exchange_bytes(self, to: list[memoryview], sizes: list[int] | None) -> list[bytes]:
            self.count()
            return self.transport.exchange([bytes(one) for one in to], sizes)

    made = []

    def mpi(channel: Any, timeout_s: float, failure: _core.Failure) -> _core.Transport:
        made.append(timeout_s)
        name = channel.exchange(_core.made_up_name())[0]
        there = _core.SharedRoom(name, size) if rank == 0 else None
        channel.exchange(None)
        memory = _core.shared_memory_transport(name, rank, size, timeout_s, failure, there)
        return _core.group_transport(Faulty(memory, failure), rank, size, timeout_s)

    transports._has_mpi, transports._mpi = lambda *_: True, mpi
    role, timeout_s = "train", 40
    if "STORE" in os.environ:
        role = "store" if rank == int(os.environ["STORE"]) else role
        timeout_s = 160  # a quarter of it is what a transport may take to answer
        offers = {"verbs": ("", "no RDMA device"), "fabric": ("tcp on lo", "")}
        transports.one_sided_offer = offers.__getitem__
    try:
        group = gear.Group.from_env(timeout_s=timeout_s, role=role)
    except gear.TransportError as error:
        return {"error": str(error)}
    names = group.exchange(group.transport_name)
    for _ in range(2):
        group.transport()
    return {"names": names, "why": group.transport_reason, "made": made}


def refused() -> dict[str, Any]:
    """A transport, REFUSED, that these ranks cannot have; what it is told wrongly, if they can."""
    try:
        with gear.Group.from_env(timeout_s=30, transport=os.environ["REFUSED"]) as group:
            from gear.cli.bench.rates import pack_below

            pack_below(group)
    except gear.InvalidArgument as error:
        return {"error": str(error)}
    return {}


def late() -> dict[str, Any]:
    """Rank 1 comes to a barrier after the others have given up."""
    group = gear.Group.from_env(timeout_s=300)  # a call that waits that long fails its test
    if group.rank == 1:
        time.sleep(1.5)
    result = _failure(lambda: group.barrier(0.5))
    return {"place": [group.rank], **result, "again": _failure(lambda: group.exchange(1))}


def hanging() -> dict[str, Any]:
    """Rank 1 comes no more. The others linger, since mpirun kills what is left at the first end."""
    group = gear.Group.from_env(timeout_s=30)
    if group.rank == 1:
        time.sleep(60)
    atexit.register(time.sleep, 1.0)
    failed = _failure(lambda: group.barrier(0.5))
    return {"place": [group.rank], **failed, "missing": group.missing(1.5)}


def killed() -> dict[str, Any]:
    """Rank KILLED is killed; rank 2 is still busy when the others notice."""
    group = gear.Group.from_env(timeout_s=300)  # as above
    if group.rank == int(os.environ["KILLED"]):
        os.kill(os.getpid(), signal.SIGKILL)
    if group.rank == 2:
        time.sleep(0.5)
    result = _failure(lambda: group.exchange(1))
    result["missing"] = group.missing(3.0)
    result["lost"] = str(group.lost(RuntimeError("Connection reset\nby peer"), 0.0))
    time.sleep(1.0)  # as a program does that ends: rank 2 is to name rank 1 only
    return result


def _failure(call: Any) -> dict[str, Any]:
    try:
        call()
    except gear.TransportError as error:
        return {"error": str(error)}
    return {"error": None}


def start() -> dict[str, Any]:
    """Not every rank starts."""
    if os.environ["RANK"] == "1":
        return {}
    return _failure(lambda: gear.Group.from_env())


def existing() -> dict[str, Any]:
    """torch.distributed is initialised by the program, and goes on after the group."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    group = gear.Group.from_env(timeout_s=30)
    ranks = group.exchange(dist.get_rank())
    pair = dist.new_group([0, 2])
    pair_ranks = None
    if dist.get_rank() in (0, 2):
        pair_ranks = gear.Group.from_torch(pair, timeout_s=30).exchange(dist.get_rank())
    group.close()
    total = torch.tensor([dist.get_rank()])
    dist.all_reduce(total)
    launcher = group.launcher
    dist.destroy_process_group()
    return {"ranks": ranks, "pair": pair_ranks, "sum": int(total), "launcher": launcher}


class Grid:
    """A data-parallel grid as DeepSpeed and Megatron have it, of 2 x 2 ranks; rank = 2 dp + pp."""

    def __init__(self) -> None:
        import torch.distributed as dist

        groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        self._group = groups[dist.get_rank() % 2]
        self._rank = dist.get_rank() // 2

    def get_data_parallel_group(self) -> Any:
        return self._group

    def get_data_parallel_rank(self) -> int:
        return self._rank


def mesh() -> dict[str, Any]:
    """Two pipelines of two stages; the last stages own the experience."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo")
    by_mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    group = gear.Group.from_mesh(by_mesh, "dp", timeout_s=30)
    grid = gear.Group.from_mpu(Grid(), timeout_s=30)
    me = dist.get_rank()
    result: dict[str, Any] = {
        "dp": group.exchange(me),
        "replicas": group.replicas.exchange(me),
        "grid": [grid.exchange(me), grid.replicas.exchange(me)],
    }
    try:
        gear.Group.from_mesh(by_mesh, "tp")
    except gear.InvalidArgument as error:
        result["refused"] = str(error)
    first, last = me % 2 == 0, me % 2 == 1
    loader = None
    if last:
        buffer = gear.ReplayBuffer(gear.Schema(COLUMNS), 64, group=group)
        with buffer.writer() as writer:
            for step in range(20):
                value = 100 * group.rank + step
                writer.append(obs=np.full(3, value, np.float32), reward=np.float32(value))
        outputs = {"obs": gear.Window(0, 2), "reward": gear.Step(0)}
        loader = buffer.loader(4, sampler=gear.Sequential(), outputs=outputs, locality="off")
    shared = SharedLoader(loader, group.replicas, outputs=["obs"] if first else ["reward"])
    result["batches"] = [
        {
            "outputs": list(batch),
            "ids": batch.ids.tolist(),
            "dtype": [str(batch[name].dtype) for name in batch],
            "values": [batch[name].tolist() for name in batch],
            "masks": [batch.masks[name].tolist() for name in batch],
        }
        for batch in shared
    ]
    if loader is not None:
        loader.close()
        buffer.close()
    dist.destroy_process_group()
    return result


def main(scenario: str) -> None:
    play = globals().get(scenario) or getattr(importlib.import_module("group_faults"), scenario)
    print("RESULT " + json.dumps(play()), flush=True)


# ---- ranks forked by hand ----


def serve() -> None:
    importlib.import_module("torch.distributed")
    importlib.import_module("group_faults")
    for line in sys.stdin:
        scenario, places = json.loads(line)
        # Not a TemporaryDirectory, which a rank that ends its interpreter would remove.
        folder = tempfile.mkdtemp()
        outputs = [Path(folder) / str(n) for n in range(len(places))]
        try:
            pids = [_fork(scenario, *rank) for rank in zip(places, outputs, strict=True)]
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
            texts = [output.read_text() for output in outputs]
        finally:
            shutil.rmtree(folder)
        print(json.dumps(list(zip(codes, texts, strict=True))), flush=True)


def _fork(scenario: str, place: dict[str, str], output: Path) -> int:
    output.touch()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        out = os.open(output, os.O_WRONLY)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.environ.update(place)
        main(scenario)
        process_life.end()  # as the interpreter's end
        code = 0
    except BaseException:  # noqa: BLE001 - a forked child never returns into the parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve() if sys.argv[1] == "serve" else main(sys.argv[1])

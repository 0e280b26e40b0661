"""Groups in one process: alone, of threads, and the loader that several ranks share."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gear
from gear.distributed import SharedLoader
from gear.distributed.channels.base import Alone
from gear.distributed.member import Member

COLUMNS = [
    gear.Column("obs", (3,), "float32"),
    gear.Column("action", (), "int16"),
    gear.Column("done", (), "bool"),
]


def on_all(groups: list[gear.Group], call: Callable[[gear.Group], Any]) -> list[Any]:
    """What `call` returns, or the error that it raises, on every rank."""
    results: list[Any] = [None] * len(groups)

    def run(group: gear.Group) -> None:
        try:
            results[group.rank] = call(group)
        except gear.GearError as error:
            results[group.rank] = error

    threads = [threading.Thread(target=run, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_single_takes_the_timeout_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEAR_TIMEOUT_S", raising=False)
    assert gear.Group.single().timeout_s == 300
    monkeypatch.setenv("GEAR_TIMEOUT_S", "7")
    assert gear.Group.single().timeout_s == 7
    assert gear.Group.single().replicas.timeout_s == 7
    assert [group.timeout_s for group in gear.Group.loopback(2)] == [7, 7]
    monkeypatch.setenv("GEAR_TIMEOUT_S", "soon")
    with pytest.raises(gear.InvalidArgument, match="GEAR_TIMEOUT_S=soon"):
        gear.Group.single()


def test_save_over_ranks_makes_the_folders_above(tmp_path: Path) -> None:
    def save(group: gear.Group) -> int:
        with gear.ReplayBuffer(gear.Schema(COLUMNS), 64, group=group) as buffer:
            buffer.save(tmp_path / "a" / "b" / "replay")
        with gear.ReplayBuffer.load(tmp_path / "a" / "b" / "replay", group=group) as buffer:
            return buffer.capacity

    assert on_all(gear.Group.loopback(2, timeout_s=20), save) == [64, 64]


def test_single_is_one_rank() -> None:
    group = gear.Group.single()
    assert (group.rank, group.size, group.launcher) == (0, 1, "single")
    assert (group.nodes, group.num_nodes, group.local_rank, group.local_size) == ((0,), 1, 0, 1)
    assert group.exchange([1, "a"]) == [[1, "a"]]
    group.barrier()
    assert group.missing() == []
    assert group.replicas.size == 1
    assert group.transport().allgather(b"abc") == b"abc"
    assert repr(group) == "Group(rank 0 of 1, 1 node, launcher='single')"
    group.close()
    with pytest.raises(gear.InvalidArgument, match="this group is closed: make another"):
        group.exchange(1)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_threads(size: int) -> None:
    groups = gear.Group.loopback(size, ranks_per_node=2, timeout_s=20)
    assert [group.nodes for group in groups] == [tuple(rank // 2 for rank in range(size))] * size
    assert [group.local_rank for group in groups] == [rank % 2 for rank in range(size)]
    assert {group.num_nodes for group in groups} == {(size + 1) // 2}

    def calls(group: gear.Group) -> list[Any]:
        small = group.exchange({"rank": group.rank})
        large = group.exchange([group.rank] * 5000 * group.rank)
        group.barrier()
        return [small, [len(value) for value in large], group.missing(0.0)]

    expected = [[{"rank": rank} for rank in range(size)], [5000 * r for r in range(size)], []]
    assert on_all(groups, calls) == [expected] * size


def test_calls_of_two_channels_have_no_order() -> None:
    """Rank 1 begins with the channel that rank 0 comes to last; each channel has a thread."""

    def calls(group: gear.Group) -> list[bytes]:
        channels = [group.channel() for _ in range(3)]
        filled = [memoryview(bytearray(2)) for _ in channels]
        threads = [
            threading.Thread(
                target=channel.allgather, args=(memoryview(bytes([10 * group.rank + n])), all)
            )
            for n, (channel, all) in enumerate(zip(channels, filled, strict=True))
        ]
        for thread in threads if group.rank == 0 else reversed(threads):
            thread.start()
            time.sleep(0.02)
        for thread in threads:
            thread.join()
        return [bytes(view) for view in filled]

    groups = gear.Group.loopback(2, timeout_s=20)
    assert on_all(groups, calls) == [[b"\x00\x0a", b"\x01\x0b", b"\x02\x0c"]] * 2


def test_a_late_rank_is_named() -> None:
    groups = gear.Group.loopback(4, timeout_s=20)
    both = threading.Barrier(2)

    def wait(group: gear.Group) -> None:
        if group.rank not in (1, 3):
            both.wait()
            group.barrier(1.0, waited_s=2.2)

    errors = on_all(groups, wait)
    for rank in (0, 2):
        assert re.match(
            r"\[transport\] rank 1 \(pid \d+ on \S+\), rank 3 \(.*\) did not take part within 3\.2"
            r" s: look for the cause there, or raise timeout_s \(GEAR_TIMEOUT_S\)$",
            str(errors[rank]),
        )
    with pytest.raises(gear.TransportError, match=r"rank 3 .* did not take part within"):
        groups[0].exchange("later")


def test_exchange_refuses_a_value_that_json_lacks() -> None:
    with pytest.raises(gear.InvalidArgument, match=r"exchange of set: .*numbers, strings, None"):
        gear.Group.single().exchange({1, 2})


@pytest.mark.parametrize(
    "value", [{1: 2}, {"a": {1.5: 2}}, [0, ({None: 1},)], {"a": 1, True: 2}], ids=repr
)
def test_exchange_makes_no_strings_of_keys(value: Any) -> None:
    with pytest.raises(gear.InvalidArgument, match=r"exchange of .* the key (1|1\.5|None|True) of"):
        gear.Group.single().exchange(value)
    groups = gear.Group.loopback(2, timeout_s=20)
    errors = on_all(groups, lambda group: group.exchange(value if group.rank == 1 else {}))
    assert all(isinstance(error, gear.InvalidArgument) for error in errors)
    assert str(errors[0]) == f"on rank 1: {errors[1]}"
    nested = {"a": {"b": [{"c": None}]}}
    assert on_all(groups, lambda group: group.exchange(nested)) == [[nested] * 2] * 2


def test_exchange_of_a_wrong_value_is_refused_on_all_ranks() -> None:
    groups = gear.Group.loopback(3, timeout_s=20)
    errors = on_all(groups, lambda group: group.exchange({1} if group.rank == 1 else 1))
    assert all(isinstance(error, gear.InvalidArgument) for error in errors)
    assert str(errors[1]).startswith("[group] exchange of set: ")
    assert [str(errors[rank]) for rank in (0, 2)] == [f"on rank 1: {errors[1]}"] * 2
    assert on_all(groups, lambda group: group.exchange(group.rank)) == [[0, 1, 2]] * 3


@pytest.mark.mpi
def test_a_rank_without_a_communicator_is_refused() -> None:
    """MPI.COMM_NULL is false, and must not be taken for no communicator at all."""
    program = """
import gear
from mpi4py import MPI
print(gear.Group.from_mpi(MPI.COMM_SELF).size)
gear.Group.from_mpi(MPI.COMM_NULL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "1\n"
    said = done.stderr.splitlines()
    assert any("Group.from_mpi was given MPI.COMM_NULL: this rank is in no" in s for s in said)


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf")])
def test_a_wrong_timeout_is_refused(timeout_s: float) -> None:
    with pytest.raises(gear.InvalidArgument, match=r"timeout_s=.*: seconds, a number above 0"):
        gear.Group.loopback(2, timeout_s=timeout_s)


def test_an_error_of_another_library() -> None:
    group = gear.Group.loopback(2, timeout_s=20)[0]
    error = group.lost(RuntimeError("Connection reset\nin line 7"))
    assert str(error).startswith("[transport] Connection reset: no rank seems to be missing")


def test_transports_of_threads(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gear"):
        groups = gear.Group.loopback(3, timeout_s=20)

    def carry(group: gear.Group) -> list[Any]:
        transports = [group.transport() for _ in range(2)]
        return [[t.name, t.rank, t.size, t.allgather(b"%d" % t.rank)] for t in transports]

    results = on_all(groups, carry)
    assert {group.transport_name for group in groups} == {"loopback"}
    assert results == [[["loopback", rank, 3, b"012"]] * 2 for rank in range(3)]
    assert [record.message for record in caplog.records] == [
        "[transport] bytes between ranks go by loopback: the ranks are threads of one process"
    ]


# ---- who is missing ----


class OfRank0(Alone):
    """Of a group whose ranks 0 and 2 answer a roll call."""

    kind = "loopback"

    def __init__(self, size: int) -> None:
        super().__init__(1.0)
        self.size = size

    def answered(self, wait_s: float) -> set[int]:
        return {0, 2}


def of_hosts(*hosts: str, ended: Sequence[int]) -> gear.Group:
    """Rank 0's group of one node, `GEAR_NODE`, of which ranks have ended."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here = Member.here(0, "rack 7")
    members = [
        replace(here, rank=rank, host=host, pid=gone.pid if rank in ended else here.pid)
        for rank, host in enumerate(hosts)
    ]
    return gear.Group(OfRank0(len(members)), members, launcher="environment")


def test_a_roll_call_looks_for_the_other_hosts_of_a_node() -> None:
    assert of_hosts("a", "a", "b", "b", ended=[1]).missing() == [1, 3]
    assert of_hosts("a", "a", "a", "a", ended=[1]).missing() == [1]
    assert of_hosts("a", "a", "a", "a", ended=[]).missing() == [1, 3]


# ---- whether a process has ended ----


def test_a_member_ends() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stat = Path(f"/proc/{child.pid}/stat").read_text()
    start_time = int(stat[stat.rfind(")") + 2 :].split()[19])
    member = replace(Member.here(0), pid=child.pid, start_time=start_time)
    assert not Member.here(0).has_ended()
    assert not member.has_ended()
    assert replace(member, start_time=start_time - 1).has_ended()  # its number belongs to another
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert member.has_ended()  # a zombie
    child.wait()
    assert member.has_ended()
    child.stdin.close()


def test_nodes_go_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Member.here(0)
    assert host.node == host.host
    monkeypatch.setenv("GEAR_NODE", "rack 7")
    assert Member.here(0) == replace(host, node="rack 7")
    assert Member.from_json(host.as_json()) == host


# ---- a loader that several ranks share ----


def filled_buffer() -> gear.ReplayBuffer:
    buffer = gear.ReplayBuffer(gear.Schema(COLUMNS), 64, page_steps=4)
    with buffer.writer() as writer:
        for episode, steps in enumerate([7, 3, 12]):
            for step in range(steps):
                value = 100 * episode + step
                obs = np.full(3, value, np.float32)
                writer.append(obs=obs, action=np.int16(value), done=step == steps - 1)
            writer.end_episode(terminated=True, weight=1.0 + episode)
    return buffer


OUTPUTS = {"obs": gear.Window(-1, 3), "action": gear.Step(0), "done": gear.Window(0, 2)}


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("packed", [False, True])
def test_every_rank_gets_what_it_asks_for(framework: str, packed: bool) -> None:
    pytest.importorskip(framework)
    wishes = [["obs"], None, [], ["done", "action"]]
    sampler = gear.Weighted(alpha=0.7, beta=0.4)
    options = {"sampler": sampler, "outputs": OUTPUTS, "packed": packed, "framework": framework}
    expected_loader = filled_buffer().loader(5, seed=3, **options)
    expected = [next(expected_loader) for _ in range(4)]

    def receive(group: gear.Group) -> list[Any]:
        loader = filled_buffer().loader(5, seed=3, **options) if group.rank == 1 else None
        shared = SharedLoader(loader, group, outputs=wishes[group.rank])
        return [next(shared) for _ in range(4)]

    groups = gear.Group.loopback(4, timeout_s=20)
    for rank, batches in enumerate(on_all(groups, receive)):
        names = list(OUTPUTS) if wishes[rank] is None else wishes[rank]
        for batch, whole in zip(batches, expected, strict=True):
            assert list(batch) == names
            assert (batch.size, len(batch)) == (5, len(names))
            pairs = [
                (batch.ids, whole.ids),
                (batch.probabilities, whole.probabilities),
                (batch.weights, whole.weights),
            ]
            assert list(batch.cu_seqlens) == (names if packed else [])
            assert list(batch.masks) == ([] if packed else names)
            for name in names:
                pairs += [(batch[name], whole[name]), (batch.lengths[name], whole.lengths[name])]
                of = (lambda b: b.cu_seqlens) if packed else (lambda b: b.masks)
                pairs.append((of(batch)[name], of(whole)[name]))
            for given, wanted in pairs:
                assert type(given) is type(wanted)
                assert given.dtype == wanted.dtype
                np.testing.assert_array_equal(np.asarray(given), np.asarray(wanted))


def test_an_epoch_ends_on_all_ranks() -> None:
    def count(group: gear.Group) -> list[int]:
        loader = filled_buffer().loader(4, sampler=gear.Sequential()) if group.rank == 0 else None
        shared = SharedLoader(loader, group)
        return [sum(batch.size for batch in shared) for _ in range(2)]

    assert on_all(gear.Group.loopback(3, timeout_s=20), count) == [[22, 22]] * 3


def test_shared_loader_delivers_bfloat16() -> None:
    torch = pytest.importorskip("torch")

    def receive(group: gear.Group) -> Any:
        loader = None
        if group.rank == 0:
            buffer = gear.ReplayBuffer(gear.Schema([gear.Column("x", (2,), "bfloat16")]), 16)
            with buffer.writer() as writer:
                writer.append(x=torch.tensor([1.5, -3.0], dtype=torch.bfloat16))
                writer.end_episode(terminated=True)
            loader = buffer.loader(1)
        return next(SharedLoader(loader, group))["x"]

    for x in on_all(gear.Group.loopback(2, timeout_s=20), receive):
        assert x.dtype == torch.bfloat16
        assert x.tolist() == [[1.5, -3.0]]


@pytest.mark.parametrize(("owners", "number"), [((), "none"), ((0, 2), "2")])
def test_one_rank_owns_the_loader(owners: tuple[int, ...], number: str) -> None:
    def make(group: gear.Group) -> None:
        SharedLoader(filled_buffer().loader(2) if group.rank in owners else None, group)

    for error in on_all(gear.Group.loopback(3, timeout_s=20), make):
        assert isinstance(error, gear.InvalidArgument)
        assert f"[group] {number} of the 3 ranks gave a loader" in str(error)


def test_what_fails_on_the_owner_fails_on_all() -> None:
    def receive(group: gear.Group) -> None:
        loader = filled_buffer().loader(2) if group.rank == 0 else None
        next(SharedLoader(loader, group, outputs=["obs", "reward"] if group.rank else None))

    owner, peer = on_all(gear.Group.loopback(2, timeout_s=20), receive)
    assert isinstance(owner, gear.InvalidArgument)
    assert "outputs 'reward': the loader delivers 'obs', 'action', 'done'" in str(owner)
    assert isinstance(peer, gear.TransportError)
    assert re.match(r"\[transport\] rank 0 \(pid .* made no batch: \[group\] SharedL", str(peer))


@pytest.mark.parametrize("kind", [MemoryError, RuntimeError, KeyError])
def test_any_failure_of_the_owners_loader_reaches_all(kind: type[Exception]) -> None:
    class Failing(Iterator[gear.Batch]):
        def __next__(self) -> gear.Batch:
            raise kind("no room")

    def receive(group: gear.Group) -> str:
        shared = SharedLoader(Failing() if group.rank == 0 else None, group)
        try:
            next(shared)
        except (kind, gear.TransportError) as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"

    owner, peer = on_all(gear.Group.loopback(2, timeout_s=20), receive)
    assert owner.startswith(kind.__name__)
    assert re.match(rf"TransportError: .*rank 0 .* made no batch: {kind.__name__}: ", peer)


@pytest.mark.parametrize("outputs", ["obs", [1], 3])
def test_outputs_of_one_rank_that_are_no_names_are_refused_on_all(outputs: Any) -> None:
    def make(group: gear.Group) -> str:
        loader = filled_buffer().loader(2) if group.rank == 0 else None
        try:
            SharedLoader(loader, group, outputs=outputs if group.rank == 1 else None)
        except (gear.InvalidArgument, TypeError) as error:
            return str(error)
        return "nothing"

    first, second = on_all(gear.Group.loopback(2, timeout_s=20), make)
    assert first == f"on rank 1: {second}"

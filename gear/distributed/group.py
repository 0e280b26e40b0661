"""The ranks that share a buffer."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Sequence
from typing import Any

from gear import _core
from gear.arguments import check_count
from gear.distributed.channel import Absence, Alone, Channel
from gear.distributed.loopback import Board, ThreadChannel
from gear.distributed.member import Member
from gear.distributed.transports import TRANSPORTS, choose_transport, open_transport
from gear.errors import InvalidArgument, TransportError

TIMEOUT_S = 300.0
FIRST_BYTES = 512  # of a value that travel with its length

log = logging.getLogger("gear")


class Group:
    """This process's place among the ranks that share a buffer, and calls between them.

    A program makes one with `from_env` and gives it to `ReplayBuffer`:

        group = gear.Group.from_env()
        buffer = gear.ReplayBuffer(schema, capacity, group=group)

    `exchange`, `barrier`, `transport` and every way of making a group are collective: all ranks
    make the same calls in the same order, in one thread at a time. None of them waits longer than
    `timeout_s`: then it raises TransportError, which names the ranks that are missing, and the
    group is of no use any more.

    Attributes:
        rank, size: this rank, and how many there are.
        nodes: the node of every rank, numbered 0, 1, ... by first rank. Two ranks are on one node
            if they can map each other's memory; ``GEAR_NODE=name`` says it in place of that.
        node, num_nodes, local_rank, local_size: from `nodes`, of this rank's node.
        timeout_s: of every collective call of the group and its transports. By default
            ``GEAR_TIMEOUT_S``, else 300.
        launcher: ``"single"``, ``"torchrun"``, ``"srun"``, ``"mpirun"``, ``"horovodrun"``,
            ``"environment"`` (variables set by hand or another program) or ``"loopback"``.
        replicas: the ranks, of other groups, that are to train on the same batches as this one; see
            `from_mesh`. A group of this rank alone where there are none.
    """

    def __init__(
        self,
        channel: Channel,
        members: Sequence[Member],
        *,
        launcher: str,
        transport: str = "auto",
        replicas: Group | None = None,
    ) -> None:
        """Use the functions below, which make channel and members."""
        self._channel: Channel | None = channel
        self.members = channel.members = tuple(members)
        self._replicas = replicas
        self._wanted = transport
        self._kind: str | None = None
        self.rank = channel.rank
        self.size = channel.size
        self.timeout_s = channel.timeout_s
        self.launcher = launcher
        numbers: dict[str, int] = {}
        self.nodes = tuple(numbers.setdefault(m.node, len(numbers)) for m in self.members)
        self.node = self.nodes[self.rank]
        self.num_nodes = len(numbers)
        self.local_rank = self.nodes[: self.rank].count(self.node)
        self.local_size = self.nodes.count(self.node)

    # ---- ways to make one ----

    @staticmethod
    def single() -> Group:
        """This process alone."""
        return Group(Alone(TIMEOUT_S), [Member.here(0)], launcher="single")

    @staticmethod
    def from_env(*, timeout_s: float | None = None, transport: str = "auto") -> Group:
        """The group of all processes that the launcher started.

        An initialised torch.distributed, Horovod or mpi4py is taken as it is. Otherwise the
        environment tells: torchrun; horovodrun; mpirun and other starters of MPI (through mpi4py
        where it is installed, else torch and ``MASTER_ADDR``); srun (the ranks meet on the first
        host of the step); ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT`` set by hand;
        none of them: this process alone. The logger ``gear`` tells at level debug what was found.

        torch.distributed is not initialised by this, and may be afterwards, at the same address.

        Args:
            timeout_s: see the class.
            transport: how the ranks' bytes travel: ``"shared_memory"`` (one host), ``"mpi"`` (in
                builds with MPI), ``"group"`` (gloo, mpi4py or Horovod, as the ranks found each
                other), ``"auto"``: the first of these that fits.

        Raises:
            InvalidArgument: variables that are half set or wrong, or nothing installed that could
                connect the ranks; names the variable.
            TransportError: ranks that did not come within `timeout_s`; names them.
        """
        from gear.distributed.from_environment import group_from_environment

        return group_from_environment(timeout_s, transport)

    @staticmethod
    def loopback(
        size: int, *, ranks_per_node: int | None = None, timeout_s: float | None = None
    ) -> list[Group]:
        """One group for each of `size` ranks that are threads of this process.

        Args:
            ranks_per_node: emulates nodes of so many ranks; None: one node.
        """
        size = check_count("[group] size", size)
        per_node = check_count("[group] ranks_per_node", ranks_per_node or size)
        board, wait_s = Board(size), resolve_timeout(timeout_s)
        members = [Member.here(rank, node=f"node {rank // per_node}") for rank in range(size)]
        return [
            Group(ThreadChannel(board, rank, wait_s), members, launcher="loopback")
            for rank in range(size)
        ]

    @classmethod
    def from_torch(
        cls,
        process_group: Any = None,
        *,
        timeout_s: float | None = None,
        transport: str = "auto",
    ) -> Group:
        """The ranks of a process group of torch.distributed (None: all), of any backend.

        The process group itself is not used to move bytes.
        """
        from gear.distributed.from_torch import group_from_torch

        return group_from_torch(process_group, timeout_s, transport)

    @classmethod
    def from_mpi(
        cls, communicator: Any = None, *, timeout_s: float | None = None, transport: str = "auto"
    ) -> Group:
        """The ranks of an mpi4py communicator (None: ``MPI.COMM_WORLD``)."""
        from gear.distributed.from_environment import group_from_mpi

        return group_from_mpi(communicator, timeout_s, transport)

    @classmethod
    def from_horovod(
        cls, process_set: Any = None, *, timeout_s: float | None = None, transport: str = "auto"
    ) -> Group:
        """The ranks of a Horovod process set (None: all). ``horovod.torch`` must be initialised."""
        from gear.distributed.from_environment import group_from_horovod

        return group_from_horovod(process_set, timeout_s, transport)

    @classmethod
    def from_mesh(
        cls,
        mesh: Any,
        dim: str = "dp",
        *,
        timeout_s: float | None = None,
        transport: str = "auto",
    ) -> Group:
        """The axis `dim` of a DeviceMesh, along which ranks train on different batches.

        Ranks that differ only in the other axes (tensor, pipeline, context parallel) form
        `replicas`, a group of their own; give the whole mesh, not a slice of it. Two ways to give
        replicas the same batch:

        - Rank 0 of the replicas makes buffer and loader, and all take part in
          `gear.distributed.SharedLoader`, which hands each rank the outputs that it asks for.
        - Every rank makes a buffer of this group, fills it with the same steps and draws with the
          same seed: the batches are equal, at the price of as many copies of the experience.
        """
        from gear.distributed.from_torch import group_from_mesh

        return group_from_mesh(mesh, dim, timeout_s, transport)

    @classmethod
    def from_mpu(
        cls, mpu: Any, *, timeout_s: float | None = None, transport: str = "auto"
    ) -> Group:
        """The data-parallel ranks of a DeepSpeed or Megatron grid; `replicas` as in `from_mesh`.

        Collective over all ranks of torch.distributed.

        Args:
            mpu: has ``get_data_parallel_rank()`` and ``get_data_parallel_group()``:
                ``megatron.core.parallel_state``, or a DeepSpeed engine's ``grid`` or ``mpu``.
        """
        from gear.distributed.from_torch import group_from_mpu

        return group_from_mpu(mpu, timeout_s, transport)

    # ---- calls between the ranks ----

    def exchange(self, value: Any) -> list[Any]:
        """What every rank gave, by rank: a small value that JSON can carry (tuples come as lists).

        Raises:
            InvalidArgument: not a value for JSON.
        """
        return exchange_over(self._open(), value)

    def barrier(self, timeout_s: float | None = None) -> None:
        """Returns when all ranks are here.

        Raises:
            TransportError: not within `timeout_s` (None: that of the group); names the missing.
        """
        wait_s = self.timeout_s if timeout_s is None else resolve_timeout(timeout_s)
        self._open().allgather(memoryview(b"?"), memoryview(bytearray(self.size)), wait_s)

    def transport(self) -> _core.Transport:
        """A way for bytes between the ranks, independent of all others that it gave out."""
        channel = self._open()
        if self._kind is None:
            self._kind, why = choose_transport(self, channel, self._wanted)
            if self.rank == 0:
                log.info("[transport] bytes between ranks go by %s: %s", self._kind, why)
        return open_transport(self, channel, self._kind)

    def channel(self) -> Channel:
        """As `transport`, for bytes of Python: over what the ranks found each other by."""
        return self._open().duplicate()

    def missing(self, wait_s: float = 2.0) -> list[int]:
        """Ranks that are gone, as far as this rank can tell.

        Those of this node by their processes, at once. The others by a roll call, which the ranks
        that are still there make together after a failure: who does not answer within `wait_s` is
        missing. With `wait_s` 0, and over Horovod and threads, there is no roll call.
        """
        channel = self._open()
        gone = channel.ended(range(self.size))
        if self.num_nodes > 1 and wait_s > 0:
            away = {rank for rank in range(self.size) if self.nodes[rank] != self.node}
            gone |= away - channel.answered(wait_s)
        return sorted(gone)

    def lost(self, error: BaseException, wait_s: float = 2.0) -> TransportError:
        """The error to raise where a collective call of another library failed with `error`.

        Names the ranks that are `missing`, or else says what the library said.
        """
        channel = self._open()
        if channel.failed:
            return TransportError(channel.failed)
        missing = self.missing(wait_s)
        if missing:
            return channel.failure(Absence(ended=tuple(missing)), wait_s)
        said = next(iter(str(error).splitlines()), "") or type(error).__name__
        return TransportError(
            f"[transport] {said}: no rank has been found missing; look at the output of all ranks"
        )

    @property
    def replicas(self) -> Group:
        if self._replicas is None:
            self._replicas = Group.single()
        return self._replicas

    def close(self) -> None:
        """Closes this group's connections. Transports and process groups of others stay."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        if self._replicas is not None:
            self._replicas.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"Group(rank {self.rank} of {self.size}, {self.num_nodes} "
            f"node{'s'[: self.num_nodes != 1]}, launcher={self.launcher!r})"
        )

    def _open(self) -> Channel:
        if self._channel is None:
            raise InvalidArgument("[group] this group is closed: make another")
        return self._channel


def resolve_timeout(timeout_s: float | None) -> float:
    """The seconds that a wait may take: as given, else GEAR_TIMEOUT_S, else 300."""
    name, given = "timeout_s", str(timeout_s)
    if timeout_s is None:
        name, given = "GEAR_TIMEOUT_S", os.environ.get("GEAR_TIMEOUT_S") or str(TIMEOUT_S)
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InvalidArgument(
            f"[group] {name}={given}: seconds, a number above 0, are allowed; correct or unset it"
        )
    return value


def check_transport(transport: str) -> str:
    if transport not in TRANSPORTS:
        raise InvalidArgument(
            f"[group] transport {transport!r}: {', '.join(map(repr, TRANSPORTS))} are allowed"
        )
    return transport


def make_group(
    channel: Channel, *, launcher: str, transport: str, replicas: Group | None = None
) -> Group:
    """The group over `channel`, whose ranks tell each other where they are."""
    here = Member.here(channel.rank).as_json()
    members = [Member.from_json(value) for value in exchange_over(channel, here)]
    return Group(channel, members, launcher=launcher, transport=transport, replicas=replicas)


def exchange_over(channel: Channel, value: Any) -> list[Any]:
    """`Group.exchange`, over any channel."""
    try:
        text = json.dumps(value).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"[group] exchange of {type(value).__name__}: {error}; numbers, strings, None, and "
            "lists and dicts of them are allowed"
        ) from None
    room = FIRST_BYTES - 8
    first = bytearray(len(text).to_bytes(8, "little") + text[:room].ljust(room))
    firsts = memoryview(bytearray(FIRST_BYTES * channel.size))
    channel.allgather(memoryview(first), firsts)
    heads = [firsts[rank * FIRST_BYTES : (rank + 1) * FIRST_BYTES] for rank in range(channel.size)]
    lengths = [int.from_bytes(head[:8], "little") for head in heads]
    rests = [memoryview(bytearray(max(0, length - room))) for length in lengths]
    if any(rest.nbytes for rest in rests):
        channel.alltoallv([memoryview(bytearray(text[room:]))] * channel.size, rests)
    return [
        json.loads(bytes(head[8 : 8 + length]) + bytes(rest))
        for head, length, rest in zip(heads, lengths, rests, strict=True)
    ]

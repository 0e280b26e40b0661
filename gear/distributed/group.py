"""The ranks that share a buffer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from gear import _core
from gear.arguments import check_count
from gear.distributed.channel import TIMEOUT_S, Absence, Alone, Channel, resolve_timeout
from gear.distributed.from_environment import meet_by_environment, meet_by_horovod, meet_by_mpi
from gear.distributed.from_torch import meet_along_mesh, meet_by_torch, meet_in_grid
from gear.distributed.loopback import Board, ThreadChannel
from gear.distributed.meeting import Meeting
from gear.distributed.member import Member
from gear.distributed.places import Places
from gear.distributed.transports import check_transport, choose_transport, open_transport
from gear.errors import InvalidArgument, TransportError

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
        transport_name: what carries bytes between the ranks: ``"shared_memory"``, ``"mpi"``,
            ``"group"`` or ``"loopback"`` (within a process).
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
        """Use the functions below, which make channel and members. Collective."""
        self._channel: Channel | None = channel
        self.members = channel.members = tuple(members)
        self._replicas = replicas
        places = Places(channel.rank, self.members)
        self.rank, self.size, self.nodes = places.rank, places.size, places.nodes
        self.node, self.num_nodes = places.node, places.num_nodes
        self.local_rank, self.local_size = places.local_rank, places.local_size
        self.timeout_s = channel.timeout_s
        self.launcher = launcher
        self.transport_name, why = choose_transport(channel, places, launcher, transport)
        if self.rank == 0 and self.size > 1:
            log.info("[transport] bytes between ranks go by %s: %s", self.transport_name, why)

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
                connect the ranks; names the variable. Or a transport that these ranks cannot have.
            TransportError: ranks that did not come within `timeout_s`; names them.
        """
        return Group._of(meet_by_environment, timeout_s, transport)

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
        return Group._of(lambda wait_s: meet_by_torch(process_group, wait_s), timeout_s, transport)

    @classmethod
    def from_mpi(
        cls, communicator: Any = None, *, timeout_s: float | None = None, transport: str = "auto"
    ) -> Group:
        """The ranks of an mpi4py communicator (None: ``MPI.COMM_WORLD``)."""
        return Group._of(lambda wait_s: meet_by_mpi(communicator, wait_s), timeout_s, transport)

    @classmethod
    def from_horovod(
        cls, process_set: Any = None, *, timeout_s: float | None = None, transport: str = "auto"
    ) -> Group:
        """The ranks of a Horovod process set (None: all). ``horovod.torch`` must be initialised."""
        return Group._of(lambda wait_s: meet_by_horovod(process_set, wait_s), timeout_s, transport)

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
        return Group._of(lambda wait_s: meet_along_mesh(mesh, dim, wait_s), timeout_s, transport)

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
        return Group._of(lambda wait_s: meet_in_grid(mpu, wait_s), timeout_s, transport)

    @staticmethod
    def _of(meet: Callable[[float], Meeting], timeout_s: float | None, transport: str) -> Group:
        check_transport(transport)
        return Group._between(meet(resolve_timeout(timeout_s)), transport)

    @staticmethod
    def _between(meeting: Meeting, transport: str) -> Group:
        """The group of ranks that have met, who tell each other where they are. Collective."""
        channel, replicas = meeting.channel, None
        if meeting.replicas is not None:
            replicas = Group._between(meeting.replicas, transport)
        here = Member.here(channel.rank).as_json()
        members = [Member.from_json(value) for value in channel.exchange(here)]
        return Group(
            channel, members, launcher=meeting.launcher, transport=transport, replicas=replicas
        )

    # ---- calls between the ranks ----

    def exchange(self, value: Any) -> list[Any]:
        """What every rank gave, by rank: a small value that JSON can carry (tuples come as lists).

        Raises:
            InvalidArgument: on all ranks, where one gave no value for JSON; names it.
        """
        return self._open().exchange(value)

    def barrier(self, timeout_s: float | None = None) -> None:
        """Returns when all ranks are here.

        Raises:
            TransportError: not within `timeout_s` (None: that of the group); names the missing.
        """
        wait_s = self.timeout_s if timeout_s is None else resolve_timeout(timeout_s)
        self._open().allgather(memoryview(b"?"), memoryview(bytearray(self.size)), wait_s)

    def transport(self) -> _core.Transport:
        """A way for bytes between the ranks, independent of all others that it gave out.

        Every call makes one; `transport_name` says which kind without making any.
        """
        return open_transport(self._open(), self.transport_name)

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
        """The ranks that train on the same batch: stages of a pipeline, parts of a tensor."""
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

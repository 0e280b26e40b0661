"""The ranks that share a buffer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from gear import _core
from gear.arguments import check_count
from gear.distributed.channels.base import Absence, Alone, Channel
from gear.distributed.channels.carried import TransportChannel
from gear.distributed.channels.transports import (
    check_transport,
    choose_transport,
    open_transport,
)
from gear.distributed.meeting.from_environment import (
    meet_by_environment,
    meet_by_horovod,
    meet_by_mpi,
)
from gear.distributed.meeting.from_torch import meet_along_mesh, meet_by_torch, meet_in_grid
from gear.distributed.meeting.meeting import Meeting, given_to_all
from gear.distributed.member import ROLES, Member
from gear.distributed.places import Places
from gear.distributed.same import check_same
from gear.distributed.timeout import resolve_timeout
from gear.distributed.waiting import Waiting
from gear.errors import InvalidArgument, TransportError
from gear.in_process import InProcess

log = logging.getLogger("gear")


class Group(InProcess):
    """This process's place among the ranks that share a buffer, and calls between them.

    A program makes one with `from_env` and gives it to `ReplayBuffer`:

        group = gear.Group.from_env()
        buffer = gear.ReplayBuffer(schema, capacity, group=group)

    `exchange`, `barrier`, `transport` and every way of making a group are collective: all ranks
    make the same calls in the same order. One thread at a time may use a group, with the buffers
    and loaders over it; a call during another thread's raises InvalidArgument.

    None of them waits longer than `timeout_s`. After that time it raises TransportError, which
    names the missing ranks. Ctrl-C ends the wait within half a second. A rank that is interrupted,
    or that an exception ends, tells the others: their calls raise TransportError with its words at
    once. Ranks in different calls are told which. After a TransportError the group cannot be used
    again. In a forked child of a rank every call raises InvalidArgument.

    Attributes:
        rank, size: this rank, and the number of ranks.
        nodes: the node of every rank, numbered 0, 1, ... by first rank. Two ranks are on one node
            if they can map each other's memory, or if ``GEAR_NODE=name`` says so.
        node, num_nodes, local_rank, local_size: from `nodes`, of this rank's node.
        timeout_s: longest wait of every collective call of the group and its transports. By default
            ``GEAR_TIMEOUT_S``, else 300.
        transport_name: what carries bytes between the ranks: ``"shared_memory"``, ``"mpi"``,
            ``"libfabric"``, ``"group"``, ``"loopback"`` (within a process), or ``"verbs"`` or
            ``"fabric"``: these two read rows, and messages carry the rest.
        transport_reason: why it was taken, in words.
        role: ``"train"``, or ``"store"`` for a rank that holds steps and draws none.
        stores: the ranks with role ``"store"``. Where there are any, the ranks that train pull:
            ``buffer.loader(remote="pull")``.
        launcher: ``"single"``, ``"torchrun"``, ``"srun"``, ``"mpirun"``, ``"horovodrun"``,
            ``"environment"`` (variables set by hand or another program) or ``"loopback"``.
        replicas: the ranks of other groups that train on the same batches as this one; see
            `from_mesh`. Without such ranks, a group of this rank alone.
    """

    _instead = "make a group in each process, as with Group.from_env()"

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
        self.role = self.members[self.rank].role
        self.stores = tuple(one.rank for one in self.members if one.role == "store")
        self._choice = choose_transport(channel, places, launcher, transport)
        self.transport_name, self.transport_reason = self._choice.name, self._choice.why
        if self.rank == 0 and self.size > 1:
            log.info(
                "[transport] bytes between ranks go by %s: %s",
                self.transport_name,
                self.transport_reason,
            )

    # ---- ways to make one ----

    @staticmethod
    def single() -> Group:
        """This process alone."""
        return Group(Alone(resolve_timeout(None)), [Member.here(0)], launcher="single")

    @staticmethod
    def from_env(
        *, timeout_s: float | None = None, transport: str = "auto", role: str = "train"
    ) -> Group:
        """The group of all processes that the launcher started.

        It takes an initialised torch.distributed, Horovod or mpi4py as it is. Otherwise it reads
        the environment of torchrun; horovodrun; mpirun and other starters of MPI (ranks meet by
        mpi4py if installed, else by the MPI that GEAR was built with, else at ``MASTER_ADDR``);
        srun (ranks meet on the first host of the step); or ``RANK``, ``WORLD_SIZE``,
        ``MASTER_ADDR``, ``MASTER_PORT`` set by hand.
        Without any of these, the group is this process alone. The logger ``gear`` says at level
        debug what it found.

        It does not initialise torch.distributed; you may do so afterwards, at the same address.

        Args:
            timeout_s: see the class.
            transport: how the ranks' bytes travel: ``"shared_memory"`` (one host), ``"mpi"`` (in
                builds with MPI), ``"libfabric"`` (ranks that GEAR's MPI does not connect),
                ``"group"`` (torch's gloo; where GEAR's MPI connects the ranks, that), ``"auto"``:
                the first of these on one node. Beside it, ``"verbs"``: ranks read rows that they
                cannot map by RDMA (InfiniBand, RoCE), and ``"fabric"``: the same through libfabric
                (Slingshot, EFA, Omni-Path, TCP). Over several nodes ``"auto"`` takes the fastest
                of all that every rank has, by a first exchange of rows.
            role: ``"store"`` for a rank that holds steps in its memory, fills them or lets others
                fill them, and neither trains nor draws: for nodes with memory and no GPU. Each rank
                says its own; one at least is ``"train"``. A store's buffers publish, and it stays
                until the others need it no more: ``group.barrier(timeout_s=...)``, on all ranks.

        Each rank has one place at ``MASTER_ADDR:MASTER_PORT``. Whoever comes for a place that is
        taken, or from a run that its launcher (Slurm, torchrun, MPI, ``GEAR_RUN_ID``) calls by
        another name, is refused: the address belongs to another run.

        Raises:
            InvalidArgument: a variable is missing or wrong (the message names it), nothing that
                is installed can connect the ranks, they cannot use the transport, their arguments
                differ, or the address belongs to another run.
            TransportError: ranks did not come within `timeout_s`; the message names them.
        """
        return Group._of(meet_by_environment, timeout_s, transport, role)

    @staticmethod
    def loopback(
        size: int,
        *,
        ranks_per_node: int | None = None,
        timeout_s: float | None = None,
        stores: Sequence[int] = (),
    ) -> list[Group]:
        """One group for each of `size` ranks that are threads of this process.

        Args:
            ranks_per_node: emulates nodes with this many ranks each; None: one node.
            stores: the ranks with role ``"store"``.
        """
        size = check_count("[group] size", size)
        per_node = check_count("[group] ranks_per_node", ranks_per_node or size)
        wait_s = resolve_timeout(timeout_s)
        members = [
            Member.here(rank, f"node {rank // per_node}", ROLES[rank in stores])
            for rank in range(size)
        ]
        _check_roles(members)
        failures = [_core.Failure() for _ in range(size)]
        transports = _core.loopback_transports(size, wait_s, failures)
        return [
            Group(TransportChannel(transport, members, failure), members, launcher="loopback")
            for transport, failure in zip(transports, failures, strict=True)
        ]

    @classmethod
    def from_torch(
        cls,
        process_group: Any = None,
        *,
        timeout_s: float | None = None,
        transport: str = "auto",
        role: str = "train",
    ) -> Group:
        """The ranks of a process group of torch.distributed (None: all), of any backend.

        GEAR does not move bytes through that process group. `role` as in `from_env`.
        """
        return Group._of(
            lambda *given: meet_by_torch(process_group, *given), timeout_s, transport, role
        )

    @classmethod
    def from_mpi(
        cls,
        communicator: Any = None,
        *,
        timeout_s: float | None = None,
        transport: str = "auto",
        role: str = "train",
    ) -> Group:
        """The ranks of an mpi4py communicator (None: ``MPI.COMM_WORLD``). `role` as in
        `from_env`."""
        return Group._of(
            lambda *given: meet_by_mpi(communicator, *given), timeout_s, transport, role
        )

    @classmethod
    def from_horovod(
        cls, process_set: Any = None, *, timeout_s: float | None = None, transport: str = "auto"
    ) -> Group:
        """The ranks of a Horovod process set (None: all). ``horovod.torch`` must be initialised."""
        return Group._of(lambda *given: meet_by_horovod(process_set, *given), timeout_s, transport)

    @classmethod
    def from_mesh(
        cls,
        mesh: Any,
        dim: str = "dp",
        *,
        timeout_s: float | None = None,
        transport: str = "auto",
    ) -> Group:
        """The ranks along axis `dim` of a DeviceMesh, which train on different batches.

        Give the whole mesh, not a slice. Ranks that differ only in the other axes (tensor,
        pipeline, context parallel) form `replicas`, a group of their own. There are two ways to
        give replicas the same batch:

        - Rank 0 of the replicas makes buffer and loader, and all replicas make a
          `gear.distributed.SharedLoader`, which gives each rank the outputs that it asks for.
        - Every rank makes a buffer of this group, fills it with the same steps and draws with the
          same seed. The batches are equal, and every rank has a copy of the experience.
        """
        return Group._of(lambda *given: meet_along_mesh(mesh, dim, *given), timeout_s, transport)

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
        return Group._of(lambda *given: meet_in_grid(mpu, *given), timeout_s, transport)

    @staticmethod
    def _of(
        meet: Callable[[float, str], Meeting],
        timeout_s: float | None,
        transport: str,
        role: str = "train",
    ) -> Group:
        check_transport(transport)
        if role not in ROLES:
            raise InvalidArgument(f"[group] role {role!r}: {' and '.join(ROLES)} are allowed")
        meeting = meet(resolve_timeout(timeout_s), transport)
        with meeting.channel.doing("Group"):
            return Group._between(meeting, transport, role)

    @staticmethod
    def _between(meeting: Meeting, transport: str, role: str = "train") -> Group:
        """The group of ranks that have met, who tell each other where they are. Collective."""
        channel, replicas = meeting.channel, None
        if meeting.replicas is not None:
            replicas = Group._between(meeting.replicas, transport)
        here = Member.here(channel.rank, role=role).as_json()
        own = given_to_all(transport, channel.timeout_s)
        wait: AbstractContextManager[object] = nullcontext()
        if channel.size > 1:
            wait = Waiting.of_connected(channel.rank, channel.size, channel.timeout_s)
        with wait:
            told = channel.exchange([here, own])
        members = [Member.from_json(value) for value, _ in told]
        channel.members = tuple(members)
        check_same("[group] Group", [given for _, given in told])
        _check_roles(members)
        return Group(
            channel, members, launcher=meeting.launcher, transport=transport, replicas=replicas
        )

    # ---- calls between the ranks ----

    def exchange(self, value: Any) -> list[Any]:
        """Returns the values of all ranks, by rank. They must fit into JSON, the keys of dicts be
        strings; tuples become lists.

        Raises:
            InvalidArgument: JSON cannot hold the value of some rank; all ranks raise and name it.
        """
        return self._open().exchange(value)

    def barrier(self, timeout_s: float | None = None, *, waited_s: float = 0.0) -> None:
        """Returns when all ranks have called it.

        Args:
            waited_s: how long they were waited for before, which the message counts.

        Raises:
            TransportError: ranks did not come within `timeout_s` (None: that of the group); the
                message names them.
        """
        wait_s = self.timeout_s if timeout_s is None else resolve_timeout(timeout_s)
        self._open().barrier(wait_s, waited_s)

    def transport(self) -> _core.Transport:
        """Makes a transport between the ranks, independent of all others.

        Every call makes another; `transport_name` says which kind without making one.
        """
        channel = self._open()
        with channel.doing("Group.transport"):
            return open_transport(channel, self._choice)

    def wrap_transports(self, around: Callable[[_core.Transport], _core.Transport]) -> None:
        """Has the transports that this group makes from here on, those of buffers among them, be
        what `around` makes of each. As `gear.emu.emulate` does, which counts what goes by them."""
        self._choice = replace(self._choice, around=around)

    def doing(self, what: str) -> AbstractContextManager[None]:
        """Around what one call of the user does with other ranks; see `Channel.doing`."""
        return nullcontext() if self.size == 1 else self._open().doing(what)

    def fail(self, what: str) -> None:
        """Ends the group on all ranks: their calls raise TransportError, which says what happened
        to this one. The first words count; any thread."""
        channel = self._open()
        if self.size > 1:
            channel.fail(f"{self.members[self.rank]} {what}")

    def look(self) -> None:
        """Raises TransportError where another rank has told that the group has ended; asks at most
        every half second, and waits for nobody. For the time of a wait that is not the group's."""
        if self.size > 1:
            self._open().look()

    def pass_on(self, error: BaseException, what: str, *, alone: bool = False) -> None:
        """Tells the other ranks what ended a wait of this one in the core, in its call `what`.

        alone: they wait for this rank, which cannot go on.

        Raises:
            TransportError: `error` is one, which then names ranks as the group knows them.
        """
        if self._channel is not None:
            self._channel.pass_on(error, what, alone=alone)

    def channel(self) -> Channel:
        """As `transport`, for Python bytes: over what connects the ranks."""
        return self._open().duplicate()

    def missing(self, wait_s: float = 2.0) -> list[int]:
        """Returns the ranks that are gone, as far as this rank can tell.

        For ranks of this host it looks at their processes, at once. Where that does not tell, as
        for ranks of other hosts and those that hang, the remaining ranks make a roll call together
        after a failure: who does not answer within `wait_s` is missing. With `wait_s` 0, and among
        threads and ranks of one node that met by Horovod or by an mpi4py of another MPI than
        GEAR's, there is no roll call.
        """
        channel = self._open()
        gone = channel.ended(range(self.size))
        # Nodes may be of several hosts, and a host of several nodes: GEAR_NODE names them.
        spread = self.num_nodes > 1 or len({member.host for member in self.members}) > 1
        if wait_s > 0 and (spread or not gone):
            gone |= set(range(self.size)) - channel.answered(wait_s)
        return sorted(gone)

    def lost(self, error: BaseException, wait_s: float = 2.0) -> TransportError:
        """Returns the error to raise after a collective call of another library failed.

        It names the ranks that are `missing`, or else repeats what `error` says.
        """
        channel = self._open()
        if channel.failed:
            return TransportError(channel.failed)
        missing = set(self.missing(wait_s))
        if missing:
            ended = channel.ended(missing)
            try:
                late = tuple(missing - ended)
                absence = channel.agreed(Absence(tuple(ended), late, timeout_s=wait_s))
            except TransportError as told:
                return told
            return channel.failure_of(absence, wait_s)
        said = next(iter(str(error).splitlines()), "") or type(error).__name__
        return TransportError(
            f"[transport] {said}: no rank seems to be missing; look at the output of all ranks"
        )

    @property
    def replicas(self) -> Group:
        """Ranks that train on the same batch: stages of a pipeline, parts of a tensor."""
        if self._replicas is None:
            self._replicas = Group.single()
        return self._replicas

    def close(self) -> None:
        """Closes this group's own part in the connections between the ranks: channels, transports
        and others' process groups stay open."""
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


def _check_roles(members: Sequence[Member]) -> None:
    """Refuses, on all ranks alike, a group in which nobody draws."""
    if all(one.role == "store" for one in members):
        raise InvalidArgument(
            f"[group] role 'store' on all {len(members)} rank(s): nobody draws from what they "
            "hold; give one at least role='train'"
        )

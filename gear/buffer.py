"""The replay buffer: it stores experience and makes writers and loaders."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, Literal, cast, overload

import numpy as np
import numpy.typing as npt

from gear import _core, checkpoint
from gear.arguments import check_count, check_flag, check_path, check_text
from gear.arrays import as_ids, set_priorities
from gear.batch import Batch
from gear.distributed import Group
from gear.distributed.region import checked_place
from gear.distributed.timeout import TIMEOUT_S
from gear.distributed.together import alike, ending_the_group, together
from gear.episode import Episode
from gear.errors import InvalidArgument, TransportError
from gear.frameworks import tensor_maker
from gear.in_process import InProcess
from gear.loader import Loader
from gear.log import connect_core_log
from gear.rate_limit import RateLimit
from gear.samplers import Sampler, Uniform
from gear.schema import Schema
from gear.statistics import BufferStats
from gear.vector_writer import DEFAULT_FINAL, VectorWriter
from gear.window import Outputs, output_numbers, output_tuples
from gear.writer import Writer

LEAST_PAGE_STEPS, MOST_PAGE_STEPS = 16, 64
SMALL_CAPACITY = 4096  # up to here pages of one step: nothing is empty behind short episodes
PAGE_BYTES = 64 << 10
NUM_PAGES = 1024


class ReplayBuffer(InProcess):
    """The experience of one run, in pages of ``page_steps`` consecutive steps of one episode.

    Any number of threads may write (one `Writer` each) and read (one `Loader` each); over a group
    of several ranks, one thread makes the loaders and draws from all of them.

    A forked child (a worker of a torch ``DataLoader``, say) has the buffer as it was when it was
    forked. What would change it raises InvalidArgument there: `writer`, `update` and `save`. What
    counts and describes it may be called (`len`, `stats`, `episodes`, `priorities`; where a GPU
    keeps priorities, `len` alone). `loader` and `collect` may be called on tier ``"host"``, and
    `loader` only without ``max_times_sampled`` and ``rate_limit``. `close` and the child's end
    leave the parent's memory alone. An actor in a child process makes a buffer of its own, or sends
    its steps to the process that has the buffer.

    Args:
        schema: the columns of a step.
        capacity: steps that the buffer has room for, rounded up to whole pages; over a group, the
            room of each rank. The last page of an episode may stay partly empty.
        tier: ``"host"``; ``"shared"`` (named POSIX shared memory, mode 0600); ``"pinned"`` (either
            of these, page-locked, so that GPUs read it over PCIe); ``"device"`` or ``"device:1"``
            (memory of the current GPU, or of that one).
        name: name of the shared region, for ``tier="shared"``, and for ``tier="pinned"`` if other
            processes map it; None: GEAR makes one up, and `name` tells it. Over a group, GEAR
            appends ``-rank2``.
        page_steps: steps in a page. None: 64, or 32 or 16, so that a page holds at most 64 KiB and
            the buffer 1024 pages or more (over a group, that of least capacity); 1 for a capacity
            of at most 4096. Long pages make batches of sequences faster; short ones leave less room
            empty behind short episodes, of which GEAR warns once where it is most of the capacity.
            If all episodes have one length, a page for each is the fastest.
        evict: which page goes when none is free: ``"fifo"`` that of the oldest step; ``"lifo"`` the
            first one of the newest ended episode; ``"lowest_priority"`` that of the ended episode
            of lowest priority. An open episode keeps its last page.
        max_times_sampled: how often a step may be delivered. An ended episode is freed when its
            last was. What a loader drew ahead and did not deliver, it gives back when it is closed.
            None: no limit.
        rate_limit: samples per insert; None: no limit.
        publish: over a group: True lets ranks pull, with ``loader(remote="pull")``. Each rank then
            publishes where its steps lie, in 97 bytes of shared memory for each page. It needs
            host memory that the ranks of a node map (tier ``"shared"`` or ``"pinned"``) or read
            one-sided (transport ``"verbs"`` or ``"fabric"``). Where ``group.stores`` names any, the
            buffer always does.
        group: the ranks that share the buffer. With several ranks, the call is collective, and all
            arguments but `capacity` are the same on every rank. All ranks of a node read tiers
            ``"shared"`` and ``"pinned"`` in place, and their GPUs tier ``"device"``; rows of tier
            ``"host"`` are sent to the rank that needs them.

    Raises:
        InvalidArgument: a value that is not allowed, a capacity below one page, a shared name that
            a live process uses, a tier that this build lacks.
        OutOfMemory: the tier has no room for the buffer, or the limit on locked memory
            (``ulimit -l``) is too small for ``"pinned"``.
        CudaError: there is no GPU, or not the one named.
    """

    _instead = (
        "keep what it holds with save(path) and ReplayBuffer.load(path), or let the processes "
        "share it as a Group"
    )

    def __init__(
        self,
        schema: Schema,
        capacity: int,
        *,
        tier: str = "host",
        name: str | None = None,
        page_steps: int | None = None,
        evict: str = "fifo",
        max_times_sampled: int | None = None,
        rate_limit: RateLimit | None = None,
        publish: bool = False,
        group: Group | None = None,
    ) -> None:
        connect_core_log()
        group = _checked_group(group)

        def check() -> dict[str, Any]:
            if not isinstance(schema, Schema):
                raise InvalidArgument(f"[buffer] schema {schema!r}: give a gear.Schema")
            if not isinstance(rate_limit, RateLimit | None):
                raise InvalidArgument(f"[buffer] rate_limit {rate_limit!r}: give a gear.RateLimit")
            most, steps = max_times_sampled, page_steps
            if most is not None:
                most = check_count("[buffer] max_times_sampled", most, most=65535)
            if steps is not None:
                steps = check_count("[buffer] page_steps", steps)
            return {
                "schema": [repr(column) for column in schema.as_tuples()],
                # Which GPU of its node it is on is each rank's own: "device:1".
                "tier": check_text("[buffer] tier", tier).partition(":")[0],
                "name": None if name is None else check_text("[buffer] name", name),
                "page_steps": steps,
                "evict": check_text("[buffer] evict", evict),
                "max_times_sampled": most,
                "rate_limit": None if rate_limit is None else list(rate_limit.as_tuple()),
                "publish": check_flag("[buffer] publish", publish),
                "[capacity]": check_count("[buffer] capacity", capacity),
                "[made up]": _core.made_up_name(),
            }

        with group.doing("ReplayBuffer"):
            told = alike(group, check, "[buffer] ReplayBuffer")
            made_up = told[0]["[made up]"]
            if page_steps is None:
                least = min(int(one["[capacity]"]) for one in told)
                page_steps = default_page_steps(schema.step_bytes, least)

            place = checked_place(tier, name, group, made_up)

            def make_shard() -> _core.Shard:
                return _core.Shard(
                    schema.as_tuples(),
                    capacity=capacity,
                    page_steps=page_steps,
                    evict=evict,
                    max_times_sampled=max_times_sampled or 0,
                    owner=group.rank,
                    rate_limit=None if rate_limit is None else rate_limit.as_tuple(),
                    **place,
                )

            shard = together(group, make_shard, "ReplayBuffer")
            self._set(shard, schema, place, group, publish, hide_name=name is None)

    def _set(
        self,
        shard: _core.Shard,
        schema: Schema,
        place: dict[str, str],
        group: Group,
        publish: bool,
        *,
        hide_name: bool,
    ) -> None:
        self._shard: _core.Shard | None = shard
        self._schema = schema
        self._tier = place["tier"]
        self._name = place["name"] or None
        self._group = group
        self._peers: _core.Peers | None = None
        if group.size > 1:
            with ending_the_group(group, "could not make its part of a ReplayBuffer"):
                self._peers = _core.Peers(
                    shard, group.transport(), list(group.nodes), hide_names=hide_name
                )
                if publish or group.stores:
                    self._peers.publish()

    def _open(self) -> _core.Shard:
        if self._shard is None:
            raise InvalidArgument("[buffer] this buffer is closed: make another, or load one")
        return self._shard

    def _open_peers(self) -> _core.Peers:
        self._open()
        assert self._peers is not None
        return self._peers

    # ---- what it is ----

    @property
    def schema(self) -> Schema:
        """The columns of a step."""
        return self._schema

    @property
    def group(self) -> Group:
        """The ranks that share the buffer."""
        return self._group

    @property
    def tier(self) -> str:
        """The memory of this rank's steps, as given: ``host``, ``shared``, ``pinned``, ``device``
        or, with the number of the GPU, ``device:1``."""
        return self._tier

    @property
    def name(self) -> str | None:
        """The name of this rank's shared memory, ``/dev/shm/gear-NAME``; None: it has none.

        Over a group, GEAR removes a made-up name from there once all ranks of the node have mapped
        the memory.
        """
        return self._name

    @property
    def capacity(self) -> int:
        """Steps that the buffer has room for, in whole pages."""
        return self._open().capacity

    @property
    def page_steps(self) -> int:
        """Steps a page."""
        return self._open().page_steps

    @property
    def num_episodes(self) -> int:
        """Episodes with stored steps in this rank's shard, open ones included."""
        return self._open().num_episodes

    @property
    def nbytes(self) -> int:
        """Bytes of memory held: pages, index and trees."""
        return self._open().num_bytes

    def __len__(self) -> int:
        """Steps stored."""
        return self._open().num_steps

    def __bool__(self) -> bool:
        """True, empty or not: ``buffer or default`` is the buffer."""
        return True

    def __repr__(self) -> str:
        if self._shard is None:
            return "ReplayBuffer(closed)"
        return (
            f"ReplayBuffer({len(self)} of {self.capacity} steps, {self.num_episodes} episodes, "
            f"tier={self._tier!r})"
        )

    def stats(self) -> BufferStats:
        """Counts. Waits for priorities on a GPU; `len`, `num_episodes` and `nbytes` do not."""
        return cast(BufferStats, self._open().stats())

    def episodes(self) -> list[Episode]:
        """The stored episodes in creation order."""
        return [Episode(*row) for row in self._open().episodes()]

    # ---- writing ----

    @overload
    def writer(
        self, *, episode: int | None = None, timeout_s: float | None = TIMEOUT_S
    ) -> Writer: ...

    @overload
    def writer(
        self,
        envs: Any,
        *,
        autoreset: Any = None,
        final: str | Sequence[str] | None = "obs",
        episode: Sequence[int | None] | None = None,
        ended: Sequence[str | None] | None = None,
        timeout_s: float | None = TIMEOUT_S,
    ) -> VectorWriter: ...

    def writer(
        self,
        envs: Any = None,
        *,
        autoreset: Any = None,
        final: str | Sequence[str] | None = "obs",
        episode: Any = None,
        ended: Sequence[str | None] | None = None,
        timeout_s: float | None = TIMEOUT_S,
    ) -> Writer | VectorWriter:
        """Makes a writer, for one thread: of one episode at a time, or of several environments.

        Args:
            envs: None: the steps come one by one, and the caller ends episodes. A vector
                environment (``num_envs``, ``metadata["autoreset_mode"]``), or how many environments
                there are: a `VectorWriter`.
            autoreset: how they reset, where ``envs`` does not say it: ``"next_step"``,
                ``"same_step"`` or ``"disabled"``; see `VectorWriter`.
            final: of ``"next_step"``: the columns that a closing step has, or None for no closing
                steps.
            episode: uid of an open episode without a writer (after `load`) to continue; of several
                environments one for each, or None.
            ended: with ``episode``, of ``"next_step"``: what ``writer.ended`` was, of the writer
                that had these episodes, when the buffer was saved.
            timeout_s: longest wait for the rate limit, then TimeoutError; None: no end.

        Raises:
            InvalidArgument: a value that is not allowed; no such episode is open without a writer;
                so many environments that each open episode's page would leave none free; or this is
                a forked child of the process that made the buffer.
        """
        if envs is None and autoreset is None:
            if not (isinstance(final, str) and final == DEFAULT_FINAL) or ended is not None:
                raise InvalidArgument(
                    f"[writer] final {final!r}, ended {ended!r}: of a writer of several "
                    "environments; one of one episode at a time is told by end_episode(final={...})"
                )
            return Writer(self._open(), episode, timeout_s)
        return VectorWriter(
            self._open(),
            self.schema,
            envs,
            autoreset=autoreset,
            final=final,
            episodes=episode,
            ended=ended,
            timeout_s=timeout_s,
        )

    def update(self, ids: Any, priorities: Any) -> int | None:
        """Sets the priorities of steps (or, with ids of ``unit="episode"``, of episodes).

        Args:
            ids: int64 ``[B]`` and no other type, as in ``batch.ids``.
            priorities: ``[B]``, finite and 0 or more.

        Returns:
            How many priorities were set. GEAR ignores steps that have been evicted, and counts
            them in ``stats()["stale_updates"]``. None if both arguments are torch tensors or CuPy
            arrays on one GPU: a count would have to wait for the GPU, and this call does not once
            a loader there selects by priority. None over a group of several ranks: the priorities
            travel to the steps' owners with the next ``next(loader)`` of a loader without
            ``remote="pull"``, or with `save`, and the owners set them before that draw, in the
            order of the ranks. Between the GPUs of one node they travel from GPU to GPU, where a
            loader's draws are made there.

        Raises:
            InvalidArgument: a wrong priority or id; nothing is set. A GPU finds it later: then the
                next call of the buffer or of its loaders there raises it. Or some rank has role
                ``"store"``. Or this is a forked child of the process that made the buffer.
        """
        shard = self._open()
        if self._group.stores:
            raise InvalidArgument(
                f"[buffer] update in a group whose ranks {list(self._group.stores)} have role "
                "'store': pulls are uniform, and nothing carries priorities to the owners of steps"
            )
        to = shard if self._peers is None else self._peers
        return set_priorities(to, ids, priorities)

    def priorities(self, ids: Any) -> npt.NDArray[np.float32]:
        """The priorities of stored steps, float32 ``[B]``."""
        return self._open().priorities(as_ids(ids))

    # ---- reading ----

    def loader(
        self,
        batch_size: int,
        *,
        sampler: Sampler | None = None,
        outputs: Outputs | None = None,
        packed: bool = False,
        device: str = "cpu",
        path: str = "auto",
        framework: str | None = None,
        prefetch: int = 2,
        seed: int | None = None,
        timeout_s: float | None = TIMEOUT_S,
        locality: str = "first",
        nccl: bool = False,
        remote: str | None = None,
    ) -> Loader:
        """Makes a loader: batches of ``batch_size`` items that a sampler draws.

        A step of an open episode is offered to the loader once all its windows are complete for
        that step.

        Over a group, each rank gets ``batch_size`` items (of an epoch's last batch: its share), and
        all ranks together draw from all shards as if they were one buffer. Making the loader and
        ``next`` are collective: every rank makes the same loaders and calls them in the same order.
        All arguments but `device`, `path` and `framework` are the same on every rank.

        Args:
            batch_size: items in a batch; over a group, in each rank's batch.
            sampler: `Uniform` by default.
            outputs: what to deliver by name: `Step`, `Window`, `Terminated`, `IsLast`, `StepIndex`;
                None: every column of the anchor's step.
            packed: True concatenates steps and gives ``cu_seqlens``; False pads.
            device: ``"cpu"``, ``"cuda"`` (the current GPU) or ``"cuda:1"``. A GPU also selects, if
                the sampler has a form for GPUs. Tensors are ordered with the stream that is current
                when you first ask for them. No call waits for the GPU, except for packed batches,
                whose number of rows the GPU computes.
            path: how bytes come to a GPU from host memory. ``"zero_copy"``: the GPU reads them in
                place (``tier="pinned"``). ``"staged"``: host threads gather and copy them.
                ``"auto"``: the faster of the two on this machine.
            framework: ``"torch"``, ``"numpy"``, ``"jax"`` or ``"cupy"``; None: torch if installed,
                else NumPy (on a GPU: CuPy, JAX). NumPy gets bfloat16 as uint16 bits. JAX turns 64
                bits into 32 unless ``jax_enable_x64`` is set; its ids are NumPy's int64.
            prefetch: how many batches are in flight behind the delivered one, at most 1024.
            seed: seed of the sampler's draws. None: the next one of the buffer, so that no two
                loaders draw alike, and a program that is run again draws the same; `Loader.seed`
                says it. A buffer's first such loader has seed 0. `save` keeps how many it gave.
            timeout_s: longest wait of ``next`` for the rate limit, then TimeoutError; None: no end.
                After 10 s the logger ``gear`` warns, with the counts.
            locality: over a group. ``"first"``: ranks keep the draws from their own shards up to
                their share, and only the surplus moves, inside the node if possible. ``"off"``:
                the number of a draw decides which rank gets it.
            nccl: over a group: True sends rows between GPUs of different nodes by NCCL; False
                sends them through the host.
            remote: over a group whose buffer has ``publish=True``. ``"pull"``: this rank draws
                alone, from the steps that all ranks have published, and reads their rows while
                their owners compute, sleep or are stopped. No call of the loader is collective, and
                other arguments may differ from those of other ranks, who need no loader. Draws are
                by `Uniform` over steps; which they are depends on when they are made, and the
                `seed` gives each rank others. None: all ranks draw together.

        Raises:
            InvalidArgument: the message says which argument, and what is allowed.
            TransportError: a rank did not take part within the group's time-out; the message names
                it.
            OutOfMemory: the GPU has no room for ``prefetch + 2`` batches.
            CudaError: there is no such GPU.
        """
        return Loader(
            self._open,
            self._schema,
            batch_size=batch_size,
            sampler=Uniform() if sampler is None else sampler,
            outputs=outputs,
            packed=packed,
            device=device,
            path=path,
            framework=framework,
            prefetch=prefetch,
            seed=seed,
            timeout_s=timeout_s,
            group=self._group,
            peers=self._peers,
            locality=locality,
            nccl=nccl,
            remote=remote,
        )

    def collect(
        self,
        ids: Any,
        outputs: Outputs | None = None,
        *,
        packed: bool = False,
        device: str = "cpu",
        framework: str | None = None,
    ) -> Batch:
        """Delivers the named steps, in this order, at once; other arguments as for `loader`.

        Raises:
            InvalidArgument: no id is given, one is not of this buffer, or its step has been
                evicted.
        """
        tuples = output_tuples(outputs, self._schema)
        gpu = _core.parse_device(str(device))
        make = tensor_maker(framework, gpu)
        wanted = as_ids(ids)
        if len(wanted) == 0:
            raise InvalidArgument("[buffer] collect: ids are empty: give one or more")
        core = _core.collect_ids(self._open(), wanted, tuples, packed, gpu)
        return Batch(core, output_numbers(tuples), make)

    # ---- keeping ----

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint into the directory ``path`` (docs/format.md), atomically.

        It makes the folders above ``path`` that are missing. The new checkpoint replaces an older
        one when it is complete. If saving fails, the older one stays.

        Over a group, the call is collective: every rank writes its part,
        ``path/rank-00002-of-00004``. The checkpoint is complete when the call returns on every
        rank. It changes nothing: priorities that the owners hear of with the next draw wait for it,
        and are saved as what waits.

        Raises:
            IoError: the file system refused (full, read-only); says how much was written.
            InvalidArgument: ``path`` holds something else than a checkpoint, or is no path; or this
                is a forked child of the process that made the buffer. Or a signal handler or
                finaliser calls it in the middle of a ``next`` over several ranks whose GPUs hold
                newer priorities; call it after that ``next``.
        """
        if self._group.size == 1:
            checkpoint.save(self._open(), path)
        else:
            with self._group.doing("ReplayBuffer.save"):
                checkpoint.save_rank(self._open_peers, path, self._group)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        tier: str = "host",
        name: str | None = None,
        rate_limit: RateLimit | Literal["saved"] | None = "saved",
        publish: bool = False,
        group: Group | None = None,
    ) -> ReplayBuffer:
        """Loads a saved buffer, with its ids, priorities and counts.

        Open episodes stay open: ``writer(episode=uid)`` continues one. Over a group, the call is
        collective.

        Another number of ranks than saved the buffer may load it, R say. They share out what was
        saved, whole episodes each, and the capacity: all steps and priorities are there, and draws
        have the same distribution (docs/format.md says where they are the same draws). Ids and
        uids are new ones. uids go on from 1 over all ranks, in the order of the former ones and,
        where these are equal, of the ranks that saved them; an open episode of rank k comes to rank
        k modulo R.

        Args:
            path: the directory that was saved to.
            tier: as of the constructor, like `name`, `publish` and `group`; none is saved.
            rate_limit: ``"saved"``: the limit that was saved, with its counts. None: no limit.
                Another one counts from here on, with the steps that were ever stored for its
                ``min_steps``; over a group, those of each rank.

        Raises:
            InvalidArgument: a value that is not allowed, the arguments differ among ranks, or parts
                of several saves are mixed.
            CorruptData: it is torn, truncated, foreign or of a newer format; says what and where.
        """
        connect_core_log()
        group = _checked_group(group)

        def check() -> dict[str, Any]:
            return {
                "path": check_path("[checkpoint] path", path),
                # Which GPU of its node it is on is each rank's own: "device:1".
                "tier": check_text("[buffer] tier", tier).partition(":")[0],
                "name": None if name is None else check_text("[buffer] name", name),
                "rate_limit": _limit_of(rate_limit),
                "publish": check_flag("[buffer] publish", publish),
                "[made up]": _core.made_up_name(),
            }

        with group.doing("ReplayBuffer.load"):
            made_up = alike(group, check, "[checkpoint] ReplayBuffer.load")[0]["[made up]"]
            place = checked_place(tier, name, group, made_up)
            shard, kept = checkpoint.load_rank(path, group, place)
            limit = _limit_of(rate_limit)
            if limit != "saved":
                shard.set_rate_limit(limit)
            schema = Schema.stored(shard.columns)
            buffer = cls.__new__(cls)
            buffer._set(shard, schema, place, group, publish, hide_name=name is None)
            if kept and buffer._peers is not None:
                buffer._peers.update(*kept)
        return buffer

    def close(self) -> None:
        """Frees the memory as soon as writers and loaders are closed too.

        In a forked child it frees nothing: the child keeps its copy until it ends.

        Over a group, the call is collective on tier ``"device"``, because a GPU may free its memory
        only when no other GPU reads it.
        """
        shared = self._peers is not None and self._tier.startswith("device")
        shared = shared and not self._open().forked
        self._peers = None
        if shared:
            try:
                self._group.barrier()
            except TransportError as error:
                logging.getLogger("gear").warning(
                    "[buffer] a buffer was closed without its other ranks: %s", error
                )
        self._shard = None

    def __enter__(self) -> ReplayBuffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def default_page_steps(step_bytes: int, capacity: int) -> int:
    """Steps in a page of a buffer that names none: a power of two.

    The last page of an episode is half empty on average, and an eviction takes a page: hence the
    many pages of few steps. A window costs a copy a page and column: hence not fewer, unless the
    steps are so large that a copy of 16 is as fast.
    """
    if capacity <= SMALL_CAPACITY:
        return 1
    most = min(MOST_PAGE_STEPS, PAGE_BYTES // step_bytes, capacity // NUM_PAGES)
    return max(LEAST_PAGE_STEPS, 1 << most.bit_length() >> 1)


def _limit_of(
    rate_limit: RateLimit | Literal["saved"] | None,
) -> tuple[float, int, float] | Literal["saved"] | None:
    """What `ReplayBuffer.load` is given, as the core takes it."""
    if isinstance(rate_limit, RateLimit):
        return rate_limit.as_tuple()
    if rate_limit is None or rate_limit == "saved":
        return rate_limit
    raise InvalidArgument(
        f"[buffer] rate_limit {rate_limit!r}: give a gear.RateLimit, None for no limit, or 'saved' "
        "for that which was saved"
    )


def _checked_group(group: Group | None) -> Group:
    if not isinstance(group, Group | None):
        raise InvalidArgument(f"[buffer] group {group!r}: give a gear.Group")
    return Group.single() if group is None else group

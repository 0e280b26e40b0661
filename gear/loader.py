"""An iterator over batches, with the next ones in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from gear import _core
from gear.arguments import check_between, check_count, check_flag, check_text, check_timeout
from gear.batch import Batch
from gear.distributed import Group
from gear.distributed.process_life import closed_at_exit
from gear.distributed.together import alike, ending_the_group, together
from gear.errors import InvalidArgument
from gear.frameworks import tensor_maker
from gear.in_process import InProcess
from gear.loader_state import (
    STATE_VERSION,
    check_same_buffer,
    check_same_loader,
    checked_state,
    drawn_again,
    plain_state,
)
from gear.samplers import MOST_ALPHA, Sampler, Weighted
from gear.schema import Schema
from gear.seeds import nth_seed
from gear.statistics import LoaderStats
from gear.window import OUTPUT_FIELDS, Outputs, output_numbers, output_tuples


class Loader(InProcess, Iterator[Batch]):
    """Endless batches of a buffer; made by `ReplayBuffer.loader`.

    The loader draws batch k when you ask for batch ``k - prefetch``, and copies it in the
    background, by a thread or by a GPU (to host memory: less than 64 KiB at once). Draws have a
    fixed place in the sequence of appends, updates and ``next`` calls, so runs are reproducible, on
    every device and whatever the timing.

    What is drawn counts when it is delivered. `close`, the end of ``with``, and a loader that
    nobody holds any more give back what was drawn and not delivered: a buffer with
    ``max_times_sampled`` offers it again, and a rate limit forgets it.

    With `Sequential`, one iteration is one epoch; iterate again for the next. Only one thread at a
    time may use a loader.

    Over a group of several ranks ``next``, ``len``, `state_dict`, `load_state_dict` and `close` are
    collective, unless the loader pulls (``remote="pull"``): then nothing is.
    """

    _instead = (
        "keep its place with state_dict() and load_state_dict(), or make a loader in the process "
        "that draws"
    )

    def __init__(
        self,
        open_shard: Callable[[], _core.Shard],
        schema: Schema,
        *,
        batch_size: int,
        sampler: Sampler,
        outputs: Outputs | None,
        packed: bool,
        device: str,
        path: str,
        framework: str | None,
        prefetch: int,
        seed: int | None,
        timeout_s: float | None,
        group: Group,
        peers: _core.Peers | None,
        locality: str,
        nccl: bool,
        remote: str | None,
    ) -> None:
        pulls = remote is not None
        _check_role(group, pulls)  # before other ranks are waited for
        made: list[Callable[[int], _core.Collector]] = []

        def check() -> dict[str, Any]:
            shard = open_shard()
            if pulls:
                _check_pull(remote, peers)
            if not isinstance(sampler, Sampler) or type(sampler) is Sampler:
                raise InvalidArgument(
                    f"[sampler] sampler {sampler!r}: Uniform, Weighted, Sequential, Fifo, Lifo and "
                    "TopK of the package gear are allowed"
                )
            self._timeout_s = check_timeout("[loader]", timeout_s)
            tuples = output_tuples(outputs, schema)
            gpu = _core.parse_device(str(device))
            self._make = tensor_maker(framework, gpu)
            self._outputs = output_numbers(tuples)
            given = 0
            if seed is not None:
                given = check_count("[sampler] seed", seed, least=-(1 << 63), most=(1 << 64) - 1)
            self._beta = check_between("[sampler] beta", getattr(sampler, "beta", 0.0), most=1)
            size = self._batch_size = check_count("[loader] batch_size", batch_size)
            pack = check_flag("[loader] packed", packed)
            law = _law_of(sampler)
            fields: dict[str, Any] = {
                **law,
                "outputs": tuples,
                "batch_size": size,
                "packed": pack,
                "prefetch": check_count("[loader] prefetch", prefetch, least=0),
                "beta": self._beta,
                "device": gpu,
                "path": check_text("[loader] path", path),
                "locality": check_text("[loader] locality", locality),
                "nccl": check_flag("[loader] nccl", nccl),
                "timeout_s": self._timeout_s,
                "pull": pulls,
            }

            def options(seed: int) -> _core.LoaderOptions:
                return _core.LoaderOptions(shard, seed=seed & 0xFFFFFFFFFFFFFFFF, **fields)

            options(given)
            made.append(lambda seed: _core.Collector(shard, options(seed), peers))
            self._kind = {
                "version": STATE_VERSION,
                "schema": schema.hash,
                "sampler": law,
                "packed": pack,
                "outputs": [dict(zip(OUTPUT_FIELDS, one, strict=True)) for one in tuples],
            }
            self._shard: _core.Shard | None = shard
            number = shard.take_seed_number() if seed is None else 0
            return {
                "batch_size": size,
                "prefetch": fields["prefetch"],
                "packed": pack,
                "seed": None if seed is None else given,
                "[seed number]": number,
                "sampler": {**law, "beta": self._beta},
                "outputs": [repr(one) for one in tuples],
                "locality": locality,
                "nccl": nccl,
                "timeout_s": self._timeout_s,
                "remote": remote,
            }

        self._sampler = sampler
        self._own_seed = seed is None
        self._nccl, self._transport_name = nccl, group.transport_name
        if pulls:  # other ranks have no part in it
            group = Group.single()
        self._group = group
        self._core: _core.Collector | None = None
        with group.doing("ReplayBuffer.loader"):
            told = alike(group, check, "[loader] ReplayBuffer.loader")[0]
            self._make_core: Callable[[int], _core.Collector] | None = made[0]
            self._seed: int = told["seed"]
            if self._own_seed:
                self._seed = nth_seed(told["[seed number]"])
                assert self._shard is not None
                self._shard.pass_seed_numbers(told["[seed number]"] + 1)
            with ending_the_group(group, "could not make its part of a loader"):
                self._core = made[0](self._seed)
        if pulls or group.size > 1:
            closed_at_exit.add(self)

    def _open(self) -> _core.Collector:
        if self._core is None:
            raise InvalidArgument("[loader] this loader is closed: make another")
        return self._core

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> Batch:
        """Returns the next batch.

        Raises:
            InvalidArgument: there is nothing to draw, and no rate limit that would wait for it; or
                a `Weighted` sampler, and all that may be drawn has priority 0.
            TimeoutError: the rate limit allowed no batch within ``timeout_s``.
            TransportError: a rank did not take part within the group's time-out; the message names
                it.
            StopIteration: an epoch of `Sequential` is over.
        """
        made = self._core or self._open()
        try:
            core = made.next(self._timeout_s)
        except BaseException as error:
            self._group.pass_on(error, "next", alone=made.out_of_step())
            raise
        if core is None:
            raise StopIteration
        return Batch(core, self._outputs, self._make)

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        """Batches of one epoch; only `Sequential` has epochs."""
        if self._sampler.policy != "sequential":
            raise TypeError(f"a loader with {self._sampler!r} is endless: it has no len()")
        return self._open().batches_per_epoch()

    @property
    def beta(self) -> float:
        """Exponent of the importance weights, 0 to 1. A new value counts from the next draw on.

        Over a group of several ranks all set the same between the same calls of ``next``: a batch
        that they would weight by different ones is refused on all of them.
        """
        if not isinstance(self._sampler, Weighted):
            raise InvalidArgument(f"[sampler] {self._sampler!r} has no beta: only Weighted has")
        return self._beta

    @beta.setter
    def beta(self, value: float) -> None:
        beta = check_between("[sampler] beta", value, most=1)
        self._open().set_beta(beta)
        self._beta = beta

    @property
    def seed(self) -> int:
        """Seed of the draws: the one given, or that which the buffer gave the loader."""
        return self._seed

    def state_dict(self) -> dict[str, Any]:
        """Returns the loader's place in the sequence of batches: ints, floats, strings and bytes.

        ``torch.load`` reads it with ``weights_only=True``. It includes the batches in flight, with
        their data, so that a run after `load_state_dict` is bit-equal to one that was never
        interrupted. Save the buffer at the same point: it saves what is in flight as not drawn
        yet, and `load_state_dict` draws it there again.
        """
        state = plain_state(self._open().state())
        return {
            **self._kind,
            "buffer": self._identity(),
            "seed": self._seed,
            "ranks": self._group.size,
            "batch_size": self._batch_size,
            **state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from the `state_dict` of a loader with the same options, over the buffer that
        was saved with it. A loader that was made without a seed takes the state's.

        Over a group of another number of ranks, every rank gives the same state, of any rank that
        saved one, and `batch_size` is such that all ranks together get as many items as before.
        Batches in flight are drawn again, from the buffer as it is.

        Raises:
            InvalidArgument: the state has another version, schema, buffer, seed, sampler or batch
                layout, a value that no loader's has, or stands at another batch than that of other
                ranks. The loader goes on, on every rank, as if it had not been asked.
        """
        takes: list[dict[str, Any]] = []

        def check() -> dict[str, Any]:
            core, ranks = self._open(), self._group.size
            found = checked_state(state, ranks)
            if found["ranks"] == ranks:
                check_same_buffer(found, self._identity())
            else:  # of a buffer that the ranks have shared out anew
                found = drawn_again(found, ranks=ranks, batch_size=self._batch_size)
            seed = {} if self._own_seed else {"seed": self._seed}
            check_same_loader(found, {**self._kind, "batch_size": self._batch_size, **seed})
            core.check(found)
            takes.append(found)
            return {key: found[key] for key in ("seed", "draws", "epoch", "beta")}

        alike(self._group, check, "[loader] Loader.load_state_dict")
        found = takes[0]
        if found["seed"] != self._seed:
            self._take_seed(found)
        together(self._group, lambda: self._open().restore(found), "Loader.load_state_dict")
        self._beta = found["beta"]

    def _identity(self) -> int:
        self._open()
        assert self._shard is not None
        return self._shard.identity

    def _take_seed(self, found: dict[str, Any]) -> None:
        """Draws by the seed of a state from here on; what is in flight is given back."""
        assert self._make_core is not None
        with ending_the_group(self._group, "could not make its part of a loader"):
            core = self._make_core(found["seed"])
            # Refuses, if it does, while the loader is as it was; and once more when that has given
            # back what it had in flight.
            core.restore(found)
            before, self._core, self._seed = self._core, core, found["seed"]
            assert before is not None
            before.end()

    def stats(self) -> LoaderStats:
        """Counts and times of the batches delivered so far."""
        counted = cast(LoaderStats, self._open().stats())
        counted["remote_path"] = ""
        if counted["one_sided_bytes"] > 0:
            counted["remote_path"] = self._transport_name
        elif counted["message_bytes"] > 0:
            counted["remote_path"] = "nccl" if self._nccl else "messages"
        return counted

    def close(self) -> None:
        """Ends the background work, and gives back what was drawn and not delivered. Batches
        already delivered stay valid.
        """
        core, self._core, self._make_core, self._shard = self._core, None, None, None
        if core is None:
            return
        try:
            core.end()
        except BaseException as error:
            self._group.pass_on(error, "Loader.close")
            raise

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_role(group: Group, pulls: bool) -> None:
    if group.role == "store":
        raise InvalidArgument(
            f"[loader] a loader on rank {group.rank}, whose role is 'store': it holds steps, and "
            "the ranks with role 'train' draw"
        )
    if group.stores and not pulls:
        raise InvalidArgument(
            f"[loader] a loader that all ranks draw with, in a group whose ranks "
            f"{list(group.stores)} have role 'store' and draw nothing: give remote='pull'"
        )


def _check_pull(remote: str | None, peers: _core.Peers | None) -> None:
    if check_text("[loader] remote", remote) != "pull":
        raise InvalidArgument(
            f"[loader] remote {remote!r}: 'pull' (this rank draws alone, from what all ranks "
            "publish) or None (all ranks draw together) are allowed"
        )
    if peers is None:
        raise InvalidArgument(
            "[loader] remote='pull' in a group of one rank: there is nobody to pull from; leave "
            "remote out"
        )
    if not peers.published:
        raise InvalidArgument(
            "[loader] remote='pull' from a buffer that publishes nothing: make it with "
            "publish=True on all ranks"
        )


def _law_of(sampler: Sampler) -> dict[str, Any]:
    """What the core is told of a sampler, without beta, which may change while it runs."""
    normalize = getattr(sampler, "normalize", "batch")
    return {
        **({} if normalize == "batch" else {"normalize": normalize}),  # as older states have it
        "policy": sampler.policy,
        "unit": sampler.unit,
        "alpha": check_between("[sampler] alpha", getattr(sampler, "alpha", 0.0), most=MOST_ALPHA),
        "shuffle": check_flag("[sampler] shuffle", getattr(sampler, "shuffle", False)),
        "drop_last": check_flag("[sampler] drop_last", getattr(sampler, "drop_last", False)),
    }

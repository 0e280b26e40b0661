"""An iterator over batches, with the next ones in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from gear import _core
from gear.arguments import check_count, check_flag, check_number, check_text, check_timeout
from gear.batch import Batch
from gear.distributed import Group
from gear.distributed.process_life import closed_at_exit
from gear.distributed.together import alike, ending_the_group
from gear.errors import InvalidArgument
from gear.frameworks import tensor_maker
from gear.samplers import Sampler, Weighted
from gear.schema import Schema
from gear.statistics import LoaderStats
from gear.window import Outputs, output_numbers, output_tuples

STATE_VERSION = 1


class Loader(Iterator[Batch]):
    """Endless batches of a buffer; made by `ReplayBuffer.loader`.

    The loader draws batch k when you ask for batch ``k - prefetch``, and copies it in the
    background, by a thread or by a GPU (to host memory: less than 64 KiB at once). Draws have a
    fixed place in the sequence of appends, updates and ``next`` calls, so runs are reproducible, on
    every device and whatever the timing.

    With `Sequential`, one iteration is one epoch; iterate again for the next. Only one thread at a
    time may use a loader.

    Over a group of several ranks ``next``, ``len``, `state_dict`, `load_state_dict` and `close` are
    collective, unless the loader pulls (``remote="pull"``): then nothing is.
    """

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
        seed: int,
        timeout_s: float | None,
        group: Group,
        peers: _core.Peers | None,
        locality: str,
        nccl: bool,
        remote: str | None,
    ) -> None:
        pulls = remote is not None
        _check_role(group, pulls)  # before other ranks are waited for
        made: list[tuple[_core.Shard, _core.LoaderOptions]] = []

        def check() -> dict[str, Any]:
            shard = open_shard()
            if pulls:
                _check_pull(remote, peers)
            if not isinstance(sampler, Sampler) or type(sampler) is Sampler:
                raise InvalidArgument(
                    f"[select] sampler {sampler!r}: Uniform, Weighted, Sequential, Fifo, Lifo and "
                    "TopK of the package gear are allowed"
                )
            self._timeout_s = check_timeout("[collect]", timeout_s)
            tuples = output_tuples(outputs, schema)
            gpu = _core.parse_device(str(device))
            self._make = tensor_maker(framework, gpu)
            self._outputs = output_numbers(tuples)
            self._seed = check_count("[select] seed", seed, least=-(1 << 63), most=(1 << 64) - 1)
            self._beta = check_number("[select] beta", getattr(sampler, "beta", 0.0))
            size = self._batch_size = check_count("[collect] batch_size", batch_size)
            pack = check_flag("[collect] packed", packed)
            self._batch_text = repr((size, pack, tuples))
            options = _core.LoaderOptions(
                shard,
                outputs=tuples,
                batch_size=size,
                packed=pack,
                prefetch=check_count("[collect] prefetch", prefetch, least=0),
                policy=sampler.policy,
                unit=sampler.unit,
                seed=self._seed & 0xFFFFFFFFFFFFFFFF,
                alpha=check_number("[select] alpha", getattr(sampler, "alpha", 0.0)),
                beta=self._beta,
                shuffle=check_flag("[select] shuffle", getattr(sampler, "shuffle", False)),
                drop_last=check_flag("[select] drop_last", getattr(sampler, "drop_last", False)),
                device=gpu,
                path=check_text("[collect] path", path),
                locality=check_text("[collect] locality", locality),
                nccl=check_flag("[collect] nccl", nccl),
                timeout_s=self._timeout_s,
                pull=pulls,
            )
            made.append((shard, options))
            return {
                "batch_size": size,
                "prefetch": int(prefetch),
                "packed": pack,
                "seed": self._seed,
                "sampler": repr(_with_floats(sampler)),
                "outputs": [repr(one) for one in tuples],
                "locality": locality,
                "nccl": nccl,
                "timeout_s": self._timeout_s,
                "remote": remote,
            }

        self._sampler = sampler
        self._nccl, self._transport_name = nccl, group.transport_name
        if pulls:  # other ranks have no part in it
            group = Group.single()
        self._group = group
        self._core: _core.Collector | None = None
        with group.doing("ReplayBuffer.loader"):
            alike(group, check, "[collect] ReplayBuffer.loader")
            shard, options = made[0]
            with ending_the_group(group, "could not make its part of a loader"):
                self._core = _core.Collector(shard, options, peers)
        if pulls or group.size > 1:
            closed_at_exit.add(self)

    def _open(self) -> _core.Collector:
        if self._core is None:
            raise InvalidArgument("[collect] this loader is closed: make another")
        return self._core

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> Batch:
        """Returns the next batch.

        Raises:
            InvalidArgument: there is nothing to draw, and no rate limit that would wait for it.
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
        """Exponent of the importance weights. A new value counts from the next draw on."""
        if not isinstance(self._sampler, Weighted):
            raise InvalidArgument(f"[select] {self._sampler!r} has no beta: only Weighted has")
        return self._beta

    @beta.setter
    def beta(self, value: float) -> None:
        self._open().set_beta(value)
        self._beta = float(value)

    def state_dict(self) -> dict[str, Any]:
        """Returns the loader's place in the sequence of batches: ints, floats, strings and bytes.

        ``torch.load`` reads it with ``weights_only=True``. It includes the batches in flight, with
        their data, so that a run after `load_state_dict` is bit-equal to one that was never
        interrupted. Save the buffer at the same point.
        """
        state = self._open().state()
        for batch in state["pending"]:
            batch["data"] = batch["data"].tobytes()
        shape = {"ranks": self._group.size, "batch_size": self._batch_size}
        return {**self._own_state(), **shape, **state}

    def _own_state(self) -> dict[str, Any]:
        """What must be equal in a loader and in the one that it continues."""
        return {
            "version": STATE_VERSION,
            "seed": self._seed,
            "sampler": self._sampler_text(),
            "batch": self._batch_text,
        }

    def _sampler_text(self) -> str:
        """The sampler, without the options that may change while it runs."""
        return repr(
            replace(self._sampler, beta=0.0)
            if isinstance(self._sampler, Weighted)
            else self._sampler
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from the `state_dict` of a loader with the same options.

        Over a group of another number of ranks, every rank gives the same state, of any rank that
        saved one, and `batch_size` is such that all ranks together get as many items as before.
        Batches in flight are drawn again, from the buffer as it is.

        Raises:
            InvalidArgument: the state has another version, seed, sampler or batch layout, or stands
                at another batch than that of other ranks.
        """

        def restore() -> dict[str, Any]:
            if not isinstance(state, Mapping):
                raise InvalidArgument(
                    f"[collect] loader state {state!r}: give what state_dict() returned"
                )
            of_ranks = state.get("ranks", self._group.size)
            found = state if of_ranks == self._group.size else self._redrawn(state)
            for key, value in self._own_state().items():
                if found.get(key) != value:
                    raise InvalidArgument(
                        f"[collect] loader state with {key} {found.get(key)!r}: this loader takes "
                        f"{value!r}; make it with the options it was saved with"
                    )
            pending = _arrays_of(found.get("pending"))
            self._open().restore({**found, "pending": pending})
            return {key: found[key] for key in ("draws", "epoch", "beta")}

        self._beta = float(
            alike(self._group, restore, "[collect] Loader.load_state_dict")[0]["beta"]
        )

    def _redrawn(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The state of a loader over another number of ranks, before it drew what is in flight."""
        before, now = state["ranks"] * state["batch_size"], self._group.size * self._batch_size
        if now != before:
            raise InvalidArgument(
                f"[collect] loader state with {before} items in a batch of all {state['ranks']} "
                f"rank(s): this loader has {now}, {self._batch_size} on each of "
                f"{self._group.size}; make it with as many items in all"
            )
        batch = state["batch"].replace(str(state["batch_size"]), str(self._batch_size), 1)
        drawn = [one["before"] for one in state["pending"]]
        position = dict(zip(("draws", "epoch", "size"), drawn[0], strict=True)) if drawn else {}
        return {**state, **position, "batch": batch, "pending": []}

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
        """Ends the background work. Batches already delivered stay valid."""
        core, self._core = self._core, None
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
            f"[collect] a loader on rank {group.rank}, whose role is 'store': it holds steps, and "
            "the ranks with role 'train' draw"
        )
    if group.stores and not pulls:
        raise InvalidArgument(
            f"[collect] a loader that all ranks draw with, in a group whose ranks "
            f"{list(group.stores)} have role 'store' and draw nothing: give remote='pull'"
        )


def _check_pull(remote: str | None, peers: _core.Peers | None) -> None:
    if check_text("[collect] remote", remote) != "pull":
        raise InvalidArgument(
            f"[collect] remote {remote!r}: 'pull' (this rank draws alone, from what all ranks "
            "publish) or None (all ranks draw together) are allowed"
        )
    if peers is None:
        raise InvalidArgument(
            "[collect] remote='pull' in a group of one rank: there is nobody to pull from; leave "
            "remote out"
        )
    if not peers.published:
        raise InvalidArgument(
            "[collect] remote='pull' from a buffer that publishes nothing: make it with "
            "publish=True on all ranks"
        )


def _with_floats(sampler: Sampler) -> Sampler:
    """One text for 1 and 1.0."""
    numbers: dict[str, Any] = {
        name: float(getattr(sampler, name)) for name in ("alpha", "beta") if hasattr(sampler, name)
    }
    return replace(sampler, **numbers)


def _arrays_of(pending: Any) -> list[dict[str, Any]]:
    """The batches in flight as the core takes them."""
    try:
        return [{**one, "data": np.frombuffer(one["data"], np.uint8)} for one in pending]
    except (KeyError, TypeError, ValueError):
        raise InvalidArgument(
            "[collect] the loader's state holds no batches in flight: give what state_dict() "
            "returned"
        ) from None

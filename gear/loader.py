"""An iterator over batches, with the next ones in flight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gear import _core
from gear.arguments import check_count, check_timeout
from gear.batch import Batch
from gear.distributed import Group
from gear.distributed.together import together
from gear.errors import InvalidArgument
from gear.frameworks import tensor_maker
from gear.samplers import Sampler, Weighted
from gear.schema import Schema
from gear.window import Outputs, output_tuples

STATE_VERSION = 1


class Loader(Iterator[Batch]):
    """Endless batches of a buffer; made by `ReplayBuffer.loader`.

    Batches are drawn at a fixed place in the sequence of appends, updates and ``next`` calls, and
    copied behind the caller's back, by a thread or by a GPU: runs are reproducible, the same on
    every device, and prefetching does not depend on timing. Batch k is drawn when batch
    ``k - prefetch`` is asked for.

    With `Sequential` an iteration is one epoch; iterate again for the next. One thread at a time
    may use a loader.

    Over a group of several ranks ``next``, ``len``, `state_dict`, `load_state_dict` and `close` are
    collective.
    """

    def __init__(
        self,
        shard: _core.Shard,
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
    ) -> None:
        def check() -> _core.LoaderOptions:
            if not isinstance(sampler, Sampler) or type(sampler) is Sampler:
                raise InvalidArgument(
                    f"[select] sampler {sampler!r}: Uniform, Weighted, Sequential, Fifo, Lifo and "
                    "TopK of the package gear are allowed"
                )
            check_timeout("[collect]", timeout_s)
            tuples = output_tuples(outputs, schema)
            gpu = _core.parse_device(str(device))
            self._make = tensor_maker(framework, gpu)
            self._outputs = {row[0]: number for number, row in enumerate(tuples)}
            self._seed = check_count("[select] seed", seed, least=-(1 << 63), most=(1 << 64) - 1)
            self._beta = float(getattr(sampler, "beta", 0.0))
            size = check_count("[collect] batch_size", batch_size)
            self._batch_text = repr((size, packed, tuples))
            return _core.LoaderOptions(
                shard,
                outputs=tuples,
                batch_size=size,
                packed=packed,
                prefetch=check_count("[collect] prefetch", prefetch, least=0),
                policy=sampler.policy,
                unit=sampler.unit,
                seed=self._seed & 0xFFFFFFFFFFFFFFFF,
                alpha=float(getattr(sampler, "alpha", 0.0)),
                beta=self._beta,
                shuffle=bool(getattr(sampler, "shuffle", False)),
                drop_last=bool(getattr(sampler, "drop_last", False)),
                device=gpu,
                path=path,
                locality=locality,
                nccl=nccl,
                timeout_s=timeout_s,
            )

        self._timeout_s = timeout_s
        self._sampler = sampler
        options = together(group, check)
        self._core: _core.Collector | None = _core.Collector(shard, options, peers)

    def _open(self) -> _core.Collector:
        if self._core is None:
            raise InvalidArgument("[collect] this loader is closed: make another")
        return self._core

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            InvalidArgument: nothing may be drawn (and no rate limit says to wait for it).
            TimeoutError: the rate limit allowed no batch within ``timeout_s``.
            TransportError: a rank did not take part within the group's time-out; names it.
            StopIteration: end of an epoch of `Sequential`.
        """
        core = (self._core or self._open()).next(self._timeout_s)
        if core is None:
            raise StopIteration
        return Batch(core, self._outputs, self._make)

    def __len__(self) -> int:
        """Batches of one epoch; only `Sequential` has epochs."""
        if self._sampler.policy != "sequential":
            raise TypeError(f"a loader with {self._sampler!r} is endless: it has no len()")
        return self._open().batches_per_epoch()

    @property
    def beta(self) -> float:
        """Exponent of the importance weights; set it to anneal, from the next draw on."""
        if not isinstance(self._sampler, Weighted):
            raise InvalidArgument(f"[select] {self._sampler!r} has no beta: only Weighted has")
        return self._beta

    @beta.setter
    def beta(self, value: float) -> None:
        self._open().set_beta(value)
        self._beta = float(value)

    def state_dict(self) -> dict[str, Any]:
        """Where the sequence of batches stands, as ints, floats, strings and NumPy arrays.

        Holds the batches that are in flight too, with their data, so that what follows
        `load_state_dict` is bit-equal to a run that was never interrupted. Save the buffer at the
        same point.
        """
        return {
            "version": STATE_VERSION,
            "seed": self._seed,
            "sampler": self._sampler_text(),
            "batch": self._batch_text,
            **self._open().state(),
        }

    def _sampler_text(self) -> str:
        """The sampler without what may change while it runs."""
        return repr(
            replace(self._sampler, beta=0.0)
            if isinstance(self._sampler, Weighted)
            else self._sampler
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from `state_dict` of a loader with the same options.

        Raises:
            InvalidArgument: the state is of another version, seed or batch layout.
        """
        wanted = {
            "version": STATE_VERSION,
            "seed": self._seed,
            "sampler": self._sampler_text(),
            "batch": self._batch_text,
        }
        for key, value in wanted.items():
            if state.get(key) != value:
                raise InvalidArgument(
                    f"[collect] loader state with {key} {state.get(key)!r}: this loader takes "
                    f"{value!r}; make it with the options it was saved with"
                )
        self._open().restore(state)
        self._beta = float(state["beta"])

    def stats(self) -> dict[str, Any]:
        """What was delivered so far, and how.

        ``batches``, ``items``, ``bytes`` (read from the store; where a GPU gathers, rows of padding
        count), ``wait_s`` (``next`` waited for so long), ``gather_s`` (spent copying; where a GPU
        gathers, reckoned from the batches whose time was looked at, and 0 over a group),
        ``gb_per_s`` of the copying, ``path`` (``"host"``, ``"staged"``, ``"zero_copy"``,
        ``"device"``), ``selection`` (``"host"`` or ``"device"``), ``bytes_by_path``, ``hits``,
        items by the tier that they were read from; and of ``bytes``, by the rank that holds them:
        ``local_bytes`` (this one), ``same_node_bytes``, ``remote_bytes``, and ``message_bytes``,
        those that were sent here and not read in place.
        """
        return self._open().stats()

    def close(self) -> None:
        """Ends what works in the background; batches already delivered stay valid."""
        self._core = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

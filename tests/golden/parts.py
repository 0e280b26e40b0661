"""Short hashes of what must not change, one for each part: whoever sees one differ knows where."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

import gear

PARTS = ("ids", "rows", "weights", "state", "buffer", "drawn")
Hashes = dict[str, str]
# Memory held is what another core may do better.
NO_CONTENT = {"bytes"}


class Parts:
    """What a rank delivered, bit by bit.

    ids: ids and probabilities. rows: the data of outputs, lengths, masks, cu_seqlens. weights:
    importance weights. state: the loader's state_dict. buffer: episodes, ids, priorities, counts.
    drawn: how many draws count on this rank, in flight at each state and at the end. Of it the sum
    over ranks must not change: a draw counts where the step is stored, or, where GPUs select, on
    the rank that asked for it.
    """

    def __init__(self) -> None:
        self._digests = {part: hashlib.blake2b(digest_size=4) for part in PARTS[:-1]}
        self._drawn: list[int] = []

    def add_batch(self, batch: Any, *, packed: bool) -> None:
        """Of NumPy arrays; None: the end of an epoch."""
        if batch is None:
            self._add("ids", "end of epoch")
            return
        self._add_array("ids", "ids", batch.ids)
        self._add_array("ids", "probabilities", batch.probabilities)
        self._add_array("weights", "weights", batch.weights)
        for name in batch:
            self._add_array("rows", name, batch[name])
            self._add_array("rows", f"lengths {name}", batch.lengths[name])
            more = batch.cu_seqlens if packed else batch.masks
            self._add_array("rows", f"mask {name}", more[name])

    def add_state(self, state: dict[str, Any]) -> None:
        """Without the memory of batches in flight, in which rows lie that no batch has: what they
        deliver shows after `load_state_dict`."""
        apart = ("data", "draws")
        in_flight = [{k: v for k, v in one.items() if k not in apart} for one in state["pending"]]
        self._drawn += [one["draws"] for one in state["pending"]]
        self._add("state", json.dumps({**state, "pending": in_flight}, sort_keys=True))

    def add_buffer(self, buffer: gear.ReplayBuffer) -> None:
        for e in buffer.episodes():
            self._add("buffer", repr((e.uid, e.begin, e.end, e.state, float(e.priority))))
            self._add_array("buffer", "ids", e.ids)
            self._add_array("buffer", "priorities", buffer.priorities(e.ids))
        counts = {name: value for name, value in buffer.stats().items() if name not in NO_CONTENT}
        self._drawn.append(counts.pop("steps_sampled"))
        self._add("buffer", json.dumps(counts, sort_keys=True))

    def hashes(self) -> Hashes:
        digests = {part: digest.hexdigest() for part, digest in self._digests.items()}
        return {**digests, "drawn": ",".join(map(str, self._drawn))}

    def _add_array(self, part: str, name: str, array: npt.NDArray[Any]) -> None:
        self._add(part, f"{name} {array.dtype.str} {array.shape}")
        self._digests[part].update(np.ascontiguousarray(array).tobytes())

    def _add(self, part: str, text: str) -> None:
        self._digests[part].update(text.encode() + b"\0")


def of_all_ranks(ranks: Iterable[Hashes]) -> Hashes:
    """One hash a part, and of draws their sums; of a single rank, its own."""
    every = list(ranks)
    if len(every) == 1:
        return every[0]
    joined = {part: "".join(one[part] for one in every) for part in PARTS[:-1]}
    hashes = {
        part: hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        for part, text in joined.items()
    }
    drawn = zip(*([int(n) for n in one["drawn"].split(",")] for one in every), strict=True)
    return {**hashes, "drawn": ",".join(str(sum(counts)) for counts in drawn)}

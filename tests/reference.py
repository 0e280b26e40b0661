"""The buffer, written to be obviously right: no slots, no trees, no vectors, everything recomputed.

Values are kept by (episode uid, step number), so the model says what a buffer holds and delivers
without knowing where it lies. Pages enter only as a count: episode `e` occupies the pages that its
rows [begin, end), plus one row for a closing step, touch; `begin` is a multiple of page_steps.

Values are NumPy arrays; bfloat16 is its bits as uint16. All comparisons are of bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

DTYPES = {
    name: np.dtype("uint16" if name == "bfloat16" else name)
    for name in (
        "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64"
    ).split()
}


@dataclass(frozen=True)
class Column:
    name: str
    shape: tuple[int, ...]
    dtype: str

    def zeros(self, rows: int) -> np.ndarray:
        return np.zeros((rows, *self.shape), DTYPES[self.dtype])


# What batches say of a step besides its columns; no name of a column begins with "@".
DERIVED = {
    "@terminated": Column("@terminated", (), "bool"),
    "@is_last": Column("@is_last", (), "bool"),
    "@step_index": Column("@step_index", (), "int64"),
}


@dataclass
class Episode:
    uid: int
    begin: int = 0
    end: int = 0
    state: str = "open"
    weight: float | None = None
    values: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)
    closing: dict[str, np.ndarray] | None = None
    priorities: dict[int, float] = field(default_factory=dict)  # float32 values
    pages: list[int] = field(default_factory=list)  # when each of them got its first step

    @property
    def ended(self) -> bool:
        return self.state != "open"

    @property
    def priority(self) -> float:
        if self.weight is not None:
            return self.weight
        return float(self.exact_priority())

    def exact_priority(self) -> Fraction:
        if self.weight is not None:
            return Fraction(self.weight)
        if self.begin == self.end:
            return Fraction(0)
        stored = [Fraction(self.priorities[t]) for t in range(self.begin, self.end)]
        return sum(stored, Fraction(0)) / len(stored)

    def value(self, step: int, column: str) -> np.ndarray | None:
        """The value there, or None: evicted, not yet written, or not part of the closing step."""
        if self.begin <= step < self.end:
            return self.derived(step, column) if column in DERIVED else self.values[step][column]
        if step == self.end and self.closing is not None:
            return self.closing.get(column)
        return None

    def derived(self, step: int, column: str) -> np.ndarray:
        last = step == self.end - 1
        values = {
            "@terminated": last and self.state == "terminated",
            "@is_last": last and self.ended,
            "@step_index": step,
        }
        return np.array(values[column], DTYPES[DERIVED[column].dtype])


@dataclass(frozen=True)
class Delivered:
    """One output over a list of anchors."""

    data: np.ndarray  # [B, L, shape]; packed: [sum of lengths, shape]
    lengths: np.ndarray  # int32 [B]
    mask: np.ndarray | None  # bool [B, L]
    cu_seqlens: np.ndarray | None  # int32 [B + 1]


class Buffer:
    """What a ReplayBuffer of these arguments must hold after the same calls in the same order."""

    def __init__(
        self, columns: Sequence[Column], capacity: int, page_steps: int, evict: str
    ) -> None:
        self.columns = {column.name: column for column in columns} | DERIVED
        self.page_steps = page_steps
        self.num_pages = math.ceil(capacity / page_steps)
        self.evict = evict
        self.episodes: list[Episode] = []  # creation order
        self.lookahead = 0
        self.max_priority = 0.0  # none was seen
        self.max_weight = 0.0  # of episodes
        self.num_created = 0
        self.num_filled = 0

    # ---- writing ----

    def open_episode(self) -> Episode:
        """One that is stored, and has its number, with its first step."""
        return Episode(0)

    def append(
        self, episode: Episode, values: Mapping[str, np.ndarray], priority: float | None
    ) -> None:
        if episode.end % self.page_steps == 0:
            self._begin_a_page(episode)
        stored = (self.max_priority or 1.0) if priority is None else float(np.float32(priority))
        self.max_priority = max(self.max_priority, stored)
        episode.values[episode.end] = {name: np.array(value) for name, value in values.items()}
        episode.priorities[episode.end] = stored
        episode.end += 1

    def end_episode(
        self,
        episode: Episode,
        *,
        terminated: bool,
        weight: float | None = None,
        final: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        if final is not None:
            if episode.end % self.page_steps == 0:
                self._begin_a_page(episode, closing=True)
            episode.closing = {name: np.array(value) for name, value in final.items()}
        episode.state = "terminated" if terminated else "truncated"
        episode.weight = weight
        self.max_weight = max(self.max_weight, weight or 0.0)
        if episode.begin == episode.end:
            self.episodes.remove(episode)

    def update_step(self, uid: int, step: int, priority: float) -> bool:
        """False when the step is not stored."""
        for episode in self.episodes:
            if episode.uid == uid and episode.begin <= step < episode.end:
                episode.priorities[step] = float(np.float32(priority))
                self.max_priority = max(self.max_priority, episode.priorities[step])
                return True
        return False

    # ---- eviction ----

    def _begin_a_page(self, episode: Episode, *, closing: bool = False) -> None:
        while sum(len(e.pages) for e in self.episodes) >= self.num_pages:
            victim = self._victim(episode, closing)
            if victim is None:
                raise MemoryError
            victim.begin = min(victim.begin + self.page_steps, victim.end)
            victim.pages.pop(0)
            if victim.ended and victim.begin == victim.end:
                self.episodes.remove(victim)
        if episode.uid == 0:
            self.num_created += 1
            episode.uid = self.num_created
            self.episodes.append(episode)
        self.num_filled += 1
        episode.pages.append(self.num_filled)

    def _victim(self, requester: Episode, closing: bool) -> Episode | None:
        """A page into which an open episode still writes cannot go, but for its own next step."""
        evictable = [e for e in self.episodes if e.ended or len(e.pages) > 1]
        ended = [e for e in evictable if e.ended]
        if self.evict == "lifo" and ended:
            return ended[-1]
        if self.evict == "lowest_priority" and ended:
            return min(ended, key=lambda e: (e.exact_priority(), e.uid))
        if self.evict != "fifo" and len(requester.pages) > 1:
            return requester
        only = [requester] if len(requester.pages) == 1 and not closing else []
        if self.evict == "fifo":
            evictable += only
        return min(evictable or only, key=lambda e: e.pages[0], default=None)

    # ---- reading ----

    def __len__(self) -> int:
        return sum(e.end - e.begin for e in self.episodes)

    def steps(self) -> list[tuple[Episode, int]]:
        """Every stored step in content order."""
        return [(e, t) for e in self.episodes for t in range(e.begin, e.end)]

    def anchors(self, unit: str = "step") -> list[tuple[Episode, int]]:
        """What samplers may choose, in content order."""
        if unit == "episode":
            return [(e, e.begin) for e in self.episodes if e.ended]
        return [(e, t) for e, t in self.steps() if e.ended or t + self.lookahead < e.end]

    def require_lookahead(self, windows: Iterable[tuple[int, int]]) -> None:
        """What follows is about a loader with these (start, stop) windows."""
        self.lookahead = max(0, *(stop - 1 for _, stop in windows))

    def window(
        self, anchor: tuple[Episode, int], column: str, start: int, stop: int, pad: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """([L, shape], mask [L]) of one anchor."""
        episode, step = anchor
        wanted = [episode.value(t, column) for t in range(step + start, step + stop)]
        there = [value for value in wanted if value is not None]
        missing = [None] * (len(wanted) - len(there))
        if pad == "head":
            wanted = [*missing, *there]
        elif pad == "tail":
            wanted = [*there, *missing]
        data = self.columns[column].zeros(len(wanted))
        for row, value in enumerate(wanted):
            if value is not None:
                data[row] = value
        return data, np.array([value is not None for value in wanted])

    def deliver(
        self,
        anchors: Sequence[tuple[Episode, int]],
        column: str,
        start: int,
        stop: int,
        pad: str,
        packed: bool,
    ) -> Delivered:
        windows = [self.window(anchor, column, start, stop, pad) for anchor in anchors]
        lengths = np.array([mask.sum() for _, mask in windows], np.int32)
        empty = self.columns[column].zeros(0)
        if packed:
            rows = [data[mask] for data, mask in windows]
            ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            return Delivered(np.concatenate([empty, *rows]), lengths, None, ends)
        data = [data for data, _ in windows]
        return Delivered(np.stack(data), lengths, np.stack([mask for _, mask in windows]), None)


def difference(got: np.ndarray, expected: np.ndarray) -> str | None:
    """Where two arrays differ in type, shape or the bytes of an element; None: nowhere."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return f"got {got.dtype}{got.shape}, expected {expected.dtype}{expected.shape}"
    size = expected.dtype.itemsize
    rows = [
        np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8).reshape(-1, size)
        for array in (got, expected)
    ]
    wrong = np.flatnonzero((rows[0] != rows[1]).any(axis=1))
    if wrong.size == 0:
        return None
    place = tuple(int(i) for i in np.unravel_index(wrong[0], expected.shape))
    return f"{wrong.size} elements, first at {place}: got {got[place]}, expected {expected[place]}"


def crc32c(data: bytes) -> int:
    """Castagnoli, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

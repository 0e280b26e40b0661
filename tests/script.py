"""Random lives of a buffer: what hypothesis draws, and how it is played on a buffer and the model.

A `Script` is a schema, the buffer's arguments and a list of calls by several writers. `Player`
makes each call on both; `check_content` compares all that can be asked of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import reference
from hypothesis import strategies as st
from reference import DTYPES, difference

import gear

Outputs = dict[str, gear.Step | gear.Window | gear.Derived]

# Scalars, a byte, 44 bytes (11 x 4), odd sizes, more than one SIMD register, small images.
SHAPES = [(), (1,), (3,), (11,), (2, 3), (17,), (4, 4, 3), (84,), (12, 12)]
PRIORITIES = [0.0, 0.125, 0.5, 1.0, 1.75, 3.0, 40.0]


@dataclass(frozen=True)
class Append:
    writer: int
    steps: int
    batched: bool
    priority: float | None


@dataclass(frozen=True)
class End:
    writer: int
    terminated: bool
    weight: float | None
    final: frozenset[int] | None  # columns of the closing step, by position


@dataclass(frozen=True)
class Update:
    count: int


@dataclass(frozen=True)
class Script:
    columns: tuple[reference.Column, ...]
    page_steps: int
    capacity: int
    evict: str
    seed: int
    calls: tuple[Append | End | Update, ...]

    def schema(self) -> gear.Schema:
        return gear.Schema([gear.Column(c.name, c.shape, c.dtype) for c in self.columns])

    def arguments(self) -> dict[str, object]:
        return {"page_steps": self.page_steps, "evict": self.evict}

    def model(self) -> reference.Buffer:
        return reference.Buffer(self.columns, self.capacity, self.page_steps, self.evict)


@st.composite
def scripts(draw: st.DrawFn, max_calls: int = 30) -> Script:
    kind = st.tuples(st.sampled_from(SHAPES), st.sampled_from(list(DTYPES)))
    kinds = draw(st.lists(kind, min_size=1, max_size=4))
    columns = tuple(reference.Column(f"c{i}", *kind) for i, kind in enumerate(kinds))
    page_steps = draw(st.integers(1, 33))
    capacity = page_steps * draw(st.integers(1, 10)) - draw(st.integers(0, page_steps - 1))
    capacity = max(capacity, page_steps)
    writers = st.integers(0, draw(st.integers(0, 2)))
    # Mostly a page or two, so that many episodes are stored; now and then more than the buffer.
    short = st.integers(1, 2 * page_steps + 1)
    steps = st.one_of(short, short, short, st.integers(1, 2 * capacity + 3))
    priority = st.none() | st.sampled_from(PRIORITIES)
    final = st.none() | st.frozensets(st.integers(0, len(columns) - 1), min_size=1)
    append = st.builds(Append, writers, steps, st.booleans(), priority)
    end = st.builds(End, writers, st.booleans(), priority, final)
    update = st.builds(Update, st.integers(1, 20))
    whole = st.tuples(append, end).map(
        lambda pair: (pair[0], replace(pair[1], writer=pair[0].writer))
    )
    one = st.one_of(whole, whole, whole, *(st.tuples(call) for call in (append, end, update)))
    num_calls = draw(st.integers(1, max_calls))
    calls = draw(st.lists(one, min_size=num_calls, max_size=num_calls))
    evict = draw(st.sampled_from(["fifo", "lifo", "lowest_priority"]))
    flat = tuple(call for some in calls for call in some)
    return Script(columns, page_steps, capacity, evict, draw(st.integers(0, 999)), flat)


def random_values(rng: np.random.Generator, column: reference.Column, rows: int) -> np.ndarray:
    """Any bits that the dtype allows: NaNs with payloads, infinities and denormals among them."""
    dtype = DTYPES[column.dtype]
    shape = (rows, *column.shape)
    if column.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    count = int(np.prod(shape, dtype=int))
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(shape)


class Player:
    """Plays calls on `buffer` and `model`; both must agree on everything, refusals included."""

    def __init__(self, script: Script, buffer: gear.ReplayBuffer, model: reference.Buffer) -> None:
        self.script = script
        self.model = model
        self.rng = np.random.default_rng(script.seed)
        self.known: dict[int, tuple[int, int]] = {}  # every id ever seen -> (uid, step)
        self.open: dict[int, reference.Episode] = {}
        self.use(buffer)

    def use(self, buffer: gear.ReplayBuffer) -> None:
        """From here on `buffer` is played on; open episodes are continued there."""
        self.buffer = buffer
        self.writers = {
            number: buffer.writer(episode=episode.uid) for number, episode in self.open.items()
        }

    def play(self, calls: tuple[Append | End | Update, ...]) -> None:
        for call in calls:
            if isinstance(call, Append):
                self.append(call)
            elif isinstance(call, End):
                self.end(call)
            else:
                self.update(call)

    def append(self, call: Append) -> None:
        if call.writer not in self.writers:
            self.writers[call.writer] = self.buffer.writer()
        writer = self.writers[call.writer]
        rows = {c.name: random_values(self.rng, c, call.steps) for c in self.script.columns}
        if call.writer not in self.open:
            self.open[call.writer] = self.model.open_episode()
        episode = self.open[call.writer]
        refused = False
        try:
            for t in range(call.steps):
                step = {name: values[t] for name, values in rows.items()}
                self.model.append(episode, step, call.priority)
        except MemoryError:
            refused = True
            if not episode.pages:
                del self.open[call.writer]
        try:
            if call.batched:
                writer.extend(priority=call.priority, **rows)
            else:
                for t in range(call.steps):
                    step = {name: values[t] for name, values in rows.items()}
                    writer.append(priority=call.priority, **step)
            assert not refused, "the buffer stored what it has no page for"
        except gear.OutOfMemory:
            assert refused, "the buffer refused what it has a page for"
        if episode.end > 0:
            assert writer.episode == episode.uid

    def end(self, call: End) -> None:
        if call.writer not in self.open:
            return
        episode = self.open[call.writer]
        final = None
        if call.final is not None:
            chosen = [self.script.columns[i] for i in sorted(call.final)]
            final = {c.name: random_values(self.rng, c, 1)[0] for c in chosen}
        arguments = {"terminated": call.terminated, "weight": call.weight, "final": final}
        try:
            self.model.end_episode(episode, **arguments)
        except MemoryError:
            try:
                self.writers[call.writer].end_episode(**arguments)
            except gear.OutOfMemory:
                return
            raise AssertionError("the buffer stored a closing step it has no page for") from None
        self.writers[call.writer].end_episode(**arguments)
        assert self.writers[call.writer].episode is None
        del self.open[call.writer]

    def update(self, call: Update) -> None:
        self.remember()
        if not self.known:
            return
        ids = self.rng.choice(list(self.known), call.count)
        priorities = self.rng.choice(PRIORITIES, call.count).astype(np.float32)
        stale = self.buffer.stats()["stale_updates"]
        applied = sum(
            self.model.update_step(*self.known[int(i)], float(p))
            for i, p in zip(ids, priorities, strict=True)
        )
        assert self.buffer.update(ids, priorities) == applied
        assert self.buffer.stats()["stale_updates"] == stale + call.count - applied

    def remember(self) -> dict[tuple[int, int], int]:
        """The ids of all stored steps."""
        ids = {}
        for episode in self.buffer.episodes():
            for step, number in zip(range(episode.begin, episode.end), episode.ids, strict=True):
                ids[episode.uid, step] = int(number)
        self.known.update({number: place for place, number in ids.items()})
        return ids


def check_content(player: Player) -> None:
    """Episodes, ids and every stored value, closing steps among them."""
    buffer, model = player.buffer, player.model
    stored = [e for e in model.episodes if e.begin < e.end]
    found = [e for e in buffer.episodes() if e.begin < e.end]
    assert [(e.uid, e.begin, e.end, e.state) for e in found] == [
        (e.uid, e.begin, e.end, e.state) for e in stored
    ]
    assert len(buffer) == len(model)
    np.testing.assert_allclose([e.priority for e in found], [e.priority for e in stored], 1e-6)
    ids = player.remember()
    assert len(set(ids.values())) == len(ids) == len(model)
    if len(model) == 0:
        return
    outputs = {column.name: gear.Window(0, 2) for column in player.script.columns}
    check_windows(player, model.steps(), outputs, packed=False)


def check_windows(
    player: Player,
    anchors: list[tuple[reference.Episode, int]],
    outputs: Outputs,
    packed: bool,
) -> None:
    ids = player.remember()
    wanted = np.array([ids[episode.uid, step] for episode, step in anchors], np.int64)
    batch = player.buffer.collect(wanted, outputs, packed=packed, framework="numpy")
    assert difference(batch.ids, wanted) is None
    assert batch.size == len(wanted)
    check_batch(player.model, batch, anchors, outputs, packed)


def check_batch(
    model: reference.Buffer,
    batch: gear.Batch,
    anchors: list[tuple[reference.Episode, int]],
    outputs: Outputs,
    packed: bool,
) -> None:
    """Every output of a numpy batch against the model."""
    assert list(batch) == list(outputs)
    for name, output in outputs.items():
        where = f"{name} = {output}, packed={packed}: "
        window, column = output, None
        if isinstance(output, gear.Derived):
            window, column = output.steps, f"@{output.derived}"
        one_step = isinstance(window, gear.Step)
        if one_step:
            window = gear.Window(window.offset, window.offset + 1, window.column)
        column = column or window.column or name
        expected = model.deliver(anchors, column, window.start, window.stop, window.pad, packed)
        data, mask = expected.data, expected.mask
        if mask is not None and one_step:
            data, mask = data[:, 0], mask[:, 0]
        wrong = difference(batch[name], data)
        assert wrong is None, where + str(wrong)
        assert difference(batch.lengths[name], expected.lengths) is None, where + "lengths"
        if packed:
            assert difference(batch.cu_seqlens[name], expected.cu_seqlens) is None, where
        else:
            assert difference(batch.masks[name], mask) is None, where + "mask"

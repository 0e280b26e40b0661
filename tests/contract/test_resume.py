"""A loader restored from its state delivers what the uninterrupted one delivers, to the bit."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
from reference import difference

import gear

SCHEMA = gear.Schema([gear.Column("obs", (3,), "float32"), gear.Column("reward", (), "float32")])
OUTPUTS = {
    "obs": gear.Window(-2, 1),
    "next_obs": gear.Step(1, column="obs"),
    "reward": gear.Window(0, 3, pad="tail"),
}
ENDLESS = [
    gear.Uniform(),
    gear.Uniform(unit="episode"),
    gear.Weighted(alpha=0.7, beta=0.5),
    gear.Weighted(alpha=1.0, beta=1.0, unit="episode"),
    gear.Fifo(),
    gear.Lifo(unit="episode"),
    gear.TopK(),
    gear.TopK(unit="episode"),
]
EPOCHS = [
    gear.Sequential(),
    gear.Sequential(shuffle=False),
    gear.Sequential(unit="episode", drop_last=True),
]
Frozen = dict[str, np.ndarray]


def freeze(batch: gear.Batch) -> Frozen:
    """Every array of a batch, copied."""
    arrays = {"ids": batch.ids, "probabilities": batch.probabilities, "weights": batch.weights}
    for name in batch:
        arrays[name] = batch[name]
        arrays[name + " length"] = batch.lengths[name]
        arrays[name + " mask"] = batch.masks[name]
    return {name: np.array(array) for name, array in arrays.items()}


def assert_equal(got: list[Frozen], expected: list[Frozen]) -> None:
    assert len(got) == len(expected)
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        assert list(one) == list(other)
        for name in one:
            wrong = difference(one[name], other[name])
            assert wrong is None, f"batch {number}, {name}: {wrong}"


def assert_plain(value: object) -> None:
    """Only what any serialiser can store."""
    if isinstance(value, dict):
        for key, item in value.items():
            assert type(key) is str
            assert_plain(item)
    elif isinstance(value, list | tuple):
        for item in value:
            assert_plain(item)
    else:
        assert type(value) in (int, float, str, bool, bytes, type(None))


def write_episode(writer: gear.Writer, rng: np.random.Generator, steps: int) -> None:
    for _ in range(steps):
        writer.append(
            obs=rng.random(3, np.float32), reward=rng.random(), priority=float(rng.random())
        )


def make_loader(buffer: gear.ReplayBuffer, sampler, prefetch: int) -> gear.Loader:
    return buffer.loader(
        8, sampler=sampler, outputs=OUTPUTS, framework="numpy", prefetch=prefetch, seed=5
    )


def advance(loader: gear.Loader, count: int, on_batch=lambda batch: None) -> list[Frozen]:
    """`count` batches, over as many epochs as that takes."""
    batches: list[Frozen] = []
    while len(batches) < count:
        for batch in loader:
            batches.append(freeze(batch))
            on_batch(batch)
            if len(batches) == count:
                break
    return batches


def fill(buffer: gear.ReplayBuffer, rng: np.random.Generator) -> None:
    for length in (1, 7, 20, 3, 12, 9, 4, 2, 5, 6, 8):
        with buffer.writer() as writer:
            write_episode(writer, rng, length)


@pytest.mark.parametrize("prefetch", [1, 2, 4])
@pytest.mark.parametrize("sampler", ENDLESS + EPOCHS, ids=repr)
def test_over_a_static_buffer(tier, sampler, prefetch: int) -> None:
    with tier.buffer(SCHEMA, 128, page_steps=4) as buffer:
        fill(buffer, np.random.default_rng(1))
        whole = make_loader(buffer, sampler, prefetch)
        expected = advance(whole, 13)
        for stop in (0, 3, 6):
            first = make_loader(buffer, sampler, prefetch)
            head = advance(first, stop)
            state = copy.deepcopy(first.state_dict())
            assert_plain(state)
            rest = make_loader(buffer, sampler, prefetch)
            rest.load_state_dict(state)
            assert_equal(head + advance(rest, 13 - stop), expected)
            # To ask for the state changes nothing.
            assert_equal(head + advance(first, 13 - stop), expected)


class Run:
    """A learner that appends, and updates priorities, between batches: all of it repeatable."""

    def __init__(self, buffer: gear.ReplayBuffer, rng: np.random.Generator, episode=None) -> None:
        self.buffer, self.rng = buffer, rng
        self.writer = buffer.writer(episode=episode)

    def learn(self, loader: gear.Loader, batches: int, appends: bool) -> list[Frozen]:
        def on_batch(batch: gear.Batch) -> None:
            priorities = np.abs(batch["obs"]).sum((1, 2)) + self.rng.random(batch.size, np.float32)
            self.buffer.update(batch.ids, priorities)
            if appends:
                write_episode(self.writer, self.rng, 5)
                if self.rng.random() < 0.3:
                    self.writer.end_episode(terminated=bool(self.rng.random() < 0.5))

        return advance(loader, batches, on_batch)


@pytest.mark.parametrize("prefetch", [2, 4])
@pytest.mark.parametrize("sampler", ENDLESS + EPOCHS, ids=repr)
def test_through_a_checkpoint_with_appends_and_updates(
    tier, tmp_path: Path, sampler, prefetch: int
) -> None:
    appends = sampler not in EPOCHS
    with tier.buffer(SCHEMA, 96, page_steps=4) as buffer:
        fill(buffer, np.random.default_rng(1))
        run = Run(buffer, np.random.default_rng(2))
        loader = make_loader(buffer, sampler, prefetch)
        run.learn(loader, 9, appends)
        buffer.save(tmp_path / "replay")
        state = copy.deepcopy(loader.state_dict())
        rng_state = copy.deepcopy(run.rng.bit_generator.state)
        episode = run.writer.episode
        expected = run.learn(loader, 14, appends)
        contents = [(e.uid, e.begin, e.end, e.priority) for e in buffer.episodes()]
    with tier.load(tmp_path / "replay") as buffer:
        rng = np.random.default_rng()
        rng.bit_generator.state = rng_state
        run = Run(buffer, rng, episode)
        loader = make_loader(buffer, sampler, prefetch)
        loader.load_state_dict(state)
        assert_equal(run.learn(loader, 14, appends), expected)
        assert [(e.uid, e.begin, e.end, e.priority) for e in buffer.episodes()] == contents


def test_torch_loads_a_state_with_weights_only(tier, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with tier.buffer(SCHEMA, 128, page_steps=4) as buffer:
        fill(buffer, np.random.default_rng(1))
        loader = make_loader(buffer, gear.Weighted(), 2)
        advance(loader, 3)
        state = loader.state_dict()
        assert state["pending"]
        torch.save({"loader": state}, tmp_path / "state.pt")
        loaded = torch.load(tmp_path / "state.pt", weights_only=True)["loader"]
        assert loaded == state
        expected = advance(loader, 5)
        other = make_loader(buffer, gear.Weighted(), 2)
        other.load_state_dict(loaded)
        assert_equal(advance(other, 5), expected)
        loader = make_loader(buffer, gear.Sequential(), 2)
        delivered = [next(loader).size for _ in range(9)]
        assert sum(delivered) == 77 - 5  # the last batch and the epoch's end are in flight
        torch.save(loader.state_dict(), tmp_path / "state.pt")
        other = make_loader(buffer, gear.Sequential(), 2)
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        assert_equal([freeze(batch) for batch in other], [freeze(batch) for batch in loader])


def test_a_state_of_another_loader_is_refused(tier) -> None:
    with tier.buffer(SCHEMA, 128, page_steps=4) as buffer:
        fill(buffer, np.random.default_rng(1))
        state = make_loader(buffer, gear.Uniform(), 2).state_dict()
        others = [
            buffer.loader(9, outputs=OUTPUTS, framework="numpy", prefetch=2, seed=5),
            buffer.loader(8, outputs=OUTPUTS, framework="numpy", prefetch=2, seed=6),
            buffer.loader(8, outputs={"obs": gear.Step()}, framework="numpy", prefetch=2, seed=5),
            make_loader(buffer, gear.Weighted(), 2),
        ]
        for other in others:
            before = other.state_dict()
            with pytest.raises(gear.InvalidArgument, match="state"):
                other.load_state_dict(state)
            assert repr(other.state_dict()) == repr(before)
        incomplete = {key: value for key, value in state.items() if key != "draws"}
        for other in ({"something": 1}, incomplete):
            with pytest.raises(gear.InvalidArgument, match="state"):
                make_loader(buffer, gear.Uniform(), 2).load_state_dict(other)


def test_a_state_with_impossible_batches_is_refused(tier) -> None:
    """Rows beyond the batch's memory would be read out of somebody else's."""
    with tier.buffer(SCHEMA, 128, page_steps=4) as buffer:
        fill(buffer, np.random.default_rng(1))
        loader = make_loader(buffer, gear.Uniform(), 2)
        next(loader)
        state = loader.state_dict()
        assert state["pending"]
        for change in ({"rows": [1 << 40] * 3}, {"items": 9}, {"data": bytes(3)}):
            broken = {**state, "pending": [{**state["pending"][0], **change}]}
            with pytest.raises(gear.InvalidArgument, match="state"):
                make_loader(buffer, gear.Uniform(), 2).load_state_dict(broken)

"""The decision transformer's loss, its data, its play, and how a run of it goes on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from train.composed import compose
from train.saved_data import write_pendulum

import gear
from gear.train.algo.one_loss import share_of_lr
from gear.train.config import read
from gear.train.loop import Learner
from gear.train.tasks.make import make_environment
from gear.train.tasks.played import Played
from gear.train.tasks.saved import find, look
from gear.train.tasks.seeding import restore_rng

TINY = (
    *("data=saved", "model.width=16", "model.layers=1", "model.heads=2", "model.max_steps=300"),
    *("algo.context=4", "algo.batch_size=8", "replay.page_steps=16", "algo.warmup=0"),
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "replay"
    return path, write_pendulum(path)


@pytest.fixture(autouse=True)
def torch_as_it_was():
    yield
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)


def learner(path, *overrides, start=None):
    return Learner(read(compose(*TINY, f"data.path={path}", *overrides)), start=start)


def state_of(one):
    tensors = [t for m in one.algorithm.modules.values() for t in m.state_dict().values()]
    return [t.numpy().tobytes() for t in tensors] + [next(one.loader).ids.tolist()]


def test_return_to_go_steps_and_actions_are_the_datas(saved):
    """A window ends at its anchor; every row is the data's step of that number."""
    path, stored = saved
    to_go = [np.cumsum(e["reward"][::-1].astype(float))[::-1] for e in stored]
    known = {obs.tobytes(): (n, i) for n, e in enumerate(stored) for i, obs in enumerate(e["obs"])}
    with_windows = learner(path)
    seen = set()
    for _ in range(30):
        batch = next(with_windows.loader)
        for row, length in enumerate(batch.lengths["action"].tolist()):
            last = known[batch["obs"][row, length - 1].numpy().tobytes()]
            for at in range(length):
                episode, step = known[batch["obs"][row, at].numpy().tobytes()]
                assert (episode, step) == (last[0], last[1] - length + 1 + at)
                assert batch["step"][row, at] == step
                assert batch["action"][row, at] == stored[episode]["action"][step]
                assert batch["return_to_go"][row, at] == np.float32(to_go[episode][step])
            assert length == min(4, last[1] + 1)
            seen.add(last)
    assert len(seen) == sum(len(e["obs"]) for e in stored)
    with_windows.close()


@pytest.mark.parametrize("packed", ["false", "true"])
def test_loss_against_numpy(saved, packed):
    one = learner(saved[0], f"algo.packed={packed}")
    batch = next(one.loader)
    one.algorithm._model.eval()
    with torch.no_grad():
        predicted = one.algorithm.predict(batch).numpy()
    errors = np.square(predicted - batch["action"].numpy()).mean(-1)
    lengths = batch.lengths["action"].tolist()
    if packed == "true":
        windows = np.split(errors, np.cumsum(lengths)[:-1])
    else:
        windows = [row[:length] for row, length in zip(errors, lengths, strict=True)]
    expected = [window.mean() for window in windows]
    losses = one.algorithm.learn(batch)
    np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-5)
    assert one.algorithm.metrics()["loss"] == pytest.approx(np.mean(expected), rel=1e-5)
    one.close()


def test_loss_of_discrete_actions_against_numpy(configure):
    config = configure("env=cartpole", *TINY, "data.path=x")
    algorithm = made(config)
    batch = a_batch(algorithm, obs=(4,), actions=2)
    predicted = algorithm.predict(batch).detach().double().numpy()
    chosen = np.take_along_axis(predicted, batch["action"].numpy()[..., None], -1)[..., 0]
    steps = np.log(np.exp(predicted).sum(-1)) - chosen
    there = batch.masks["action"].numpy()
    expected = np.where(there, steps, 0).sum(1) / there.sum(1)
    loss = np.mean(batch.weights.numpy() * expected)
    np.testing.assert_allclose(algorithm.learn(batch).numpy(), expected, rtol=1e-5)
    wrong = (predicted.argmax(-1) != batch["action"].numpy()) & there
    expected = (wrong.sum(1) / there.sum(1)).mean()
    found = algorithm.metrics()
    assert found["action_error"] == pytest.approx(expected)
    assert found["loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("algo", [("algo=dt",), ("algo=bc", "model=mlp", "model.hidden=[5]")])
def test_networks_are_given_scaled_returns_and_observations(saved, algo):
    """By the data's deviation and largest return-to-go; the sign stays."""
    path, stored = saved
    small = [word for word in TINY if not word.startswith("model.") or algo == ("algo=dt",)]
    one = Learner(read(compose(*small, f"data.path={path}", *algo)))
    held_out = one.algorithm.facts.held_out
    learned = [e for e, apart in zip(stored, held_out, strict=True) if not apart]
    obs = np.concatenate([e["obs"] for e in learned])
    largest = max(abs(e["reward"].sum(dtype=float)) for e in learned)
    batch = next(one.loader)
    given = []
    one.algorithm._model.register_forward_pre_hook(lambda module, inputs: given.extend(inputs))
    one.algorithm.predict(batch)
    scaled = (batch["obs"].numpy() - obs.mean(0)) / obs.std(0)
    np.testing.assert_allclose(given[1].numpy(), scaled, rtol=1e-4, atol=1e-5)
    if algo == ("algo=dt",):
        np.testing.assert_allclose(given[0], batch["return_to_go"] / largest, rtol=1e-5)
    one.close()


def test_loss_is_the_mean_over_the_dimensions_of_an_action(saved):
    one = learner(saved[0])
    predicted, action = torch.rand(2, 3, 4), torch.rand(2, 3, 4)
    losses, wrong = one.algorithm._errors(predicted, action)
    difference = (predicted - action).numpy()
    np.testing.assert_allclose(losses, np.square(difference).mean(2), rtol=1e-5)
    np.testing.assert_allclose(wrong, np.abs(difference).mean(2), rtol=1e-5)
    one.close()


def made(config):
    from gear.train.algo import make_algorithm
    from gear.train.ranks import Ranks

    torch.manual_seed(0)
    return make_algorithm(config, make_environment(config.env, 0), Ranks.single())


class a_batch(dict):  # made like a value
    """Three windows of up to four steps, as a loader would give them."""

    def __init__(self, algorithm, *, obs, actions=0):
        rng = np.random.default_rng(3)
        lengths = np.array([4, 1, 3])
        action = rng.integers(actions, size=(3, 4)) if actions else rng.uniform(-1, 1, (3, 4, 1))
        super().__init__(
            obs=torch.from_numpy(rng.normal(size=(3, 4, *obs)).astype(np.float32)),
            action=torch.from_numpy(action.astype(np.int64 if actions else np.float32)),
            return_to_go=torch.from_numpy(rng.normal(size=(3, 4)).astype(np.float32)),
            step=torch.from_numpy(rng.integers(20, size=(3, 4))),
        )
        there = torch.from_numpy(np.arange(4) < lengths[:, None])
        self.masks = {"action": there}
        self.lengths = {"action": torch.from_numpy(lengths.astype(np.int32))}
        self.weights = torch.tensor([1.0, 0.5, 0.25])


def test_padding_changes_nothing(configure):
    """Neither losses nor the step that is taken."""
    config, found = configure(*TINY, "data.path=x"), []
    for fill in (0.0, 7.0):
        algorithm = made(config)
        batch = a_batch(algorithm, obs=(3,))
        for name, value in batch.items():
            value[~batch.masks["action"]] = int(fill) if name == "step" else fill
        losses = algorithm.learn(batch)
        found.append([losses, *algorithm._model.state_dict().values()])
    assert all(torch.equal(left, right) for left, right in zip(*found, strict=True))


@pytest.mark.parametrize("packed", ["false", "true"])
def test_learns_what_the_data_does(saved, packed):
    one = learner(saved[0], f"algo.packed={packed}", "optim.lr=1e-2", "total_steps=120")
    while one.steps < 5:
        one.step()
    before = one.algorithm.metrics()["loss"]
    while one.steps < 110:
        one.step()
    one.algorithm.metrics()
    one.step()
    assert one.algorithm.metrics()["loss"] < 0.1 * before
    one.close()


@pytest.mark.parametrize("overrides", [(), ("algo.packed=true", "model.dropout=0.1")])
def test_a_continued_run_is_bit_equal(saved, tmp_path, overrides):
    """The data is not saved with the run: it is opened again."""
    whole = learner(saved[0], *overrides)
    while whole.steps < 6:
        whole.step()
    checkpoint = whole.save(tmp_path)
    assert checkpoint.step == 6
    assert not (checkpoint.path / "replay").exists()
    found = []
    for one in (whole, learner(saved[0], *overrides, start=checkpoint)):
        restore_rng(checkpoint.state()["rng"])  # the other one's dropout has drawn since
        while one.steps < 12:
            one.step()
        found.append(state_of(one))
        one.close()
    assert found[0] == found[1]


def test_playing_sees_what_a_window_of_the_data_holds(saved, configure):
    _, stored = saved
    episode = stored[1]
    env = make_environment(configure().env, 0)
    to_go = np.cumsum(episode["reward"][::-1].astype(float))[::-1]
    played, earned = Played(4, env, float(to_go[0])), 0.0
    for at, obs in enumerate(episode["obs"]):
        played.see(obs, earned)
        window, newest = played.window(torch.device("cpu"))
        returns, seen, actions, steps = window.values()
        first = max(0, at - 3)
        assert newest == at - first
        there = slice(0, newest + 1)
        np.testing.assert_allclose(returns[0, there], to_go[first : at + 1], rtol=1e-5)
        assert np.array_equal(seen[0, there], episode["obs"][first : at + 1])
        assert np.array_equal(actions[0, :newest], episode["action"][first:at])
        assert steps[0, there].tolist() == list(range(first, at + 1))
        played.act(episode["action"][at])
        earned = float(episode["reward"][at])
    env.close()


def test_plays_to_the_end_and_without_random_numbers(saved):
    one = learner(saved[0], "model.dropout=0.3", "algo.target_return=-200")
    env, before = one.envs[0], torch.get_rng_state()
    runs = []
    for _ in range(2):
        env.reset(0)
        player, total, reward = one.algorithm.player(), 0.0, 0.0
        for _ in range(20):
            reward, _, _ = env.step(player(env.view, reward))
            total += reward
        runs.append(total)
    assert runs[0] == runs[1]
    assert torch.equal(torch.get_rng_state(), before)
    one.close()


def test_scales_are_the_datas(saved):
    path, stored = saved
    one = learner(path)
    obs = np.concatenate([episode["obs"] for episode in stored])
    returns = [float(episode["reward"].sum()) for episode in stored]
    np.testing.assert_allclose(one.facts.obs_mean, obs.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one.facts.obs_std, obs.std(0), rtol=1e-5)
    assert one.facts.returns.tolist() == pytest.approx(returns)
    assert one.algorithm._scales.target == pytest.approx(max(returns))
    assert one.facts.largest == pytest.approx(max(abs(r) for r in returns))
    one.close()


def test_episodes_that_are_not_whole_are_left_out(tmp_path, configure):
    """One without its beginning, since it was evicted, and one that is still open."""
    columns = [
        gear.Column("obs", (3,), "float32"),
        gear.Column("action", (1,), "float32"),
        gear.Column("reward", (), "float32"),
    ]
    with gear.ReplayBuffer(gear.Schema(columns), 64, page_steps=16) as buffer:
        writer = buffer.writer()
        for length, ends in ((40, True), (20, True), (5, False)):
            shapes = {"obs": (length, 3), "action": (length, 1), "reward": (length,)}
            writer.extend(**{name: np.ones(s, np.float32) for name, s in shapes.items()})
            if ends:
                writer.end_episode()
        buffer.save(tmp_path / "replay")
    config = configure(*TINY, f"data.path={tmp_path / 'replay'}")
    facts = look(config, make_environment(config.env, 0), 1)
    assert (facts.lengths.tolist(), facts.left_out) == ([20], 2)
    assert "1 episodes" in str(facts)
    assert "2 that are not whole left out" in str(facts)


def test_a_run_and_its_checkpoint_are_data(configure, tmp_path):
    acting = Learner(configure("algo.learning_starts=900", "total_steps=1000"))
    while acting.steps < 410:
        acting.step()
    checkpoint = acting.save(tmp_path)
    for path in (tmp_path, checkpoint.path, checkpoint.path / "replay"):
        assert find(str(path)) == checkpoint.path / "replay"
    one = learner(tmp_path)
    assert one.facts.lengths.tolist() == [200, 200]
    assert one.facts.left_out == 1
    assert one.facts.returns.tolist() == pytest.approx(acting.counters.returns, rel=1e-5)
    for each in (acting, one):
        each.close()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("env=cartpole",),
            r"column obs must be float32 of shape \(4,\), and the data has",
        ),
        (("model.max_steps=10",), r"model\.max_steps=10 is too few: an episode .* has 12 steps"),
    ],
)
def test_data_that_does_not_fit_is_refused(saved, overrides, message):
    with pytest.raises(gear.InvalidArgument, match=message):
        learner(saved[0], *overrides)


def test_no_data_is_refused(tmp_path):
    with pytest.raises(gear.InvalidArgument, match="holds no experience: give the directory"):
        learner(tmp_path)


def test_more_ranks_than_shares_are_refused(saved, configure):
    config = configure(*TINY, f"data.path={saved[0]}")
    env = make_environment(config.env, 0)
    assert len(look(config, env, 3).returns) == 4
    with pytest.raises(gear.InvalidArgument, match="not one for each of 5 ranks"):
        look(config, env, 5)


def test_learning_rate_rises_and_falls():
    share = [share_of_lr(u, warmup=4, total=20, final=0.1) for u in range(24)]
    assert share[:4] == [0.25, 0.5, 0.75, 1.0]
    assert share[12] == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 0.5)))
    assert share[20:] == [pytest.approx(0.1)] * 4
    assert share_of_lr(0, warmup=0, total=1, final=0.0) == 1.0


def test_learning_rate_reaches_the_optimiser(saved):
    one = learner(saved[0], "algo.warmup=10", "optim.lr=1e-3")
    for expected in (1e-4, 2e-4):
        one.step()
        assert one.algorithm.trained["model"].lr == pytest.approx(expected)
    one.close()


def test_bfloat16_keeps_weights_in_float32(saved):
    one = learner(saved[0], "algo.precision=bfloat16", "algo.recompute=true")
    for _ in range(3):
        one.step()
    assert {p.dtype for p in one.algorithm._model.parameters()} == {torch.float32}
    assert math.isfinite(one.algorithm.metrics()["loss"])
    one.close()


def test_says_how_windows_reach_the_attention(saved):
    made = [learner(saved[0], f"algo.packed={packed}") for packed in ("true", "false")]
    notes = [one.algorithm.chosen["attention"] for one in made]
    assert "padded for the attention alone: varlen_attn is for GPUs" in notes[0]
    assert "padded windows, scaled_dot_product_attention" in notes[1]
    assert all("not compiled, as it pays" in one.algorithm.launching for one in made)

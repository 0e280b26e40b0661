"""Behaviour cloning: its loss, what it is not shown, and that it does as the data does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from train.on_threads import on_threads
from train.saved_data import write_cartpole, write_pendulum
from train.test_dt import a_batch
from train.test_losses import check_gradient, close, dense

import gear
from gear.train.algo import make_algorithm
from gear.train.loop import Learner
from gear.train.ranks import Ranks
from gear.train.tasks.make import make_environment
from gear.train.tasks.saved import is_held_out, look, open_saved

LENGTHS = (7, 12, 5, 9, 11, 3, 8, 6)
LONG = (40,) * len(LENGTHS)
TINY = (
    *("data=saved", "algo=bc", "algo.batch_size=8", "algo.context=4", "algo.held_out=0.3"),
    *("algo.warmup=0", "replay.page_steps=8", "optim.weight_decay=0"),
)
MLP = ("model=mlp", "model.hidden=[5]")
TRANSFORMER = ("model=dt_1m", "model.width=16", "model.layers=1", "model.heads=2")
CONTINUOUS, DISCRETE = ("env=pendulum",), ("env=cartpole",)
KINDS = pytest.mark.parametrize("env", [CONTINUOUS, DISCRETE], ids=["continuous", "discrete"])
MODELS = pytest.mark.parametrize("model", [MLP, TRANSFORMER], ids=["mlp", "transformer"])


def made(config, ranks=None):
    torch.manual_seed(0)
    return make_algorithm(config, make_environment(config.env, 0), ranks or Ranks.single())


def saved(tmp_path, env, lengths=LENGTHS):
    (write_cartpole if env == DISCRETE else write_pendulum)(tmp_path / "replay", lengths)
    return f"data.path={tmp_path / 'replay'}"


def step_losses(predicted, action, discrete):
    if not discrete:
        return np.square(predicted - action).mean(-1)
    chosen = np.take_along_axis(predicted, action[..., None], -1)[..., 0]
    return np.log(np.exp(predicted).sum(-1)) - chosen


@KINDS
def test_loss_and_gradient_against_numpy(configure, env):
    """Weights of the windows, padding left out, each window's mean: the whole update of an MLP."""
    algorithm = made(configure(*env, *TINY, *MLP, "data.path=x", "algo.max_grad_norm=1e9"))
    discrete = env == DISCRETE
    batch = a_batch(algorithm, obs=(4,) if discrete else (3,), actions=2 if discrete else 0)
    obs, action = (batch[name].double().numpy() for name in ("obs", "action"))
    there, weights = batch.masks["action"].numpy(), batch.weights.double().numpy()
    model = algorithm.modules["model"]
    values = {k: v.detach().double().numpy() for k, v in model.named_parameters()}

    def losses(values):
        predicted = dense(values, obs, "body")
        predicted = predicted if discrete else np.tanh(predicted)
        steps = step_losses(predicted, action.astype(int) if discrete else action, discrete)
        return np.where(there, steps, 0).sum(1) / there.sum(1)

    expected = losses(values)
    close(algorithm.learn(batch), expected)
    close(algorithm.metrics()["loss"], np.mean(weights * expected))
    gradients = {k: v.grad.double().numpy() for k, v in model.named_parameters()}
    check_gradient(gradients, lambda values: np.mean(weights * losses(values)), values)


@pytest.mark.needs("torchmetrics")
@KINDS
@MODELS
def test_scores_are_means_over_all_steps_held_out(configure, tmp_path, env, model):
    """Against one step after another, on one rank and on two; each as play would see it."""
    config = configure(*env, *TINY, *model, saved(tmp_path, env))
    found = []
    for size in (1, 2):
        algorithms = [made(config) for _ in range(size)]

        def score(ranks, algorithms=algorithms):
            one = algorithms[ranks.rank]
            one._ranks = ranks
            one.look()
            one._held_out = open_saved(config, one._env, one.facts, ranks, held_out=True)
            return one.scores()

        found += on_threads(size, score)
    one, discrete = algorithms[0], env == DISCRETE
    errors, wrong = [], []
    for episode, stored in zip(one.facts.held_out, data_of(tmp_path), strict=True):
        for at in range(len(stored["obs"])) if episode else ():
            first = max(0, at - 3)
            window = {name: torch.from_numpy(x[first : at + 1])[None] for name, x in stored.items()}
            window["step"] = torch.arange(first, at + 1)[None]
            with torch.no_grad():
                predicted = one.forward(one._model, window)[0, -1].numpy()
            right = stored["action"][at]
            errors.append(step_losses(predicted[None], right[None], discrete)[0])
            far = np.abs(predicted - right).mean()
            wrong.append(predicted.argmax() == right if discrete else far)
    name = "held_out_accuracy" if discrete else "held_out_error"
    expected = {"held_out_loss": np.mean(errors), name: np.mean(wrong)}
    assert len(errors) > 5
    assert found == [pytest.approx(expected, rel=1e-4)] * 3


def data_of(tmp_path):
    """What is stored, an episode after another."""
    with gear.ReplayBuffer.load(tmp_path / "replay") as buffer:
        names = {"obs": gear.Step(), "action": gear.Step()}
        found = [buffer.collect(e.ids, names, framework="numpy") for e in buffer.episodes()]
        return [{name: np.array(steps[name]) for name in names} for steps in found]


def test_what_is_held_out_is_not_learned_from(configure, tmp_path):
    """The same episodes at any number of ranks, none in the batches, and none in the scales."""
    config = configure(*CONTINUOUS, *TINY, *MLP, saved(tmp_path, CONTINUOUS))
    env = make_environment(config.env, 0)
    found = [look(config, env, size) for size in (1, 2, 4)]
    kept_apart = found[0].held_out
    assert 0 < kept_apart.sum() < len(LENGTHS)
    assert all(np.array_equal(kept_apart, facts.held_out) for facts in found)
    stored = data_of(tmp_path)
    learned = [e["obs"] for e, apart in zip(stored, kept_apart, strict=True) if not apart]
    close(found[0].obs_mean, np.concatenate(learned).mean(0))
    learner = Learner(config)
    known = {row.tobytes() for obs in learned for row in obs}
    seen = set()
    for _ in range(60):
        batch = next(learner.loader)
        seen |= {row.numpy().tobytes() for row in batch["obs"][batch.masks["obs"]]}
    assert seen == known
    assert "held out" in str(learner.facts)
    learner.close()


def test_the_share_held_out_and_its_seed():
    apart = [[is_held_out(seed, number, 0.2) for number in range(2000)] for seed in (0, 1)]
    assert all(0.17 < np.mean(each) < 0.23 for each in apart)
    assert apart[0] != apart[1]
    assert not any(is_held_out(0, number, 0.0) for number in range(100))


def test_none_held_out_is_refused(configure, tmp_path):
    config = configure(*CONTINUOUS, *TINY, *MLP, "algo.held_out=1e-6", saved(tmp_path, CONTINUOUS))
    with pytest.raises(gear.InvalidArgument, match=r"keeps 0 of the 8 episodes .* on both sides"):
        look(config, make_environment(config.env, 0), 1)


@pytest.mark.needs("torchmetrics")
@KINDS
@MODELS
def test_does_as_the_data_does(configure, tmp_path, env, model):
    """On episodes that it has not seen, and when it plays."""
    more = ("optim.lr=1e-2", "total_steps=150", "algo.packed=true", saved(tmp_path, env, LONG))
    learner = Learner(configure(*env, *TINY, *model, *more))
    before = learner.algorithm.scores()["held_out_loss"]
    while learner.steps < 150:
        learner.step()
    assert learner.algorithm.scores()["held_out_loss"] < 0.5 * before
    player = learner.algorithm.player()
    for sign in (1.0, -1.0):
        obs = np.zeros((1, *learner.envs[0].obs_shape), np.float32)
        obs[0, 0] = sign
        action = player(obs, 0.0)
        assert action == (sign > 0) if env == DISCRETE else action[0] * sign > 0.1
    learner.close()

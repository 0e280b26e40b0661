"""A captured update learns what an uncaptured one learns. Without a GPU a recorder stands for the
graph: it plays the same work on the same memory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gear.train.algo.captured import WARM_UP, Captured, compiled
from gear.train.algo.policy_copy import PolicyCopy
from gear.train.loop import Learner
from gear.train.ranks import Ranks
from gear.train.strategies.ddp import DdpStrategy
from gear.train.strategies.single import Replica, SingleStrategy

SHORT = ("algo.learning_starts=20", "algo.batch_size=8", "model.hidden=[4]", "total_steps=60")
PENDULUM = ("env=pendulum", *SHORT)
CARTPOLE = ("env=cartpole", "algo.target_every=7", *SHORT)


class Rehearsal:
    def __init__(self):
        self.recorded = 0

    def run(self, work):
        work()

    def record(self, work):
        self.recorded += 1
        return work


def weights(algorithm):
    return {
        f"{name}.{key}": value.clone()
        for name, module in algorithm.modules.items()
        for key, value in module.state_dict().items()
    }


def learned(config, *, captured):
    """All weights and metrics after 60 steps, and the learner's recorder."""
    learner = Learner(config)
    rehearsal = Rehearsal()
    if captured:
        algorithm = learner.algorithm
        algorithm._update = Captured(algorithm._update_from, rehearsal)
    while learner.counters.env_steps < 60:
        learner.step()
    found = {**weights(learner.algorithm), **learner.algorithm.metrics()}
    learner.close()
    return found, rehearsal


@pytest.mark.parametrize(
    "overrides",
    [PENDULUM, CARTPOLE, (*PENDULUM, "algo.n_step=1", "replay=uniform")],
    ids=["sac", "dqn", "one-step-uniform"],
)
def test_learns_the_same_to_the_bit(configure, overrides):
    plain, _ = learned(configure(*overrides), captured=False)
    captured, rehearsal = learned(configure(*overrides), captured=True)
    assert rehearsal.recorded == 1
    assert plain.keys() == captured.keys()
    for key, value in plain.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(captured[key])), key


@pytest.mark.parametrize("overrides", [PENDULUM, CARTPOLE], ids=["sac", "dqn"])
def test_an_update_changes_tensors_alone(configure, overrides):
    """What it would count or swap in Python would stand still in a graph."""
    learner = Learner(configure(*overrides))
    while learner.counters.env_steps < 22:
        learner.step()
    algorithm, batch = learner.algorithm, next(learner.loader)
    given = [batch[name] for name in ("obs", "action", "reward", "terminated")]

    def held():
        """Every plain value, and where the tensors of the networks lie."""
        plain = {k: v for k, v in vars(algorithm).items() if isinstance(v, int | float | str)}
        places = {
            k: v.data_ptr() for m in algorithm.modules.values() for k, v in m.named_parameters()
        }
        return plain, places, algorithm._sums.data_ptr()

    before, state = held(), weights(algorithm)
    algorithm._update_from(*given, batch.lengths["reward"], batch.weights)
    assert held() == before
    assert any(not torch.equal(state[key], value) for key, value in weights(algorithm).items())


def test_results_are_the_callers_own():
    """No later call changes them, and the function is called once for each until it is recorded."""
    calls = []

    def double(x):
        calls.append(x.clone())
        return 2 * x

    rehearsal = Rehearsal()
    captured = Captured(double, rehearsal)
    results = [captured(torch.full((3,), float(i))) for i in range(WARM_UP + 3)]
    assert [r.tolist() for r in results] == [[2.0 * i] * 3 for i in range(WARM_UP + 3)]
    assert len(calls) == WARM_UP + 3
    assert rehearsal.recorded == 1


@pytest.mark.parametrize(
    ("wish", "device", "obstacle", "said"),
    [
        ("off", "cuda", "", "not captured: algo.compile=off"),
        ("off", "cpu", "", "not captured: algo.compile=off"),
        ("auto", "cpu", "", "not captured: a CPU has nothing to capture"),
        ("auto", "cuda", "2 ranks average", "not captured: 2 ranks average"),
    ],
)
def test_says_what_was_chosen_and_why(wish, device, obstacle, said):
    def function(x):
        return x

    chosen, words = compiled(function, wish=wish, device=torch.device(device), obstacle=obstacle)
    assert chosen is function
    assert words == said


def test_a_run_says_how_updates_are_launched(configure):
    assert Learner(configure(*PENDULUM)).algorithm.launching.startswith("not captured: a CPU")


def test_policy_is_copied_every_so_many_updates():
    network = torch.nn.Linear(2, 1)
    policy = PolicyCopy(network, 3)
    seen = []
    for updates in range(1, 7):
        with torch.no_grad():
            network.weight.fill_(updates)
        policy.updated(updates)
        with policy.acting() as acting:
            seen.append(float(acting.weight[0, 0]))
    assert seen[2:] == [3, 3, 3, 6]
    assert seen[0] == seen[1] not in (1, 2)
    assert not any(p.requires_grad for p in policy.network.parameters())


def test_policy_that_would_be_copied_always_acts_itself():
    network = torch.nn.Linear(2, 1)
    assert PolicyCopy(network, 1).network is network


def test_ranks_that_meet_in_the_middle_are_not_captured(configure):
    optim, network = configure().optim, torch.nn.Linear(2, 1)
    alone = SingleStrategy(Ranks.single()).prepare(network, optim)
    assert alone.uncapturable() == ""
    for size, obstacle in ((1, ""), (2, "2 ranks average gradients in the middle of an update")):
        ranks = SimpleNamespace(size=size, averaging=size, device="cpu")
        assert DdpStrategy(ranks, size).prepare(network, optim).uncapturable() == obstacle
    assert Replica(network, optim, ()).uncapturable() != ""  # until a way of training says it can

"""`learn` of a team's algorithms against networks and targets written out in NumPy, in float64.

As tests/train/test_losses.py: the batch is of every step of short episodes, terminated and
truncated ones, and each term of a target has a test that another value of it fails.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from train.written_out import check_gradient, close, dense, huber, part

import gear
from gear.train.algo import make_algorithm
from gear.train.ranks import Ranks

GAMMA, AGENTS, SEEN, ACTIONS, DIM, BINS, HEADS = 0.9, 3, 4, 5, 2, 3, 2
LENGTHS = (1, 2, 3, 5, 8)  # every other one ends terminated


class Case:
    """An algorithm, a batch of a team's steps, and what a slow walk says of each."""

    def __init__(self, configure, algo, n_step=1, discrete=True, *, target_every=100):
        small = ["model.hidden=[6]"] if algo == "iql" else ["model.width=8", f"model.heads={HEADS}"]
        config = configure(
            *("env=hunt", f"algo={algo}", "model=" + ("mlp" if algo == "iql" else "agents")),
            *(f"algo.n_step={n_step}", f"algo.gamma={GAMMA}", "algo.max_grad_norm=1e9", *small),
            f"algo.target_every={target_every}",
            *([f"algo.bins={BINS}"] if algo == "mat" else []),
        )
        size = SEEN + (ACTIONS if discrete else 0)
        env = SimpleNamespace(
            view=np.zeros((1, AGENTS, size), np.float32),
            obs_shape=(AGENTS, size),
            obs_dtype="float32",
            num_agents=AGENTS,
            num_actions=ACTIONS if discrete else 0,
            action_dim=0 if discrete else DIM,
        )
        torch.manual_seed(1)
        self.algorithm = make_algorithm(config, env, Ranks.single())
        with torch.no_grad():
            for network in self.algorithm.modules.values():
                for tensor in network.parameters():
                    tensor += 0.3 * torch.randn_like(tensor)  # target and network differ
        self.discrete = discrete
        self.batch = self._batch()
        walked = [self._walk(*divmod(int(i), 100), n_step) for i in self.batch["number"]]
        self.obs, self.mask, self.action, self.returns, self.discount, later, self.later_mask = map(
            np.array, zip(*walked, strict=True)
        )
        self.later = later
        self.weights = self.batch.weights.double().numpy()

    def _episodes(self):
        rng = np.random.default_rng(3)
        for number, length in enumerate(LENGTHS):
            obs = rng.normal(size=(length + 1, AGENTS, SEEN)).astype(np.float32)
            mask = rng.random((length + 1, AGENTS, ACTIONS)) < 0.5
            if self.discrete:
                action = rng.integers(ACTIONS, size=(length, AGENTS))
                np.put_along_axis(mask[:-1], action[:, :, None], True, 2)
                mask[-1, :, 1] = True
            else:
                action = rng.uniform(-1, 1, (length, AGENTS, DIM)).astype(np.float32)
            reward = rng.normal(size=(length, AGENTS)).astype(np.float32)
            yield obs, mask, action, reward, number % 2 == 0

    def _batch(self):
        self.episodes = list(self._episodes())
        kind = ((AGENTS,), "int64") if self.discrete else ((AGENTS, DIM), "float32")
        columns = [
            gear.Column("obs", (AGENTS, SEEN)),
            gear.Column("action", *kind),
            gear.Column("reward", (AGENTS,)),
            gear.Column("terminated", (), "bool"),
            gear.Column("number", (), "int64"),
        ]
        if self.discrete:
            columns.append(gear.Column("available", (AGENTS, ACTIONS), "bool"))
        buffer = gear.ReplayBuffer(gear.Schema(columns), 64, page_steps=4)
        writer = buffer.writer()
        for number, (obs, mask, action, reward, terminated) in enumerate(self.episodes):
            shown = [
                {"obs": o, **({"available": m} if self.discrete else {})}
                for o, m in zip(obs, mask, strict=True)
            ]
            for t in range(len(reward)):
                writer.append(
                    **shown[t],
                    action=action[t],
                    reward=reward[t],
                    terminated=terminated and t == len(reward) - 1,
                    number=100 * number + t,
                )
            writer.end_episode(terminated=terminated, final=shown[-1])
        outputs = {**self.algorithm.outputs, "number": gear.Step()}
        sampler = gear.Weighted(alpha=1.0, beta=0.5)
        loader = buffer.loader(24, sampler=sampler, outputs=outputs, framework="torch", prefetch=0)
        drawn = next(loader)
        buffer.update(drawn.ids, 0.2 + np.random.default_rng(0).random(24))
        drawn = next(loader)
        assert len(set(drawn.weights.tolist())) > 5
        return drawn

    def _walk(self, number, t, n_step):
        """What is seen and available at t and at the bootstrap step, and what lies between."""
        obs, mask, action, reward, terminated = self.episodes[number]
        total, discount, k = np.zeros(AGENTS), 1.0, t
        while k < min(t + n_step, len(reward)):
            total += discount * reward[k]
            discount *= GAMMA
            k += 1
        ended = terminated and k == len(reward)
        return obs[t], mask[t], action[t], total, 0.0 if ended else discount, obs[k], mask[k]

    def learn(self):
        """(priorities, loss, gradient of the online network's parameters)."""
        priorities = self.algorithm.learn(self.batch)
        gradients = {
            f"{name}.{key}": parameter.grad.double().numpy()
            for name, module in self.algorithm.modules.items()
            for key, parameter in module.named_parameters()
            if parameter.grad is not None
        }
        assert part(gradients, "target") == {}
        loss = self.algorithm.metrics()["loss"]
        return priorities.double().numpy(), loss, part(gradients, "online")

    def weights_of(self, name):
        module = self.algorithm.modules[name]
        return {key: value.detach().double().numpy() for key, value in module.named_parameters()}

    def seen(self, obs, mask):
        """What the networks are given."""
        return np.concatenate([obs, mask], 2) if self.discrete else obs.astype(float)


def norm(w, name, x):
    deviation = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (x - x.mean(-1, keepdims=True)) / deviation * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear(w, name, x):
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def block(w, name, x, causal):
    """One row, one head, one place after the other."""
    q, k, v = np.split(norm(w, f"{name}.norm_attention", x) @ w[f"{name}.qkv.weight"].T, 3, -1)
    size = x.shape[-1] // HEADS
    found = np.zeros_like(x)
    for head in range(HEADS):
        part_of = slice(head * size, (head + 1) * size)
        for place in range(x.shape[1]):
            last = place + 1 if causal else x.shape[1]
            score = np.einsum("bc,btc->bt", q[:, place, part_of], k[:, :last, part_of])
            share = np.exp(score / math.sqrt(size))
            share /= share.sum(1, keepdims=True)
            found[:, place, part_of] = np.einsum("bt,btc->bc", share, v[:, :last, part_of])
    x = x + linear(w, f"{name}.joined", found)
    inner = gelu(linear(w, f"{name}.dense_in", norm(w, f"{name}.norm_dense", x)))
    return x + linear(w, f"{name}.dense_out", inner)


def transformer(w, seen, choices, dims):
    """Values of every choice at each place, given the choices before it: [B, T, choices]."""
    x = block(w, "encoder.0", linear(w, "embed_obs", seen) + w["embed_agent.weight"], False)
    tokens = []
    for place in range(choices.shape[1]):
        token = x[:, place // dims] + w["embed_place.weight"][place]
        if place:
            token = token + w["embed_choice.weight"][choices[:, place - 1]]
        tokens.append(token)
    x = block(w, "decoder.0", np.stack(tokens, 1), True)
    return linear(w, "head", norm(w, "norm_out", x))


def taken(values, choices):
    return np.take_along_axis(values, choices[:, :, None], 2)[:, :, 0]


@pytest.mark.parametrize(("n_step", "discrete"), [(1, True), (3, True), (3, False)])
def test_multi_agent_transformer(configure, n_step, discrete):
    """Values, targets within a step and at its end, masks, weights, priorities and gradient."""
    case = Case(configure, "mat", n_step, discrete)
    if discrete:
        choices, dims, mask, later_mask = case.action, 1, case.mask, case.later_mask
    else:
        dims = DIM
        choices = np.digitize(case.action.reshape(-1, AGENTS * DIM), [-1 / 3, 1 / 3])
        mask = later_mask = np.ones((1, 1, BINS), bool)
    seen, later = case.seen(case.obs, case.mask), case.seen(case.later, case.later_mask)
    online, target = case.weights_of("online"), case.weights_of("target")

    within = np.where(mask, transformer(target, seen, choices, dims), -np.inf)
    # At the next step only the first place counts, before which nothing was chosen.
    first = np.where(later_mask, transformer(target, later, 0 * choices, dims), -np.inf)[:, 0]
    last = case.returns.mean(1) + case.discount * first.max(1)
    wanted = np.concatenate([within[:, 1:].max(2), last[:, None]], 1)

    def loss(weights):
        q = taken(transformer(weights, seen, choices, dims), choices)
        return np.mean(case.weights * huber(q - wanted).mean(1))

    error = np.abs(taken(transformer(online, seen, choices, dims), choices) - wanted)
    assert (error > 1).any()  # both halves of Huber's
    assert (error < 1).any()
    priorities, found, gradients = case.learn()
    close(priorities, error.mean(1))
    close(found, loss(online))
    check_gradient(gradients, loss, online)


@pytest.mark.parametrize("n_step", [1, 3])
def test_independent_learners(configure, n_step):
    """Each agent's own reward, observation and available actions; a target of its own."""
    case = Case(configure, "iql", n_step)
    seen, later = case.seen(case.obs, case.mask), case.seen(case.later, case.later_mask)
    online, target = case.weights_of("online"), case.weights_of("target")

    def values(weights, obs):
        return dense(weights, obs + weights["embed_agent.weight"], "head")

    best = np.where(case.later_mask, values(online, later), -np.inf).argmax(2)
    unmasked = values(online, later).argmax(2)
    assert (best != unmasked).any()
    value = taken(values(target, later), best)
    wanted = case.returns + case.discount[:, None] * value

    def loss(weights):
        q = taken(values(weights, seen), case.action)
        return np.mean(case.weights * huber(q - wanted).mean(1))

    priorities, found, gradients = case.learn()
    close(priorities, np.abs(taken(values(online, seen), case.action) - wanted).mean(1))
    close(found, loss(online))
    check_gradient(gradients, loss, online)


@pytest.mark.parametrize("algo", ["mat", "iql"])
def test_target_is_copied_every_so_many_updates(configure, algo):
    case = Case(configure, algo, target_every=3)
    equal = []
    for _ in range(6):
        case.algorithm.learn(case.batch)
        online, target = case.weights_of("online"), case.weights_of("target")
        equal.append(all(np.array_equal(online[key], target[key]) for key in online))
    assert equal == [False, False, True, False, False, True]

"""Every loss and every step of `learn` against the same thing written out in NumPy, in float64.

The batches come from a buffer of short episodes: anchors near a terminated end, near a truncated
one, and in the middle. Each term of a target has a test that another value of it fails.
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
from gear.train.algo.dqn import epsilon_at
from gear.train.ranks import Ranks

GAMMA = 0.9
OBS, ACTIONS, DIM = 3, 4, 2
LENGTHS = (1, 2, 3, 5, 8)  # every other one ends terminated


def episodes(discrete):
    rng = np.random.default_rng(3)
    for number, length in enumerate(LENGTHS):
        obs = rng.normal(size=(length + 1, OBS)).astype(np.float32)
        action = (
            rng.integers(ACTIONS, size=length)
            if discrete
            else rng.uniform(-1, 1, (length, DIM)).astype(np.float32)
        )
        yield obs, action, rng.normal(size=length).astype(np.float32), number % 2 == 0


class Case:
    """An algorithm, a batch of every step of the episodes, and what a slow walk says of each."""

    def __init__(self, configure, *overrides, discrete=False, n_step=1):
        self.config = configure(
            "env=cartpole" if discrete else "env=pendulum",
            f"algo.n_step={n_step}",
            f"algo.gamma={GAMMA}",
            "model.hidden=[5]",
            *overrides,
        )
        torch.manual_seed(1)
        env = SimpleNamespace(
            view=np.zeros((1, OBS), np.float32),
            obs_shape=(OBS,),
            obs_dtype="float32",
            num_agents=0,
            num_actions=ACTIONS if discrete else 0,
            action_dim=0 if discrete else DIM,
        )
        self.algorithm = make_algorithm(self.config, env, Ranks.single())
        with torch.no_grad():
            for network in self.algorithm.modules.values():
                for tensor in network.parameters():
                    tensor += 0.3 * torch.randn_like(tensor)  # target and network differ
        self.batch = self._batch(discrete)
        walked = [self._walk(*divmod(int(i), 100), n_step) for i in self.batch["number"]]
        self.obs, self.action, self.returns, self.discount, self.later = map(
            np.array, zip(*walked, strict=True)
        )
        self.weights = self.batch.weights.double().numpy()

    def _batch(self, discrete):
        self.episodes = list(episodes(discrete))
        action = gear.Column("action", (), "int64") if discrete else gear.Column("action", (DIM,))
        schema = gear.Schema(
            [
                *(gear.Column("obs", (OBS,)), action, gear.Column("reward")),
                *(gear.Column("terminated", (), "bool"), gear.Column("number", (), "int64")),
            ]
        )
        buffer = gear.ReplayBuffer(schema, 64, page_steps=4)
        writer = buffer.writer()
        for number, (obs, action, reward, terminated) in enumerate(self.episodes):
            for t in range(len(reward)):
                writer.append(
                    obs=obs[t],
                    action=action[t],
                    reward=reward[t],
                    terminated=terminated and t == len(reward) - 1,
                    number=100 * number + t,
                )
            writer.end_episode(terminated=terminated, final={"obs": obs[-1]})
        outputs = {**self.algorithm.outputs, "number": gear.Step()}
        sampler = gear.Weighted(alpha=1.0, beta=0.5)
        loader = buffer.loader(32, sampler=sampler, outputs=outputs, framework="torch", prefetch=0)
        drawn = next(loader)
        buffer.update(drawn.ids, 0.2 + np.random.default_rng(0).random(32))
        drawn = next(loader)
        assert len(set(drawn.weights.tolist())) > 5
        return drawn

    def _walk(self, number, t, n_step):
        """(obs, action, return, discount, bootstrap observation), one step after another."""
        obs, action, reward, terminated = self.episodes[number]
        total, discount, k = 0.0, 1.0, t
        while k < min(t + n_step, len(reward)):
            total += discount * float(reward[k])
            discount *= GAMMA
            k += 1
        ended = terminated and k == len(reward)
        return obs[t], action[t], total, 0.0 if ended else discount, obs[k]

    def learn(self):
        """(priorities, metrics, gradient of every parameter by name)."""
        priorities = self.algorithm.learn(self.batch)
        gradients = {
            f"{name}.{key}": parameter.grad.double().numpy()
            for name, module in self.algorithm.modules.items()
            for key, parameter in module.named_parameters()
            if parameter.grad is not None
        }
        return priorities.double().numpy(), self.algorithm.metrics(), gradients

    def weights_of(self, name):
        """Parameters of a network as float64 arrays."""
        module = self.algorithm.modules[name]
        return {key: value.detach().double().numpy() for key, value in module.named_parameters()}


# ---- DQN ----


def dqn_target(case):
    online, target = case.weights_of("online"), case.weights_of("target")
    best = dense(online, case.later, "head").argmax(1)
    value = dense(target, case.later, "head")[np.arange(len(best)), best]
    return case.returns + case.discount * value


@pytest.mark.parametrize("n_step", [1, 3])
def test_double_dqn(configure, n_step):
    """Target, Huber loss with importance weights, priorities and gradient."""
    case = Case(configure, "algo.max_grad_norm=1e9", discrete=True, n_step=n_step)
    rows = np.arange(len(case.action))
    online, target = case.weights_of("online"), dqn_target(case)

    def loss(weights):
        q = dense(weights, case.obs, "head")[rows, case.action]
        return np.mean(case.weights * huber(q - target))

    q = dense(online, case.obs, "head")[rows, case.action]
    assert (np.abs(q - target) > 1).any()  # both halves of Huber's
    assert (np.abs(q - target) < 1).any()
    priorities, metrics, gradients = case.learn()
    close(priorities, np.abs(q - target))
    close(metrics["loss"], loss(online))
    close(metrics["q_mean"], q.mean())
    check_gradient(part(gradients, "online"), loss, online)
    assert part(gradients, "target") == {}


def test_dqn_gradient_is_shortened(configure):
    case = Case(configure, "algo.max_grad_norm=0.01", discrete=True)
    _, _, gradients = case.learn()
    norm = math.sqrt(sum(np.square(gradient).sum() for gradient in gradients.values()))
    close(norm, 0.01)


def test_dqn_target_is_copied_every_so_many_updates(configure):
    case = Case(configure, "algo.target_every=3", discrete=True)
    equal = []
    for _ in range(6):
        case.algorithm.learn(case.batch)
        online, target = case.weights_of("online"), case.weights_of("target")
        equal.append(all(np.array_equal(online[key], target[key]) for key in online))
    assert equal == [False, False, True, False, False, True]


def test_epsilon_falls_from_the_start_of_learning(configure):
    algo = configure(
        "env=cartpole",
        *("algo.learning_starts=100", "algo.epsilon_start=0.9", "algo.epsilon_final=0.1"),
        "algo.epsilon_steps=200",
    ).algo
    found = [epsilon_at(algo, step) for step in (0, 99, 100, 200, 300, 10_000)]
    assert found == pytest.approx([1, 1, 0.9, 0.5, 0.1, 0.1])


# ---- SAC ----


def draw(weights, obs, noise):
    """Squashed actions and their log densities for one draw of standard normal noise."""
    mean, log_std = np.split(dense(weights, obs, "body"), 2, axis=1)
    log_std = np.clip(log_std, -5, 2)
    action = np.tanh(mean + noise * np.exp(log_std))
    normal = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    return action, (normal - np.log(1 - action**2)).sum(1)


def critic(weights, obs, action):
    """Both critics, [2, B]."""
    x = np.concatenate([obs, action], 1)
    values = []
    for twin in range(2):
        hidden = np.maximum(x @ weights["weights.0"][twin] + weights["biases.0"][twin], 0)
        values.append((hidden @ weights["weights.1"][twin] + weights["biases.1"][twin])[:, 0])
    return np.stack(values)


class Sac(Case):
    """A case with the noise that `learn` is going to draw: for the target, then for the policy."""

    def __init__(self, configure, *overrides, n_step=1, log_alpha=-0.4):
        super().__init__(configure, *overrides, n_step=n_step)
        with torch.no_grad():
            self.algorithm.modules["temperature"].log_alpha.fill_(log_alpha)
        self.alpha = math.exp(log_alpha)
        state = torch.get_rng_state()
        shape = (len(self.obs), DIM)
        self.noise_target = torch.randn(shape).double().numpy()
        self.noise_policy = torch.randn(shape).double().numpy()
        torch.set_rng_state(state)
        self.policy = self.weights_of("policy")
        self.critic = self.weights_of("critic")
        self.target = self.weights_of("target")

    def targets(self):
        action, density = draw(self.policy, self.later, self.noise_target)
        twins = critic(self.target, self.later, action)
        assert (twins[0] < twins[1]).any()
        assert (twins[0] > twins[1]).any()
        return self.returns + self.discount * (twins.min(0) - self.alpha * density)


@pytest.mark.parametrize("n_step", [1, 3])
def test_sac_critics(configure, n_step):
    """Entropy in the target, the lesser twin, weighted square errors of both, priorities."""
    case = Sac(configure, n_step=n_step)
    target = case.targets()

    def loss(weights):
        error = critic(weights, case.obs, case.action) - target
        return 0.5 * np.mean(case.weights * error[0] ** 2 + case.weights * error[1] ** 2)

    q = critic(case.critic, case.obs, case.action)
    priorities, metrics, gradients = case.learn()
    close(priorities, np.abs(q - target).mean(0))
    close(metrics["critic_loss"], loss(case.critic))
    close(metrics["q_mean"], q.mean())
    # The policy's loss must not reach the critics' weights: this is the critics' gradient alone.
    check_gradient(part(gradients, "critic"), loss, case.critic)
    assert part(gradients, "target") == {}


def test_sac_policy(configure):
    """alpha log pi - min Q at the policy's own action, without importance weights."""
    case = Sac(configure)

    def loss(weights):
        action, density = draw(weights, case.obs, case.noise_policy)
        return np.mean(case.alpha * density - critic(case.critic, case.obs, action).min(0))

    _, metrics, gradients = case.learn()
    close(metrics["policy_loss"], loss(case.policy))
    close(metrics["alpha"], case.alpha)
    check_gradient(part(gradients, "policy"), loss, case.policy)


@pytest.mark.parametrize("target", [None, 1.5])
def test_sac_temperature(configure, target):
    """Falls while the entropy is above its target: minus the action's dimensions by default."""
    given = [] if target is None else [f"algo.target_entropy={target}"]
    case = Sac(configure, *given)
    _, density = draw(case.policy, case.obs, case.noise_policy)
    _, metrics, gradients = case.learn()
    close(metrics["entropy"], -density.mean())
    wanted = -DIM if target is None else target
    close(gradients["temperature.log_alpha"], -density.mean() - wanted)


def test_sac_target_follows_by_tau(configure):
    case = Sac(configure, "algo.tau=0.25")
    case.algorithm.learn(case.batch)
    moved = case.weights_of("critic")
    for key, value in case.weights_of("target").items():
        close(value, 0.75 * case.target[key] + 0.25 * moved[key])


def test_density_integrates_to_one():
    """The squash correction, by itself: over all actions the density of the policy sums to 1."""
    from gear.train.models.networks import GaussianPolicy

    torch.manual_seed(0)
    policy = GaussianPolicy(OBS, 1, [5])
    with torch.no_grad():
        action, log_density = policy(torch.ones(40_000, OBS))
    # E[1 / p(a)] over draws is the length of the interval of actions.
    inside = action[:, 0].abs() < 0.9
    length = float((inside / log_density.exp()).mean())
    assert length == pytest.approx(1.8, rel=0.03)


@pytest.mark.parametrize(("asked", "used"), [(-100, -5), (100, 2), (1, 1)])
def test_spread_of_the_policy_has_limits(asked, used):
    from gear.train.models.networks import GaussianPolicy

    policy = GaussianPolicy(OBS, 1, [5])
    with torch.no_grad():
        policy.body[-1].weight.zero_()
        policy.body[-1].bias.copy_(torch.tensor([0.1, float(asked)]))
        state = torch.get_rng_state()
        noise = torch.randn(50, 1)
        torch.set_rng_state(state)
        action, _ = policy(torch.ones(50, OBS))
    torch.testing.assert_close(action, torch.tanh(0.1 + noise * math.exp(used)))


# ---- optimisers ----


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_optimiser_takes_its_keys(configure, name):
    """One step of Adam as its paper writes it, with decay in the gradient or, in AdamW, beside."""
    keys = {"lr": 0.02, "betas": [0.6, 0.8], "eps": 0.01, "weight_decay": 0.3}
    given = [f"optim.{key}={str(value).replace(' ', '')}" for key, value in keys.items()]
    case = Sac(configure, f"optim={name}", *given)
    before = {**case.weights_of("policy"), **case.weights_of("critic")}
    _, _, gradients = case.learn()
    after = {**case.weights_of("policy"), **case.weights_of("critic")}
    for key, value in before.items():
        gradient = gradients.get(f"policy.{key}", gradients.get(f"critic.{key}"))
        if name == "adam":
            gradient = gradient + 0.3 * value
        else:
            value = value * (1 - 0.02 * 0.3)
        mean, square = gradient, gradient**2  # the first step's corrections cancel the betas
        close(after[key], value - 0.02 * mean / (np.sqrt(square) + 0.01))


def test_betas_are_means_of_gradients(configure):
    """The second step tells betas apart: the first one's corrections cancel them. It is long, so
    that the gradient after it is another one."""
    given = ("optim.betas=[0.6,0.8]", "optim.eps=1e-3", "optim.lr=0.1")
    case = Case(configure, *given, discrete=True)
    first = part(case.learn()[2], "online")
    before = case.weights_of("online")
    second = part(case.learn()[2], "online")
    after = case.weights_of("online")
    for key in before:
        mean = (0.6 * 0.4 * first[key] + 0.4 * second[key]) / (1 - 0.6**2)
        square = (0.8 * 0.2 * first[key] ** 2 + 0.2 * second[key] ** 2) / (1 - 0.8**2)
        close((before[key] - after[key]) / 0.1, mean / (np.sqrt(square) + 1e-3))


def test_weight_decay_leaves_the_temperature_alone(configure):
    """AdamW's decay would pull log_alpha to zero, alpha to 1."""
    case = Sac(configure, "optim=adamw", "optim.weight_decay=0.5", log_alpha=-2.0)
    case.learn()
    moved = case.algorithm.modules["temperature"].log_alpha.item() + 2.0
    assert abs(moved) == pytest.approx(case.config.optim.lr, rel=1e-3)

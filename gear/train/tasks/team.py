"""Environments of several agents that act at once: PettingZoo's parallel API."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box

import gear
from gear.train.config import Env
from gear.train.tasks.environment import Array, Environment


class Team(Environment):
    """`parallel_env(**env.kwargs)` of the module `env.id`; its agents are an axis.

    An observation is [num_agents, size + num_actions]: what each agent observes, flat, and behind
    it which of its discrete actions are available, 1 or 0, as the simulator says in
    `infos[agent]["action_mask"]`; all where it says nothing. Replay holds them in two columns, obs
    and available. An agent that has left observes zeros, earns nothing, and has its first action.

    The episode has terminated if every agent's has; it is truncated if it ends otherwise.
    """

    def __init__(self, config: Env, seed: int) -> None:
        simulator = _make(config)
        self.agents: tuple[str, ...] = tuple(simulator.possible_agents)
        self.num_agents = len(self.agents)
        shown, acted = (
            [of(agent) for agent in self.agents]
            for of in (simulator.observation_space, simulator.action_space)
        )
        alike = all(isinstance(space, Box) and space.shape == shown[0].shape for space in shown)
        if not alike or any(space != acted[0] for space in acted):
            raise gear.InvalidArgument(
                f"[train] the agents of {config.id} observe {shown} and act in {acted}: allowed "
                "are agents that observe arrays (Box) of one shape and act in one space; pad them "
                "with a wrapper of your own"
            )
        self._size = int(np.prod(shown[0].shape))
        choices = int(getattr(acted[0], "n", 0))
        shape = (self.num_agents, self._size + choices)
        super().__init__(
            *(config, seed, simulator), obs_shape=shape, dtype="float32", actions=acted[0]
        )
        self._rewards: Array = np.zeros(self.num_agents, np.float32)
        self._ended = dict.fromkeys(self.agents, False)

    @property
    def columns(self) -> list[gear.Column]:
        obs, *others = super().columns
        split = [gear.Column("obs", (self.num_agents, self._size), obs.dtype)]
        if self.num_actions:
            split.append(gear.Column("available", (self.num_agents, self.num_actions), "bool"))
        each = {column.name: column for column in others}
        each["reward"] = gear.Column("reward", (self.num_agents,), "float32")
        return [*split, *each.values()]

    def stored(self, obs: Array) -> Mapping[str, Array]:
        found = {"obs": obs[..., : self._size]}
        return {**found, "available": obs[..., self._size :] > 0} if self.num_actions else found

    @property
    def action_kind(self) -> tuple[tuple[int, ...], str]:
        shape, dtype = super().action_kind
        return (self.num_agents, *shape), dtype

    def random_action(self, chance: np.random.Generator) -> Array:
        if self.num_actions:
            available = self.stored(self.obs)["available"]
            return np.array([chance.choice(np.flatnonzero(each)) for each in available])
        return chance.uniform(-1, 1, (self.num_agents, self.action_dim)).astype(np.float32)

    def learning_reward(self, reward: float) -> Array:
        clip = self._reward_clip
        return self._rewards if clip is None else self._rewards.clip(-clip, clip)

    def _reset(self, seed: int) -> Array:
        self._ended = dict.fromkeys(self.agents, False)
        return self._seen(*self._env.reset(seed=seed))

    def _step(self, action: Array | int) -> tuple[Array, float, bool, bool]:
        assert isinstance(action, np.ndarray)
        there = set(self._env.agents)
        told = {
            agent: self._command(each)
            for agent, each in zip(self.agents, action, strict=True)
            if agent in there
        }
        obs, rewards, terminations, _, infos = self._env.step(told)
        self._rewards = np.array([rewards.get(each, 0.0) for each in self.agents], np.float32)
        for agent, ended in terminations.items():
            self._ended[agent] |= bool(ended)
        over = not self._env.agents
        terminated = over and all(self._ended.values())
        return self._seen(obs, infos), float(self._rewards.mean()), terminated, over != terminated

    def _seen(self, obs: Mapping[str, Any], infos: Mapping[str, Any]) -> Array:
        whole = np.zeros(self.obs_shape, np.float32)
        for row, agent in enumerate(self.agents):
            if agent in obs:
                whole[row, : self._size] = np.ravel(obs[agent])
                whole[row, self._size :] = infos.get(agent, {}).get("action_mask", 1)
            else:
                whole[row, self._size : self._size + 1] = self.num_actions > 0
        return whole

    def _command(self, action: Array | int) -> Any:
        command = super()._command(action)
        return command if self.num_actions else command.astype(np.float32)


def _make(config: Env) -> Any:
    try:
        module = importlib.import_module(config.id)
    except ImportError as error:
        raise gear.InvalidArgument(
            f"[train] cannot make environment env.id={config.id}: {error}: give the module of a "
            "parallel environment, as mpe2.simple_spread_v3, and install what it is in"
        ) from error
    if not hasattr(module, "parallel_env"):
        raise gear.InvalidArgument(
            f"[train] cannot make environment env.id={config.id}: the module has no parallel_env: "
            "give one of PettingZoo's parallel API"
        )
    try:
        return module.parallel_env(**config.kwargs)
    except (TypeError, ValueError) as error:
        raise gear.InvalidArgument(
            f"[train] cannot make environment env.id={config.id} with env.kwargs={config.kwargs}: "
            f"{error}"
        ) from error

"""n-step transitions as windows over stored steps.

    stored:   step t: obs[t], action[t], reward[t] and terminated[t] (both due to action[t])
              closing step T of an ended episode: obs[T] only
    anchor t: reward window  [t, t+n)            m = lengths["reward"] = min(n, T - t) are there
              obs window     [t+1-stack, t+n+1)  its rows [0, stack) are the state at t, its rows
                                                 [m, m+stack) the bootstrap state, at t+m

A truncated episode bootstraps from its closing observation, a terminated one from nothing (discount
0). One obs window holds both states: n + stack observations move, not 2 * stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

import gear


def outputs(n_step: int, stack: int) -> dict[str, gear.Step | gear.Window]:
    """What `transitions` needs of a loader."""
    return {
        "obs": gear.Window(1 - stack, n_step + 1),
        "action": gear.Step(),
        "reward": gear.Window(0, n_step),
        "terminated": gear.Window(0, n_step),
    }


class Stored(NamedTuple):
    """A batch of `outputs(n_step, stack)`."""

    obs: Tensor  # [B, stack + n, *obs_shape]
    action: Tensor
    reward: Tensor  # float32 [B, n], of several agents [B, n, agents]
    terminated: Tensor  # bool [B, n]
    steps: Tensor  # int32 [B]: m


def read(batch: gear.Batch) -> Stored:
    steps = batch.lengths["reward"]
    obs = batch["obs"]
    if "available" in batch:  # as gear.train.tasks.team shows it
        obs = torch.cat([obs, batch["available"].float()], -1)
    return Stored(obs, batch["action"], batch["reward"], batch["terminated"], steps)


@dataclass(frozen=True)
class Transitions:
    """B transitions; q(obs, action) is to become returns + discount * value(next_obs)."""

    obs: Tensor  # [B, stack, *obs_shape], as stored
    action: Tensor  # float32 [B, action_dim] or int64 [B]; of several agents [B, agents, ...]
    returns: Tensor  # float32 [B] or [B, agents], sum of gamma^k reward[t+k] over k < m
    discount: Tensor  # float32 [B], gamma^m, or 0 where the episode terminated on the way
    next_obs: Tensor  # [B, stack, *obs_shape]


def powers_of(gamma: float, n_step: int, device: torch.device | str = "cpu") -> Tensor:
    """gamma^0 ... gamma^n, float32 [n + 1]: made once, since a copy to a GPU waits for it."""
    return torch.tensor([gamma**k for k in range(n_step + 1)], device=device)


def transitions(stored: Stored, *, powers: Tensor, stack: int) -> Transitions:
    """`powers` are `powers_of(gamma, n_step)`."""
    obs, action, reward, terminated, lengths = stored
    n_step = reward.shape[1]
    if n_step == 1:
        return Transitions(
            obs=obs[:, :stack],
            action=action,
            returns=reward[:, 0],
            discount=torch.where(terminated[:, 0], 0.0, powers[1]),
            next_obs=obs[:, 1:],
        )
    steps = lengths.long()
    rows = steps[:, None] + torch.arange(stack, device=steps.device)
    return Transitions(
        obs=obs[:, :stack],
        action=action,
        returns=reward.movedim(1, -1) @ powers[:n_step],
        discount=torch.where(terminated.any(1), 0.0, powers[steps]),
        next_obs=obs[torch.arange(len(obs), device=rows.device)[:, None], rows],
    )

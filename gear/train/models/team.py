"""Values of the actions of a team: by a transformer over its agents, or of each agent by itself.

Both take observations as gear.train.tasks.team has them: float32 [B, stack, agents, size], behind
what an agent observes whether each of its `num_actions` is available. The value of what is not is
NOT_AVAILABLE.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gear.train.models.block import Block, initialise, undecayed
from gear.train.models.networks import dense

NOT_AVAILABLE = -1e9  # not infinite: a discount of 0 times it is 0


def available(obs: Tensor, num_actions: int) -> Tensor:
    """By the newest observation, bool [B, agents, num_actions]."""
    return obs[:, -1, :, obs.shape[-1] - num_actions :] > 0


def of_agents(obs: Tensor) -> Tensor:
    """What each agent has seen, float32 [B, agents, stack * size]."""
    return obs.transpose(1, 2).flatten(2).float()


class AgentBlock(Block):
    """Agents look at all agents, or, if `where` is True, at themselves and at earlier ones."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, where: bool) -> Tensor:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v, is_causal=where).transpose(1, 2)


class AgentTransformer(nn.Module):
    """The multi-agent transformer (Wen et al. 2022, arXiv:2205.14953): an encoder over agents, and
    a decoder that takes their actions one after the other.

    A team acts by T choices: each agent chooses an action, or for each dimension of a continuous
    one the middle of one of `bins` equal parts of -1 ... 1. The value of a choice is that of the
    whole team's action, given the choices before it, if those behind it are the best ones.

    The encoder lets every agent see all agents, so the decoder's causal attention over the tokens
    (an agent as encoded, its place, the choice before it) stands for the original's attention to
    choices and to encoded agents in turn.

    Args:
        obs_size: of an agent, with what is available behind.
        num_actions: discrete ones; 0 for continuous ones, `action_dim` of them.
    """

    def __init__(
        self,
        *,
        num_agents: int,
        obs_size: int,
        num_actions: int,
        action_dim: int,
        bins: int,
        width: int,
        layers: int,
        heads: int,
    ) -> None:
        super().__init__()
        self.num_actions, self.bins = num_actions, bins
        self.dims = 1 if num_actions else action_dim
        self.num_choices = num_agents * self.dims
        choices = num_actions or bins
        self.embed_obs = nn.Linear(obs_size, width)
        self.embed_agent = nn.Embedding(num_agents, width)
        self.embed_place = nn.Embedding(self.num_choices, width)
        self.embed_choice = nn.Embedding(choices, width)
        self.encoder = nn.ModuleList(AgentBlock(width, heads) for _ in range(layers))
        self.decoder = nn.ModuleList(AgentBlock(width, heads) for _ in range(layers))
        self.norm_out = nn.LayerNorm(width)
        self.head = nn.Linear(width, choices)
        initialise(self, [b for b in self.modules() if isinstance(b, AgentBlock)])

    def forward(self, obs: Tensor, choices: Tensor) -> Tensor:
        """Values of every choice at all places, float32 [B, T, choices]; of `choices`, int64
        [B, T], those before a place count. Of the first n <= T choices: [B, n + 1, choices], up to
        the place behind them."""
        return self._decoded(self._encoded(obs), self._mask(obs), choices)

    def choose(
        self, obs: Tensor, explores: Tensor | None = None, chance: Tensor | None = None
    ) -> Tensor:
        """The choices of greatest value, one place after the other, int64 [B, T].

        explores: bool [B, T], where the available choice of the greatest `chance` [B, T, choices]
        is made in place of it; later places see it.
        """
        encoded, mask = self._encoded(obs), self._mask(obs)
        made = torch.zeros(len(obs), 0, dtype=torch.int64, device=obs.device)
        for place in range(self.num_choices):
            best = self._decoded(encoded, mask, made)[:, place].argmax(1)
            if explores is not None and chance is not None:
                other = chance[:, place].masked_fill(~mask[:, place], -1.0).argmax(1)
                best = torch.where(explores[:, place], other, best)
            made = torch.cat([made, best[:, None]], 1)
        return made

    def greedy(self, obs: Tensor) -> Tensor:
        """The best actions, int64 [B, agents], or float32 [B, agents, action_dim] in -1 ... 1."""
        return self.actions(self.choose(obs))

    def actions(self, choices: Tensor) -> Tensor:
        """What choices [B, T] stand for: as `greedy` has it."""
        if self.num_actions:
            return choices
        middles: Tensor = (2 * choices + 1) / self.bins - 1
        return middles.view(len(choices), -1, self.dims)

    def choices(self, actions: Tensor) -> Tensor:
        """The inverse of `actions`: the bin that holds an action."""
        if self.num_actions:
            return actions
        bins = ((actions.flatten(1) + 1) / 2 * self.bins).long()
        return bins.clamp(0, self.bins - 1)

    def undecayed(self) -> Iterable[Tensor]:
        """What `weight_decay` must leave alone."""
        return undecayed(self)

    def _mask(self, obs: Tensor) -> Tensor:
        """Choices that are available, bool [B, T, choices]."""
        if self.num_actions:
            return available(obs, self.num_actions)
        shape = (len(obs), self.num_choices, self.bins)
        return torch.ones(shape, dtype=torch.bool, device=obs.device)

    def _encoded(self, obs: Tensor) -> Tensor:
        x: Tensor = self.embed_obs(of_agents(obs)) + self.embed_agent.weight
        for block in self.encoder:
            x = block(x, False)
        return x

    def _decoded(self, encoded: Tensor, mask: Tensor, choices: Tensor) -> Tensor:
        places = min(choices.shape[1] + 1, self.num_choices)
        x = encoded.repeat_interleave(self.dims, 1)[:, :places] + self.embed_place.weight[:places]
        before = self.embed_choice(choices[:, : places - 1])
        x = x + F.pad(before, (0, 0, 1, 0))
        for block in self.decoder:
            x = block(x, True)
        values: Tensor = self.head(self.norm_out(x))
        return values.masked_fill(~mask[:, :places], NOT_AVAILABLE)


class IndependentQ(nn.Module):
    """Value of every action of each agent, by what this agent observes alone; float32 [B, agents,
    num_actions]. Weights are shared: an agent's number is among what it observes, or put there."""

    def __init__(
        self, num_agents: int, obs_size: int, num_actions: int, hidden: Sequence[int]
    ) -> None:
        super().__init__()
        self.num_actions = num_actions
        self.embed_agent = nn.Embedding(num_agents, obs_size)
        nn.init.zeros_(self.embed_agent.weight)
        self.head = dense([obs_size, *hidden, num_actions])

    def forward(self, obs: Tensor) -> Tensor:
        values: Tensor = self.head(of_agents(obs) + self.embed_agent.weight)
        return values.masked_fill(~self.available(obs), NOT_AVAILABLE)

    def available(self, obs: Tensor) -> Tensor:
        """bool [B, agents, num_actions]."""
        return available(obs, self.num_actions)

    def greedy(self, obs: Tensor) -> Tensor:
        """The actions of greatest value, int64 [B, agents]."""
        return self.forward(obs).argmax(2)

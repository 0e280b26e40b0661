"""What algorithms share that predict the actions of saved episodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import gear
from gear.train.algo.base import Player
from gear.train.algo.one_loss import OneLoss
from gear.train.config import Config, Imitating, Transformer
from gear.train.models.attention import Packed, obstacle_to_varlen
from gear.train.models.decision_transformer import DecisionTransformer
from gear.train.models.networks import Reactive
from gear.train.models.scales import Scales
from gear.train.ranks import Ranks
from gear.train.tasks.environment import Environment
from gear.train.tasks.played import Played
from gear.train.tasks.saved import Facts, look, open_saved

Network = DecisionTransformer | Reactive


class Imitation(OneLoss[Network]):
    """Learns from windows of saved episodes.

    Continuous actions by the squared error, mean over their dimensions; discrete ones by the cross
    entropy. The loss is the mean over the windows of each window's mean over its steps: so ranks
    that share a batch of windows have the loss of one rank that has it all.
    """

    metric_names = ("loss", "action_error")
    _plan: Imitating

    def __init__(
        self,
        config: Config,
        env: Environment,
        ranks: Ranks,
        make_network: Callable[[], Network],
    ) -> None:
        assert isinstance(config.algo, Imitating)
        super().__init__(config, env, ranks, make_network)
        self._env = env
        self._discrete = env.num_actions > 0
        self._scales = Scales(env.obs_shape).to(self.device)
        self.modules["scales"] = self._scales
        self.chosen = {"attention": self._attention()}

    @abstractmethod
    def forward(
        self, model: nn.Module, steps: Mapping[str, Tensor], packed: Packed | None = None
    ) -> Tensor:
        """Logits of discrete actions or continuous ones, float32 [B, L, actions], or [T, actions]
        if packed.

        steps: return_to_go, obs, action and step, by name, as far as they are asked for.
        """

    @abstractmethod
    def study(self, facts: Facts) -> None:
        """Takes what it needs from what the data is like; InvalidArgument if it does not fit."""

    def look(self) -> Facts:
        self.facts = look(self._config, self._env, self._ranks.size)
        longest = int(self.facts.lengths.max())
        most = getattr(self._model, "max_steps", longest)
        if longest > most:
            raise gear.InvalidArgument(
                f"[train] model.max_steps={most} is too few: an episode of the data has {longest} "
                f"steps; give model.max_steps={longest} or more"
            )
        self.study(self.facts)
        return self.facts

    def open(self, group: gear.Group) -> gear.ReplayBuffer:
        return open_saved(self._config, self._env, self.facts, group)

    def learn(self, batch: gear.Batch) -> Tensor:
        """One update; returns the loss of each window, float32 [B]."""
        losses, wrong = self._errors(self.predict(batch), batch["action"])
        losses, wrong = self._of_windows(batch, losses), self._of_windows(batch, wrong)
        return self.descend(batch, losses, wrong.mean())

    def predict(self, batch: gear.Batch) -> Tensor:
        """The predicted actions of all steps, float32 [B, L, actions], or [T, actions] if packed.

        Those of padding mean nothing.
        """
        packed, per_step = None, getattr(self._model, "tokens", 0)
        if self._plan.packed and per_step:
            rows, longest = len(batch["action"]), self._plan.context
            starts = batch.cu_seqlens["action"]
            packed = Packed.of(starts * per_step, rows * per_step, longest * per_step)
        return self.forward(self._trained.model, batch, packed)

    def player(self) -> Player:
        played = Played(self._plan.context, self._env, self._scales.target)

        def play(view: NDArray[Any], reward: float) -> NDArray[Any]:
            played.see(view[-1], reward)
            steps, newest = played.window(self.device)
            self._playing.eval()
            with torch.no_grad():
                predicted = self.forward(self._playing, steps)[0, newest]
            self._model.train()
            action = predicted.argmax() if self._discrete else predicted
            chosen: NDArray[Any] = action.cpu().numpy()
            played.act(chosen)
            return chosen

        return play

    def _errors(self, predicted: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and distance of the action of each step, float32 of the steps' shape."""
        if self._discrete:
            flat = F.cross_entropy(predicted.flatten(0, -2), action.flatten(), reduction="none")
            wrong = predicted.detach().argmax(-1) != action
            return flat.view(action.shape), wrong.float()
        difference = predicted - action
        return difference.square().mean(-1), difference.detach().abs().mean(-1)

    def _of_windows(self, batch: gear.Batch, of_steps: Tensor) -> Tensor:
        """Mean of each window's steps, of [B, L] (padding is left out) or of [T] if packed."""
        lengths: Tensor = batch.lengths["action"]
        if self._plan.packed:
            windows = torch.arange(len(lengths), device=lengths.device)
            of = torch.repeat_interleave(windows, lengths, output_size=len(of_steps))
            sums = of_steps.new_zeros(len(lengths)).index_add(0, of, of_steps)
        else:
            sums = torch.where(batch.masks["action"], of_steps, 0.0).sum(1)
        return sums / lengths

    def compile(self) -> str:
        """Has torch.compile translate the blocks, all alike, once; returns what was chosen."""
        if self._plan.compile == "off":
            return "not compiled, as algo.compile says"
        if self.device.type != "cuda":
            return f"not compiled, as it pays on GPUs and this is {self.device.type}"
        if isinstance(self._model, Reactive):
            return "not compiled: an MLP has no blocks"
        for block in self._model.blocks:
            block.compile(dynamic=self._plan.packed)
        return "the blocks by torch.compile"

    def _attention(self) -> str:
        """How windows reach the attention, and why so."""
        if isinstance(self._model, Reactive):
            return "none: an MLP sees each step by itself"
        if not self._plan.packed:
            return "padded windows, scaled_dot_product_attention"
        obstacle = obstacle_to_varlen(self.device, self._model.precision)
        if obstacle:
            return f"packed windows, padded for the attention alone: {obstacle}"
        return "packed windows, varlen_attn"


def make_transformer(config: Config, env: Environment, *, returns: bool) -> DecisionTransformer:
    """The transformer of the groups `model` and `algo` for this environment."""
    model, algo = config.model, config.algo
    assert isinstance(model, Transformer)
    assert isinstance(algo, Imitating)
    return DecisionTransformer(
        obs_shape=env.obs_shape,
        num_actions=env.num_actions,
        action_dim=env.action_dim,
        width=model.width,
        layers=model.layers,
        heads=model.heads,
        max_steps=model.max_steps,
        returns=returns,
        dropout=model.dropout,
        recompute=algo.recompute,
        precision=getattr(torch, algo.precision),
    )

"""Decision transformer (Chen et al. 2021, arXiv:2106.01345): learns from saved data only."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

import gear
from gear.train.algo.imitation import Imitation, make_transformer
from gear.train.config import Config, Dt
from gear.train.models.attention import Packed
from gear.train.models.decision_transformer import DecisionTransformer
from gear.train.ranks import Ranks
from gear.train.tasks.environment import Environment
from gear.train.tasks.saved import RETURN_TO_GO, Facts


class DecisionTransformerAlgorithm(Imitation):
    """Predicts the actions of the data's windows, each from the return that then followed.

    It plays by asking for a return: `target_return` at the episode's begin, less what came since.
    """

    def __init__(self, config: Config, env: Environment, ranks: Ranks) -> None:
        assert isinstance(config.algo, Dt)
        self._algo = config.algo

        def make_network() -> DecisionTransformer:
            return make_transformer(config, env, returns=True)

        super().__init__(config, env, ranks, make_network)
        steps = gear.Window(1 - config.algo.context, 1, pad="tail")
        names = ("obs", "action", RETURN_TO_GO)
        self.outputs = {**dict.fromkeys(names, steps), "step": gear.StepIndex(steps)}

    def study(self, facts: Facts) -> None:
        """Takes scales and the return to ask for from the data."""
        asked = self._algo.target_return
        self._scales.set(
            mean=torch.from_numpy(facts.obs_mean),
            std=torch.from_numpy(facts.obs_std),
            largest_return=facts.largest,
            target=facts.best_return if asked is None else asked,
        )

    def forward(
        self, model: nn.Module, steps: Mapping[str, Tensor], packed: Packed | None = None
    ) -> Tensor:
        to_go, obs = self._scales.to_go(steps[RETURN_TO_GO]), self._scales.observation(steps["obs"])
        predicted: Tensor = model(to_go, obs, steps["action"], steps["step"], packed)
        return predicted

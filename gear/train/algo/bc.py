"""Behaviour cloning (Pomerleau 1991, doi:10.1162/neco.1991.3.1.88), held to unseen episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import gear
from gear.train.algo.imitation import Imitation, Network, make_transformer
from gear.train.config import Bc, Config, Dense
from gear.train.models.attention import Packed
from gear.train.models.cloned import ClonedPolicy
from gear.train.models.exported import Exported
from gear.train.models.networks import Reactive
from gear.train.ranks import Ranks
from gear.train.tasks.environment import Environment
from gear.train.tasks.saved import Facts, open_saved

AT_ONCE = 256  # steps that are scored together


class BehaviourCloning(Imitation):
    """Predicts the data's actions: an MLP from the observation, a transformer from a window.

    `algo.held_out` of the episodes are kept apart, chosen by seed and number. Each of their steps
    is predicted as in play, at the end of its window, and the scores are means over all of them.
    """

    def __init__(self, config: Config, env: Environment, ranks: Ranks) -> None:
        assert isinstance(config.algo, Bc)
        model, self._held_out_share = config.model, config.algo.held_out

        self._shape: dict[str, Any] = {
            "obs_shape": env.obs_shape,
            "num_actions": env.num_actions,
            "action_dim": env.action_dim,
        }
        if isinstance(model, Dense):
            self._shape["hidden"] = model.hidden

        def make_network() -> Network:
            if isinstance(model, Dense):
                return Reactive(**self._shape)
            return make_transformer(config, env, returns=False)

        super().__init__(config, env, ranks, make_network)
        self._held_out: gear.ReplayBuffer | None = None
        if self._held_out_share:
            second = "held_out_accuracy" if self._discrete else "held_out_error"
            self.score_names = ("held_out_loss", second)
        steps = gear.Window(1 - config.algo.context, 1, pad="tail")
        self.outputs = {"obs": steps, "action": steps, "step": gear.StepIndex(steps)}

    def study(self, facts: Facts) -> None:
        """Takes scales of what is learned from."""
        mean, std = torch.from_numpy(facts.obs_mean), torch.from_numpy(facts.obs_std)
        self._scales.set(mean=mean, std=std, largest_return=1.0, target=0.0)

    def open(self, group: gear.Group) -> gear.ReplayBuffer:
        if self._held_out_share:
            self._held_out = open_saved(self._config, self._env, self.facts, group, held_out=True)
        return super().open(group)

    def forward(
        self, model: nn.Module, steps: Mapping[str, Tensor], packed: Packed | None = None
    ) -> Tensor:
        obs = self._scales.observation(steps["obs"])
        predicted: Tensor = model(None, obs, steps["action"], steps["step"], packed)
        return predicted

    def exported(self) -> Exported | None:
        """Of an MLP; a transformer needs the steps before."""
        if not isinstance(self._model, Reactive):
            return None
        whole = ClonedPolicy(**self._shape)
        whole.network.load_state_dict(self._playing.state_dict())
        whole.scales.load_state_dict(self._scales.state_dict())
        return Exported(whole, self._shape)

    def scores(self) -> dict[str, float]:
        """Mean loss of all held-out steps, and share of right actions or their mean error."""
        if self._held_out is None:
            return {}
        from gear.train.record.means import Means  # takes half a second

        means = Means(2, self._ranks)
        self._playing.eval()
        for episode in self._held_out.episodes():
            for first in range(0, len(episode.ids), AT_ONCE):
                ids = episode.ids[first : first + AT_ONCE]
                loss, wrong = self._errors_at(self._held_out, ids)
                means.update(torch.stack([loss.sum(), wrong.sum()]).cpu(), len(ids))
        self._model.train()
        loss, wrong = means.compute().tolist()
        second = 1.0 - wrong if self._discrete else wrong
        return dict(zip(self.score_names, (loss, second), strict=True))

    @torch.no_grad()
    def _errors_at(self, buffer: gear.ReplayBuffer, ids: object) -> tuple[Tensor, Tensor]:
        """Of the steps with these ids, each the newest of its window."""
        where = str(self.device)
        batch = buffer.collect(ids, self.outputs, device=where, framework="torch")
        newest = batch.lengths["action"].long() - 1
        rows = torch.arange(len(newest), device=newest.device)
        predicted = self.forward(self._playing, batch)[rows, newest]
        return self._errors(predicted, batch["action"][rows, newest])

"""`policy.pt`: a trained policy as a plain state dict with its configuration, and nothing else.

It may be a stranger's. It is read with `weights_only=True`, which cannot run code, and what it says
chooses nothing but one of NETWORKS, its sizes and its weights: `config` is handed on as text, and
who uses it decides what of it (`policies.trained`).

    format      1
    network     one of NETWORKS: the class of gear.train.models, as `networks:GaussianPolicy`
    arguments   of that class
    state_dict  name -> tensor
    interface   {"stack": observations that it sees, and "first": the first of discrete actions, or
                "low": [...], "high": [...]: the bounds of continuous ones}
    config      the run's configuration, YAML
    run         the word of the run that wrote it (`record.folder`)
    evaluation  the step and the mean return of the evaluation that chose it; null: none did
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import gear

FORMAT = 1
NEEDED = {"network", "arguments", "state_dict", "interface", "config"}
NETWORKS = (
    *("networks:QNetwork", "networks:GaussianPolicy", "cloned:ClonedPolicy"),
    *("team:AgentTransformer", "team:IndependentQ"),
)


@dataclass(frozen=True)
class Exported:
    """A network and the arguments that make another like it.

    The class is one of gear.train.models and has `greedy`: observations as stored [B, stack, *obs]
    to the best actions [B, ...].
    """

    network: nn.Module
    arguments: Mapping[str, Any]


class Policy:
    """Plays greedily.

    Attributes:
        network: as it was trained.
        config: the run's configuration, YAML.
        run: the word of the run; None: of a version before there were words.
    """

    def __init__(
        self, network: nn.Module, interface: Mapping[str, Any], config: str, run: str | None = None
    ) -> None:
        self.network = network.eval().requires_grad_(False)
        self.config = config
        self.run = run
        self._interface = interface

    def __call__(self, obs: NDArray[Any]) -> Any:
        """What the environment is told: an integer, or float32 within its bounds; for several
        agents [agents] of them.

        obs: as the environment shows it; if the run stacked them, the newest ones [stack, ...].
        """
        given = self._interface
        action = self.best(np.array(obs)[None] if given["stack"] == 1 else np.array(obs))
        if "first" in given:
            return given["first"] + (int(action) if action.ndim == 0 else action)
        low, high = (np.array(given[key], np.float32) for key in ("low", "high"))
        return low + (action.reshape(low.shape) + 1) * (high - low) / 2

    def best(self, view: NDArray[Any]) -> NDArray[Any]:
        """The best action as the network gives it: from 0 on, or within [-1, 1].

        view: [stack, *obs].
        """
        seen = torch.from_numpy(view).to(next(self.network.parameters()).device)
        if seen.dtype is not torch.uint8:
            seen = seen.float()
        found: Tensor = self.network.greedy(seen.unsqueeze(0))[0]  # type: ignore[operator]
        return found.cpu().numpy()


def save_policy(
    path: Path,
    of: Exported,
    interface: Mapping[str, Any],
    config: str,
    run: str,
    evaluation: tuple[int, float] | None = None,
) -> Path:
    """Writes it whole or not at all; the network is one of NETWORKS."""
    kind = type(of.network)
    module = kind.__module__.removeprefix("gear.train.models.")
    saved = {
        "format": FORMAT,
        "network": f"{module}:{kind.__name__}",
        "arguments": dict(of.arguments),
        "state_dict": {name: t.detach().cpu() for name, t in of.network.state_dict().items()},
        "interface": dict(interface),
        "config": config,
        "run": run,
        "evaluation": evaluation,
    }
    beside = path.with_suffix(".pt.part")
    torch.save(saved, beside)
    beside.replace(path)
    return path


def load_policy(path: str | Path) -> Policy:
    """Raises CorruptData if it is no policy that this version of GEAR reads."""
    saved = _read(path)
    if saved["network"] not in NETWORKS:
        raise gear.CorruptData(
            f"[train] {path} is of network={saved['network']!r}, and a policy is one of "
            f"{', '.join(NETWORKS)}: give the policy.pt that gear train writes at its end"
        )
    module, _, name = saved["network"].partition(":")
    kind = getattr(importlib.import_module(f"gear.train.models.{module}"), name)
    try:
        network: nn.Module = kind(**saved["arguments"])
        network.load_state_dict(saved["state_dict"])
        return Policy(network, saved["interface"], str(saved["config"]), saved.get("run"))
    except Exception as error:  # whatever wrong sizes and weights end in
        reason = " ".join(str(error).split())
        raise gear.CorruptData(
            f"[train] {path} holds weights that do not make its {saved['network']}: {reason}"
        ) from error


def evaluation_of(path: Path) -> tuple[int, float] | None:
    """Step and mean return of the evaluation that chose the policy. CorruptData as above."""
    found: tuple[int, float] | None = _read(path).get("evaluation")
    return found


def _read(path: str | Path) -> dict[str, Any]:
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception:  # noqa: BLE001  # whatever the unpickler stumbles over
        saved = None
    found = saved.get("format") if isinstance(saved, dict) else None
    if not isinstance(saved, dict) or found != FORMAT or not saved.keys() >= NEEDED:
        what = f"one of format {FORMAT} that lacks a part" if found == FORMAT else found
        raise gear.CorruptData(
            f"[train] {path} is no policy of format {FORMAT} but {what or 'another file'}: give "
            "the policy.pt that gear train writes at its end"
        )
    return saved

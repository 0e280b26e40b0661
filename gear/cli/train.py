"""`gear train`: hands its arguments to the trainer, unchanged."""

from __future__ import annotations

import importlib.util
import os

from gear.errors import InvalidArgument

# Module -> distribution: what the trainer cannot start without.
NEEDED = {"torch": "torch", "hydra": "hydra-core", "gymnasium": "gymnasium"}


def run(overrides: list[str]) -> int:
    """Train; returns the exit code (130 after Ctrl-C, with a checkpoint saved)."""
    lacking = [name for module, name in NEEDED.items() if importlib.util.find_spec(module) is None]
    if lacking:
        raise InvalidArgument(
            f"[train] not installed: {', '.join(lacking)}: the trainer needs the extra [train]: "
            "pip install 'gear-replay[train]'"
        )
    # torch warns of every socket that is slow to answer; who is gone is told in one sentence.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from gear.train.app import main

    code = main(overrides)
    return code if isinstance(code, int) else 0

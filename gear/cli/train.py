"""`gear train`: hands its arguments to the trainer, unchanged."""

from __future__ import annotations

import importlib.util
import os
import sys

from gear.errors import InvalidArgument

# Module -> distribution: what the trainer cannot start without.
NEEDED = {"torch": "torch", "hydra": "hydra-core", "gymnasium": "gymnasium"}


def check_installed() -> None:
    """Raises InvalidArgument if what the trainer needs is not there."""
    lacking = [name for module, name in NEEDED.items() if importlib.util.find_spec(module) is None]
    if lacking:
        raise InvalidArgument(
            f"[train] not installed: {', '.join(lacking)}: the trainer needs the extra [train]: "
            "pip install 'gear-replay[train]'"
        )


def run(overrides: list[str]) -> int:
    """Train; returns the exit code, as gear.train.app.main does."""
    check_installed()
    from gear.train.interrupt import GOES_ON, Taken, taken_outside_of_runs

    # torch warns of every socket that is slow to answer; who is gone is told in one sentence.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        with taken_outside_of_runs():
            from gear.train.app import main

            return main(overrides)
    except Taken as taken:  # while it imported
        print(f"gear: {taken}", file=sys.stderr)
        return GOES_ON

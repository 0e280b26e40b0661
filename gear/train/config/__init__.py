"""The configuration of a run: made once from Hydra's, every value checked, then plain attributes.

A class is a group of `conf/`, a field is a key of it and carries the check of its value. A key that
`conf/` has and no class here is an error of tests/train/test_config.py.
"""

from __future__ import annotations

from gear.train.config.checks import refuse
from gear.train.config.groups import (
    ActingAlgo,
    Agents,
    Bc,
    Data,
    Ddp,
    Deepspeed,
    Dense,
    Dqn,
    Dt,
    Env,
    Fsdp2,
    Horovod,
    Imitating,
    Iql,
    Logger,
    Mat,
    OfflineAlgo,
    Optim,
    Pixels,
    Prioritized,
    PuzzleAlgo,
    Puzzles,
    Replay,
    Sac,
    Single,
    Transformer,
    Wandb,
)
from gear.train.config.pairs import check_pairs
from gear.train.config.plain import written
from gear.train.config.reading import of_the_run, read, read_place
from gear.train.config.run import Config, Place

__all__ = [
    "ActingAlgo",
    "Agents",
    "Bc",
    "Config",
    "Data",
    "Ddp",
    "Deepspeed",
    "Dense",
    "Dqn",
    "Dt",
    "Env",
    "Fsdp2",
    "Horovod",
    "Imitating",
    "Iql",
    "Logger",
    "Mat",
    "OfflineAlgo",
    "Optim",
    "Pixels",
    "Place",
    "Prioritized",
    "PuzzleAlgo",
    "Puzzles",
    "Replay",
    "Sac",
    "Single",
    "Transformer",
    "Wandb",
    "check_pairs",
    "of_the_run",
    "read",
    "read_place",
    "refuse",
    "written",
]

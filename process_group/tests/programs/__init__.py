"""Programs of torch.distributed: each trains or computes on the group that it is given, and returns
numbers that are the same on every backend. Four are those of examples/process_group, on little
data."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from process_group.tests.programs.compression import compression
from process_group.tests.programs.segmentation import segmentation

EXAMPLES = Path(__file__).parents[3] / "examples" / "process_group"
# What cuts an example short. 5 and 7 tables: no two or four ranks divide them.
SMALL = {
    "generic": "--steps=6 --batch-size=8 --elements=37 --below=0",
    "mnist": "--steps=4 --batch-size=32 --drawn=64 --lr=0.02 --below=0",
    "imagenet": "--steps=2 --batch-size=8 --image-size=32 --made-up=20 --lr=0.001 --below=0",
    "dlrm": "--steps=4 --batch-size=24 --rows=50 --tables=5 --lookups=2 --bottom-mlp=4-8 "
    "--top-mlp=16-1 --below=0",
}


def imported(name: str) -> Any:
    """A module of the examples, as it is found by one that is started there."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return importlib.import_module(name)


def _example(name: str) -> Callable[[Any], list[float]]:
    def train(group: Any) -> list[float]:
        program, ranks = imported(name), imported("ranks")
        options = program.parser().parse_args(SMALL[name].split())
        losses: list[float] = program.train(options, ranks.Ranks(name, group, torch.device("cpu")))
        return losses

    return train


PROGRAMS: dict[str, Callable[[Any], list[float]]] = {
    "segmentation": segmentation,
    "compression": compression,
    **{name: _example(name) for name in SMALL},
}

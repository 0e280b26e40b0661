"""Programs of torch.distributed on made-up data: each trains or computes on the group that it is
given, and returns numbers that are the same on every backend.

Each can be run by itself, on as many ranks as one likes:

    gear run -n 4 tests/process_group/programs_worker.py FOLDER
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from process_group.programs.compression import compression
from process_group.programs.dlrm import dlrm
from process_group.programs.generic import generic
from process_group.programs.imagenet import imagenet
from process_group.programs.mnist import mnist
from process_group.programs.segmentation import segmentation

PROGRAMS: dict[str, Callable[[Any], list[float]]] = {
    program.__name__: program
    for program in (generic, segmentation, compression, mnist, imagenet, dlrm)
}

"""The GPUs of a node, and which of them a rank takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

import gear


def gpus_for(device: str, num_ranks: int) -> list[str]:
    """What a rank of several may take as `device`: GPUs as `gpu_of` calls them, in torch's order.

    Raises InvalidArgument where `device` cannot be used.
    """
    if not device.startswith("cuda"):
        return []
    here = check_gpus(device)
    if num_ranks == 1:
        return []
    return [gpu_of(f"cuda:{i}") for i in range(here)] if device == "cuda" else [gpu_of(device)]


def take_device(device: str, group: gear.Group, gpus: Sequence[Sequence[str]]) -> str:
    """A GPU for each rank of a node where `device` is "cuda"; `gpus`: every rank's `gpus_for`."""
    if device == "cuda" and group.size > 1:
        of_node = [
            found for found, node in zip(gpus, group.nodes, strict=True) if node == group.node
        ]
        device = f"cuda:{shared_out(of_node)[group.local_rank]}"
    if device.startswith("cuda:"):
        torch.cuda.set_device(device)
    return device


def shared_out(gpus: Sequence[Sequence[str]]) -> list[int]:
    """Which of those that it may take each rank of a node takes: the first that the fewest ranks
    before it have taken.

    One each, where all see the same, and where a launcher has bound ranks, or some of them
    together, to GPUs of their own.
    """
    taken: Counter[str] = Counter()
    chosen = []
    for mine in gpus:
        best = min(range(len(mine)), key=lambda i: taken[mine[i]], default=0)
        taken.update(mine[best : best + 1])
        chosen.append(best)
    return chosen


def check_gpus(device: str) -> int:
    """How many GPUs are here; InvalidArgument where `device`, a GPU, cannot be used."""
    why = ""
    here = torch.cuda.device_count()
    if not gear._core.build_info()["cuda"]:
        why = (
            "this GEAR was built without CUDA: load the module gear/VERSION-gpu or build with CUDA"
        )
    elif torch.version.cuda is None:
        why = f"torch {torch.__version__} was built without CUDA: install one that has it"
    elif here == 0:
        why = "torch sees no GPU: start where there is one, and look at CUDA_VISIBLE_DEVICES"
    elif device != "cuda" and int(device.split(":")[1]) >= here:
        why = f"torch sees {here} GPU(s): give cuda:0 to cuda:{here - 1}"
    if why:
        raise gear.InvalidArgument(f"[train] device={device}: {why}, or use device=cpu")
    return here


def gpu_of(device: str) -> str:
    """What tells this GPU from every other; empty for a CPU."""
    if not device.startswith("cuda"):
        return ""
    return str(torch.cuda.get_device_properties(device).uuid)

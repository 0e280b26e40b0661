"""The GPUs of a node, and which of them a rank takes."""

from __future__ import annotations

import torch

import gear


def local_device(device: str, group: gear.Group) -> str:
    """A GPU for each rank of a node where `device` is "cuda"; some launchers show it only that."""
    if not device.startswith("cuda"):
        return device
    here = check_gpus(device)
    if device == "cuda" and group.size > 1:
        device = f"cuda:{group.local_rank % here}"
    if device.startswith("cuda:"):
        torch.cuda.set_device(device)
    return device


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

"""The GPUs that DeepSpeed can be tried on, two at most, as its launcher numbers them: 0,1.

    usable_gpus.py "80;90"     the compute capabilities that its operations were compiled for

Nothing where this process can use none: no driver, one too old for this torch, none for this user,
none of those capabilities, or CUDA_VISIBLE_DEVICES that names other than numbers.
"""

from __future__ import annotations

import os
import sys

import torch


def runs(capability: tuple[int, int], architectures: list[int]) -> bool:
    """Code for a GPU runs on its own generation, from that GPU on."""
    major, minor = capability
    return any(each // 10 == major and each % 10 <= minor for each in architectures)


def main(architectures: list[int]) -> list[str]:
    if not torch.cuda.is_available():
        return []
    torch.cuda.init()  # the number before is what the driver lists, not what can be used
    count = torch.cuda.device_count()
    # The launcher numbers all that are here, whatever this variable says.
    numbers = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
    return [
        number.strip()
        for index, number in enumerate(numbers[:count])
        if number.strip().isdigit() and runs(torch.cuda.get_device_capability(index), architectures)
    ][:2]


if __name__ == "__main__":
    print(",".join(main([int(each.rstrip("af")) for each in sys.argv[1].split(";")])))

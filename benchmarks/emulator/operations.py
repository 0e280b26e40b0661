#!/usr/bin/env python3
"""What torch.distributed's operations take, one after the other, as `gear emu calibrate` measures:
under torchrun those of NCCL, under `gear emu run` those that are emulated.

    torchrun --nproc-per-node 2 benchmarks/emulator/operations.py
    gear emu run -N 2 --links links.json -- python benchmarks/emulator/operations.py

Prints one line of JSON on rank 0: us by operation and bytes.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gear.emu.calibrate import OPERATIONS, time_call

cuda: Any = torch.cuda  # of which much has no types


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--largest", type=int, default=1 << 30, metavar="BYTES")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what is printed here, too")
    chosen = parser.parse_args()
    on_gpu = cuda.is_available()
    if on_gpu:
        cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    # Between the sizes that are calibrated, and every second one of these.
    sizes = [
        size
        for power in range(10, 31)
        for size in (1 << power, 5 << (power - 2), 7 << (power - 2))
        if size <= chosen.largest
    ]
    found = {
        f"{operation} {size}": 1e6 * time_call(prepare(size, dist.get_world_size()))
        for operation, prepare in OPERATIONS.items()
        for size in sizes
        if operation != "send"  # a receive from an emulated rank is refused
    }
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
        if chosen.json:
            chosen.json.write_text(json.dumps(found) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Says how many GPUs GEAR sees, and computes on each that torch sees."""

from __future__ import annotations

import torch

import gear

gear.check_visible_device()
for number in range(torch.cuda.device_count()):
    total = int(torch.arange(1000, device=f"cuda:{number}").sum())
    verdict = "the sum is right" if total == 499500 else f"the sum is {total}, not 499500"
    print(f"GPU {number}: {torch.cuda.get_device_name(number)}: {verdict}")

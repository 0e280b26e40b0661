"""torch computes, and is of the right kind: `check_torch.py cpu|gpu`, with or without a GPU."""

from __future__ import annotations

import sys

import torch

kind = sys.argv[1]
built_for = torch.version.cuda
if kind == "gpu" and built_for is None:
    sys.exit(f"torch {torch.__version__} is built without CUDA, and this is a gpu installation")

device = "cuda" if torch.cuda.is_available() else "cpu"
weights = torch.full((8, 4), 0.5, device=device, requires_grad=True)
loss = (torch.ones(2, 8, device=device) @ weights).square().sum()
loss.backward()
assert loss.item() == 2 * 4 * 16.0, loss.item()
assert weights.grad is not None
assert torch.equal(weights.grad.cpu(), torch.full((8, 4), 16.0)), weights.grad
print(f"torch {torch.__version__}, CUDA {built_for or 'none'}: a gradient on {device} is right")

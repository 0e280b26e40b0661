"""torch computes, and is of the right kind, with or without a GPU.

check_torch.py cpu
check_torch.py gpu [VERSION-OF-NVCC ARCHITECTURES], as in: gpu 13.0 "80;90"
"""

from __future__ import annotations

import sys

import torch


def runs(architecture: str, compiled: list[str]) -> bool:
    """A GPU runs code for its own generation up to itself (sm), and PTX of any before (compute)."""
    for form, _, number in (name.partition("_") for name in compiled):
        if number == architecture:
            return True
        if number.isdigit():  # 90a and the like run nowhere else
            other, mine = int(number), int(architecture.rstrip("af"))
            if other <= mine and (form == "compute" or other // 10 == mine // 10):
                return True
    return False


kind = sys.argv[1]
built_for = torch.version.cuda
if kind == "gpu" and built_for is None:
    sys.exit(f"torch {torch.__version__} is built without CUDA, and this is a gpu installation")
if kind == "gpu" and len(sys.argv) == 4:
    nvcc, architectures = sys.argv[2:]
    if nvcc.split(".")[0] != str(built_for).split(".")[0]:
        sys.exit(
            f"error: torch {torch.__version__} is built with CUDA {built_for}, and cuda_home has "
            f"CUDA {nvcc}: what is compiled here would not fit it"
        )
    compiled = torch.cuda.get_arch_list()  # empty where an older torch sees no GPU: not known then
    without = [each for each in architectures.split(";") if compiled and not runs(each, compiled)]
    if without:
        sys.exit(
            f"error: torch {torch.__version__} has no code for {', '.join(without)} of "
            f"cuda_architectures: it has {' '.join(compiled)}"
        )

device = "cuda" if torch.cuda.is_available() else "cpu"
weights = torch.full((8, 4), 0.5, device=device, requires_grad=True)
loss = (torch.ones(2, 8, device=device) @ weights).square().sum()
loss.backward()
assert loss.item() == 2 * 4 * 16.0, loss.item()
assert weights.grad is not None
assert torch.equal(weights.grad.cpu(), torch.full((8, 4), 16.0)), weights.grad
print(f"torch {torch.__version__}, CUDA {built_for or 'none'}: a gradient on {device} is right")

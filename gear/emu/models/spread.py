"""How far what others have published of NCCL lies from the formulas: the interval of the model."""

from __future__ import annotations

LARGE = 64 << 20  # bytes from which on bandwidth is all that counts

# What nine of ten published rows took, over the formulas: benchmarks/emulator/published.py.
_LARGE = (0.80, 1.52)
_SMALL = (1.00, 2.03)


def spread(size: float) -> tuple[float, float]:
    """Of an operation of `size` bytes: the least and the most that it takes, over the formula."""
    return _LARGE if size >= LARGE else _SMALL

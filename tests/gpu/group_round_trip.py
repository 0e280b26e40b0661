#!/usr/bin/env python3
"""Two ranks of a pooled buffer: what compute-sanitizer looks at, in all their processes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rank_processes import run_ranks

CASES = [
    {"tier": "device", "locality": "off", "sampler": "weighted", "batches": 6},
    {"tier": "pinned", "locality": "off", "packed": True, "batches": 6},
]


def main() -> None:
    print("by pointer", run_ranks(2, CASES, timeout_s=200))
    apart = run_ranks(2, CASES, lambda rank: {"GEAR_NODE": str(rank)}, timeout_s=200)
    print("through the host", apart)


if __name__ == "__main__":
    main()

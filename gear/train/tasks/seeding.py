"""Everything random in a run follows from its seed; the generators' states go into checkpoints."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import torch


def seed_generators(seed: int) -> None:
    """Of Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def seed_everything(seed: int, threads: int, *, deterministic: bool = True) -> None:
    """Seed Python, NumPy and torch.

    deterministic: torch takes kernels whose result does not depend on the order in which a GPU's
    threads get to run, and cuBLAS, which reads its variable at its first call, a fixed workspace.
    """
    seed_generators(seed)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    # The fill guards against reads of uninitialised memory; it costs a pass over every new tensor.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.set_num_threads(threads)


def episode_seed(seed: int, episode: int) -> int:
    """Seed of one episode's reset, below 2^31.

    A function of run seed and number, so that an interrupted episode can be started again.
    """
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0] >> 1)


def rank_seed(seed: int, rank: int) -> int:
    """Seed of what differs among ranks: environments and exploration. Rank 0 has the run's own."""
    if rank == 0:
        return seed
    # Three words, so that no episode of rank 0, which has two, is seeded alike.
    return int(np.random.SeedSequence([seed, rank, 1]).generate_state(1)[0] >> 1)


def evaluation_seed(seed: int) -> int:
    """Seed of the episodes of evaluations, on every rank: those of training begin otherwise."""
    return int(np.random.SeedSequence([seed, 0, 2]).generate_state(1)[0] >> 1)


def later_seed(seed: int, step: int) -> int:
    """Seed of exploration where a rank with this seed joins a run after so many steps."""
    return int(np.random.SeedSequence([seed, step, 1, 1]).generate_state(1)[0] >> 1)


def rng_state() -> dict[str, Any]:
    """States of the three global generators (and of the current CUDA device, if in use)."""
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state()] if in_use else [],
    }


def restore_rng(state: dict[str, Any]) -> None:
    """The inverse of `rng_state`."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state(state["cuda"][0])

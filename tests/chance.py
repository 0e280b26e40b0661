"""The chi-square test."""

from __future__ import annotations

import math

import numpy as np


def follows(counts: np.ndarray, law: np.ndarray) -> float:
    """Probability of counts as far from the law: of every outcome, how often it came."""
    expected = law * counts.sum()
    # Cells of at least ten expected draws, as the test's approximation needs.
    order = np.argsort(expected)
    cells = np.floor(np.cumsum(expected[order]) / 10).astype(int)
    cells = np.unique(cells, return_inverse=True)[1]
    return chi_square_p(np.bincount(cells, counts[order]), np.bincount(cells, expected[order]))


def chi_square_p(observed: np.ndarray, expected: np.ndarray) -> float:
    """Probability of a deviation as large, by the cube root of Wilson and Hilferty."""
    k = len(observed) - 1
    assert k > 30
    statistic = float(((observed - expected) ** 2 / expected).sum())
    z = ((statistic / k) ** (1 / 3) - (1 - 2 / (9 * k))) / math.sqrt(2 / (9 * k))
    return 0.5 * math.erfc(z / math.sqrt(2))

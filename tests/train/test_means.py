"""Means over ranks, by torchmetrics."""

from __future__ import annotations

import pytest
import torch
from train.on_threads import on_threads

pytestmark = pytest.mark.needs("torchmetrics")


@pytest.mark.parametrize("size", [1, 3])
def test_mean_of_all_values_of_all_ranks(size):
    """Rank r has r + 1 values, so that a mean of the ranks' means would be another."""
    values = torch.arange(1.0, 13.0).reshape(6, 2)
    shares = [values[r * (r + 1) // 2 : (r + 1) * (r + 2) // 2] for r in range(size)]

    def of_rank(ranks):
        from gear.train.record.means import Means

        means = Means(2, ranks)
        means.update(shares[ranks.rank].sum(0), len(shares[ranks.rank]))
        return means.compute().tolist()

    whole = torch.cat(shares).mean(0).tolist()
    assert on_threads(size, of_rank) == [pytest.approx(whole)] * size


def test_a_loss_that_is_no_number_stays_one():
    from gear.train.record.means import Means

    def of_rank(ranks):
        means = Means(1, ranks)
        means.update(torch.tensor([float("nan") if ranks.rank else 1.0]), 1)
        return means.compute().isnan().item()

    assert on_threads(2, of_rank) == [True, True]

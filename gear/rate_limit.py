"""How far sampling and inserting may run apart."""

from __future__ import annotations

from dataclasses import dataclass

from gear.arguments import check_count


@dataclass(frozen=True)
class RateLimit:
    """How far sampling and inserting may run apart (Cassirer et al., arXiv:2102.04736).

    A loader waits until ``min_steps`` steps are in and while it is more than ``slack`` samples
    ahead of ``samples_per_insert`` per step inserted after those; a writer waits while it is more
    than ``slack`` samples behind. For writers and loaders in different threads: in one thread, a
    wait that only the same thread could end ends with TimeoutError (see ``timeout_s``).

    Args:
        samples_per_insert: items sampled per step inserted; 0: only ``min_steps`` counts.
        min_steps: steps before the first sample.
        slack: tolerance in samples; None: ``max(1000, 2 * samples_per_insert)``.
    """

    samples_per_insert: float
    min_steps: int = 1
    slack: float | None = None

    def as_tuple(self) -> tuple[float, int, float]:
        slack = max(1000.0, 2 * self.samples_per_insert) if self.slack is None else self.slack
        min_steps = check_count("[store] min_steps of the rate limit", self.min_steps, least=0)
        return (float(self.samples_per_insert), min_steps, float(slack))

"""How far sampling and inserting may run apart."""

from __future__ import annotations

from dataclasses import dataclass

from gear.arguments import check_count, check_number


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
        """samples_per_insert, min_steps, slack, checked: what the core takes."""
        label = "of the rate limit"
        per_insert = check_number(f"[store] samples_per_insert {label}", self.samples_per_insert)
        min_steps = check_count(f"[store] min_steps {label}", self.min_steps, least=0)
        if self.slack is None:
            return (per_insert, min_steps, max(1000.0, 2 * per_insert))
        return (per_insert, min_steps, check_number(f"[store] slack {label}", self.slack))

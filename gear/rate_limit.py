"""A limit on how far sampling and inserting may run apart."""

from __future__ import annotations

from dataclasses import dataclass

from gear.arguments import check_count, check_number


@dataclass(frozen=True)
class RateLimit:
    """A limit on how far sampling and inserting may run apart (Cassirer et al., arXiv:2102.04736).

    The first ``min_steps`` steps are free; each later one allows ``samples_per_insert`` samples. A
    loader waits for ``min_steps`` steps, and while it is more than ``slack`` samples ahead. A
    writer waits while sampling is more than ``slack`` samples behind. Use it with writers and
    loaders in different threads. A wait that nobody ends raises TimeoutError, after the
    ``timeout_s`` of the writer or loader (300 s); after 10 s the logger ``gear`` warns of it, with
    the counts and who is to act.

    Args:
        samples_per_insert: items sampled per inserted step; 0: only ``min_steps`` counts.
        min_steps: steps before the first sample.
        slack: tolerance in samples; None: ``max(1000, 2 * samples_per_insert)``.
    """

    samples_per_insert: float
    min_steps: int = 1
    slack: float | None = None

    def as_tuple(self) -> tuple[float, int, float]:
        """samples_per_insert, min_steps, slack, checked: what the core takes."""
        label = "of the rate limit"
        per_insert = check_number(f"[buffer] samples_per_insert {label}", self.samples_per_insert)
        min_steps = check_count(f"[buffer] min_steps {label}", self.min_steps, least=0)
        if self.slack is None:
            return (per_insert, min_steps, max(1000.0, 2 * per_insert))
        return (per_insert, min_steps, check_number(f"[buffer] slack {label}", self.slack))

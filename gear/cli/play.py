"""`gear eval` and `gear data collect`: hand their words to what plays."""

from __future__ import annotations

from gear.cli.train import check_installed


def evaluate(checkpoint: str, words: list[str]) -> int:
    """Plays what was trained; returns the exit code."""
    check_installed()
    from gear.train.policies.evaluate import run

    return run(checkpoint, words)


def collect(words: list[str]) -> int:
    """Plays and saves; returns the exit code."""
    check_installed()
    from gear.train.policies.collect import run

    return run(words)

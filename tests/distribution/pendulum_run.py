"""What a job that trains SAC on Pendulum says, and leaves in the folder of its user."""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distribution.slurm_cluster import Cluster, Job


def check_run(
    cluster: Cluster, job: Job, num_ranks: int, num_nodes: int, steps: int, *, seed: int = 0
) -> None:
    """The job trained Pendulum to its end, and left what it should."""
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    # Rank 0 alone speaks, once, and says what the run is made of.
    shown = re.sub(r"[\s│┃]+", " ", job.log)
    per_node = num_ranks // num_nodes
    for words in (
        f"ranks: {num_ranks}, nodes: {num_nodes}, meeting at gear",
        f"ranks {num_ranks}, started by",
        f"nodes {num_nodes}, ranks on each: {per_node} ",
        f"devices {num_ranks} x cpu",
        f"32 a rank, {32 * num_ranks} in all",
        f"environment steps {steps:,} ",
    ):
        assert shown.count(words) == 1, (words, job.log)
    [run_dir] = (cluster.home / "outputs" / f"pendulum-sac-seed{seed}").iterdir()
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["env_steps"] == steps
    assert summary["updates"] == (steps - 400) // num_ranks + 1
    # Each rank's episodes of 200 steps end in the same step, and each is written once.
    with (run_dir / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert summary["episodes"] == len(rows) == steps // 200
    assert [int(row["episode"]) for row in rows] == list(range(len(rows)))
    returns = [float(row["return"]) for row in rows]
    assert len(set(returns)) == len(returns)
    assert all(-2000 < value < 0 for value in returns)
    assert all(float(row["replay_fill"]) > 0 for row in rows)
    assert (run_dir / "learning_curve.png").stat().st_size > 1000
    assert (run_dir / "checkpoints" / f"step_{steps}").is_dir()

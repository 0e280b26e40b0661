"""docs/training.md, from sbatch to the plot: its commands, one after the other, on a real Slurm."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from docs.documents import blocks

from distribution.pendulum_run import check_run

if TYPE_CHECKING:
    from distribution.slurm_site import Site

pytest_plugins = ["distribution.slurm_cluster", "distribution.slurm_site"]
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.modules,
    pytest.mark.slow,
]

# Jobs are cut short; the command is otherwise the one in the guide.
SHORT = "total_steps=800 algo.learning_starts=400 algo.batch_size=32 model.hidden=[32] logger=csv"


def test_the_commands_of_the_guide(site: Site) -> None:
    ran = []
    for block in blocks("bash", "cluster"):
        assert block.document.name == "training.md", "this test knows the commands of one document"
        for line in block.code.splitlines():
            submits = re.match(r"sbatch |gear slurm submit ", line)
            command = f"{line} {SHORT}" if submits else line
            done = site.cluster.run(
                *("bash", "-lc", f"module load gear; {command}"), env=site.environment
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            ran.append(line.split()[0])
            if submits:
                number = int(re.search(r"Submitted batch job (\d+)", done.stdout)[1])
                if "array" in line:
                    logs = [site.finish_task(number, seed, "gear") for seed in range(3)]
                    assert any("3 runs" in log for log in logs), logs
                else:
                    job = site.succeed(number)
                    ranks = 2 if "mine" in line else 4
                    seed = int(re.search(r"seed=(\d)", line)[1])
                    check_run(site.cluster, job, ranks, num_nodes=2, steps=800, seed=seed)
                    assert "learning curve: outputs/pendulum-sac-seed" in job.log
    assert ran.count("sbatch") == 2
    assert "gear" in ran
    assert "learning curves: outputs/sweep-" in done.stdout
    assert list(site.cluster.home.glob("outputs/sweep-*/compare.png"))

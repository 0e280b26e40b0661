"""docs/training.md, from sbatch to the plot: its commands, one after the other, on a real Slurm."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from docs.documents import blocks, commands, lines_of
from docs.ran import ran

from distribution.pendulum_run import check_run

if TYPE_CHECKING:
    from distribution.slurm_site import Site

pytest_plugins = ["distribution.slurm_cluster", "distribution.slurm_site"]
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.subject("slurm"),
    pytest.mark.modules,
    pytest.mark.slow,
]

# Jobs are cut short; the command is otherwise the one in the guide.
SHORT = "total_steps=800 algo.learning_starts=400 algo.batch_size=32 model.hidden=[32] logger=csv"


def test_the_commands_of_the_guide(site: Site) -> None:
    programs = []
    for block in blocks("bash", "cluster"):
        assert block.document.name == "training.md", "this test knows the commands of one document"
        for line in lines_of(block):
            submits = re.match(r"sbatch |gear slurm submit ", line)
            command = f"{line} {SHORT}" if submits else line
            done = site.cluster.run(
                *("bash", "-lc", f"module load gear; {command}"), env=site.environment
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            programs.append(line.split()[0])
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
            ran(line, command)
    assert programs.count("sbatch") == 2
    assert "gear" in programs
    assert "learning curves: outputs/sweep-" in done.stdout
    assert list(site.cluster.home.glob("outputs/sweep-*/compare.png"))


@pytest.mark.needs("mujoco")
def test_the_jobs_of_readme_and_install(site: Site) -> None:
    """Each from a folder of its own, all at once."""
    shown = {each.text for each in commands() if re.match("sbatch ", each.text) and not each.place}
    started = []
    for line in sorted(shown):
        cluster = replace(site.cluster, home=site.cluster.home / f"of job {len(started)}")
        cluster.home.mkdir()
        cluster.use_modules("modules")
        command = f"{line} {SHORT}"
        done = cluster.run("bash", "-lc", f"module load gear; {command}", env=site.environment)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        number = int(re.search(r"Submitted batch job (\d+)", done.stdout)[1])
        started.append((line, command, cluster, number))
    assert len(started) == 3
    for line, command, cluster, number in started:
        job = cluster.finish(number)
        if "env=pendulum" in line:
            nodes = 1 if "1node" in line else 2
            check_run(cluster, job, 2 * nodes, num_nodes=nodes, steps=800, seed=1)
        assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
        [summary] = cluster.home.glob("outputs/*/*/summary.json")
        assert json.loads(summary.read_text())["env_steps"] == 800
        ran(line, command)

"""What `gear slurm` says of jobs that a real Slurm of two virtual nodes would never run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from distribution.slurm_cluster import Cluster

SLURM = Path(__file__).parents[2] / "slurm"

pytest_plugins = ["distribution.slurm_cluster"]
pytestmark = [pytest.mark.slurm, pytest.mark.subject("slurm"), pytest.mark.slow]


def gear_slurm(cluster: Cluster, *words: str) -> CompletedProcess[str]:
    return cluster.run(sys.executable, "-m", "gear.cli.app", "slurm", *words)


@pytest.mark.parametrize("template", sorted(path.stem for path in SLURM.glob("*.sbatch")))
def test_slurm_would_run_every_template(cluster: Cluster, template: str) -> None:
    done = gear_slurm(cluster, "render", template, "--time", "30", "--nodes", "1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "option",
    [
        *("gpus=99", "gpus-per-task=9", "ntasks=9999", "mem=9999999G", "constraint=no"),
        *("licenses=none", "nodelist=gear9", "begin=soon"),
    ],
)
def test_what_it_would_never_run_is_refused(cluster: Cluster, option: str) -> None:
    """Before it is submitted, in one sentence; what `sinfo` shows of it and what not."""
    words = ("1node", "--time", "30", "--set", option)
    for command in ("render", "submit"):
        done = gear_slurm(cluster, command, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert re.fullmatch(r"gear: \[slurm\] .+\n", done.stderr)
    assert cluster.run("squeue", "--noheader").stdout == ""


def test_what_has_blanks_arrives_as_one_value(cluster: Cluster) -> None:
    script = cluster.batch_script("said.sbatch", "#SBATCH --time=5", "true")
    value = "a \"b\" c\\d 'e' # f"
    words = ("--set", f"comment={value}", "--set", "job-name=two words")
    done = gear_slurm(cluster, "submit", str(script), *words)
    assert done.returncode == 0, done.stderr
    number = int(re.search(r"Submitted batch job (\d+)", done.stdout)[1])
    shown = cluster.run("scontrol", "show", "job", str(number)).stdout
    assert f"Comment={value}\n" in shown.replace(" \n", "\n")
    assert "JobName=two words\n" in shown
    cluster.finish(number)


def test_a_job_waits_for_nodes_that_are_drained(cluster: Cluster) -> None:
    """It is not refused: the cluster has them."""
    state = ("scontrol", "update", "nodename=gear2")
    assert cluster.run(*state, "state=drain", "reason=test").returncode == 0
    try:
        both = gear_slurm(cluster, "render", "multinode-srun", "--time", "30", "--nodes", "2")
        that = gear_slurm(cluster, "render", "1node", "--time", "30", "--set", "nodelist=gear2")
        none = gear_slurm(cluster, "render", "1node", "--time", "30", "--set", "constraint=no")
    finally:
        cluster.run(*state, "state=resume")
    assert (both.returncode, that.returncode, none.returncode) == (0, 0, 2)
    assert "of the nodes of partition standard that suit the job 1 are up" in both.stderr
    assert "not available; 1 node(s) of its partitions are away: it waits for these" in that.stderr

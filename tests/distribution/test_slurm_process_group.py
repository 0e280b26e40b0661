"""gear_mpi between two nodes: srun starts the ranks, and MPI finds them through PMIx."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch")

from distribution.project import REPOSITORY

if TYPE_CHECKING:
    from distribution.slurm_cluster import Cluster

pytest_plugins = ["distribution.slurm_cluster"]
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.subject("slurm"),
    pytest.mark.gear_mpi,
    pytest.mark.slow,
]

WORKER = REPOSITORY / "process_group" / "tests" / "worker.py"


def test_every_collective_as_on_gloo(cluster: Cluster) -> None:
    done = cluster.run(
        *("srun", "--mpi=pmix", "--nodes=2", "--ntasks=2", "--kill-on-bad-exit=1"),
        *(sys.executable, WORKER, cluster.home),
        env={"OMP_NUM_THREADS": "1"},
        timeout_s=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        said: dict[str, str] = json.loads((cluster.home / f"{rank}.json").read_text())
        assert {case: error for case, error in said.items() if error} == {}
        assert {"overlapping", "random_groups", "averages-2"} <= set(said)

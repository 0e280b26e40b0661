"""`gear emu run` of the module, where srun starts the real ranks on two virtual nodes."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from distribution.project import REPOSITORY

if TYPE_CHECKING:
    from distribution.conftest import Installation
    from distribution.slurm_cluster import Cluster

pytest_plugins = ["distribution.slurm_cluster"]
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.subject("slurm"),
    pytest.mark.modules,
    pytest.mark.slow,
]

PLAIN = REPOSITORY / "tests" / "emu" / "plain.py"
UNCHANGED = "env | sort >after; diff before after"  # nothing of it stays in the job
WHOLE = "srun -n 2 gear emu run {job} --out out -- python plain.py nccl"
EXPORTED = (
    'job=$(gear emu run {job} --export --out out); (eval "$job"; srun -n 2 python plain.py nccl)'
)


@pytest.mark.parametrize("line", [WHOLE, EXPORTED], ids=["whole", "exported"])
@pytest.mark.parametrize(
    ("words", "size", "real"),
    [("-N 512 --real 0,8", 512, [0, 8]), ("-N 2 --real all", 2, [0, 1])],
    ids=["of-512", "all"],
)
def test_srun_starts_the_real_ranks(
    cluster: Cluster, installation: Installation, line: str, words: str, size: int, real: list[int]
) -> None:
    cluster.use_modules("modules")
    shutil.copy(PLAIN, cluster.home)
    lines = ("module load gear", "env | sort >before", line.format(job=words), UNCHANGED)
    job = cluster.submit(
        *("--nodes=2", "--ntasks-per-node=1"),
        cluster.batch_script("emulated.sh", "set -e", *lines),
        env={"MODULEPATH": str(installation.modulefiles), "OMP_NUM_THREADS": "1"},
    )
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    told = sorted(of_ranks(job.log), key=lambda one: int(one["rank"]))
    assert [one["rank"] for one in told] == real
    assert {(one["size"], one["half"], one["backend"], one["local"]) for one in told} == {
        (size, size / 2, "nccl", "0")
    }
    for rank in real:
        report = json.loads((cluster.home / "out" / f"rank-{rank}.json").read_text())
        assert report["steps"] == 3  # of 5: the first two do not count


def of_ranks(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]

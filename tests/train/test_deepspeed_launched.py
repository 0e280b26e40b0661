"""Ranks that the launcher `deepspeed` starts, by each of its ways, and DeepSpeed's grids.

distribution/test_stack_jobs.py has it start `gear train`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from ports import fresh_port
from train.launched import Launch

pytestmark = [pytest.mark.slow, pytest.mark.frameworks]
WORKER = str(Path(__file__).with_name("deepspeed_worker.py"))
# Its main function is what the command `deepspeed` calls.
DEEPSPEED = (sys.executable, "-c", "from deepspeed.launcher.runner import main; main()")

# Run what they are told to on this machine, with the variables that the real ones set.
PDSH = """\
while true; do
  case $1 in -S) shift ;; -f) shift 2 ;; -w) hosts=$2; shift 2 ;; *) break ;; esac
done
number=0
for host in ${hosts//,/ }; do
  words=$*
  GEAR_NODE=$host bash -c "${words//%n/$number}" & pids+=($!)
  number=$((number + 1))
done
for pid in "${pids[@]}"; do wait "$pid" || exit; done
"""
SRUN = """\
[ "$1" = -n ] && [[ "$3" = --export=ALL* ]]
size=$2
shift 3
export SLURM_JOB_ID=7 SLURM_STEP_ID=$(date +%N) SLURM_STEP_NUM_TASKS=$size
export SLURM_STEP_NODELIST=localhost
for ((rank = 0; rank < size; rank++)); do
  SLURM_PROCID=$rank SLURM_LOCALID=$rank "$@" & pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || exit; done
"""


@pytest.fixture
def programs(tmp_path):
    """A folder with a pdsh, an srun and an sinfo."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in {"pdsh": PDSH, "srun": SRUN, "sinfo": "", "ssh": ""}.items():
        (folder / name).write_text(f"#!/bin/bash\nset -eu\n{script}")
        (folder / name).chmod(0o755)
    return folder


def by_deepspeed(launch, programs, *words):
    """Runs `deepspeed` with these words to its end."""
    path = f"{programs}:{os.environ['PATH']}"
    process = launch.start(
        *DEEPSPEED,
        *words,
        PATH=path,
        DS_ACCELERATOR="cpu",
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )
    ((stdout, stderr),) = launch.finish(process)
    assert process.returncode == 0, stdout + stderr


MPI = "--oversubscribe --mca btl_tcp_if_include lo"


@pytest.mark.parametrize(
    ("hosts", "words", "launcher", "nodes"),
    [
        pytest.param([], ["--num_accelerators=2"], "environment", [0, 0], id="one-node"),
        pytest.param(["one", "two"], ["--launcher=pdsh"], "environment", [0, 1], id="pdsh"),
        pytest.param(
            ["localhost"],
            ["--launcher=openmpi", "--force_multi", f"--launcher_args={MPI}"],
            "mpirun",
            [0, 0],
            id="openmpi",
            marks=pytest.mark.mpi,
        ),
        pytest.param(
            ["localhost"], ["--launcher=slurm", "--force_multi"], "srun", [0, 0], id="slurm"
        ),
    ],
)
def test_ranks_of_each_way_to_launch_meet(
    launch, programs, tmp_path, hosts, words, launcher, nodes
):
    """The ways that start a launcher on each node hand every rank --local_rank."""
    slots = 2 // max(len(hosts), 1)
    hostfile = tmp_path / "hosts"
    hostfile.write_text("".join(f"{host} slots={slots}\n" for host in hosts))
    if hosts:
        words = [*words, f"--hostfile={hostfile}", "--no_ssh_check", "--master_addr=127.0.0.1"]
    words = [*words, f"--master_port={fresh_port()}"]
    by_deepspeed(launch, programs, *words, WORKER, str(tmp_path), "place")
    for rank in range(2):
        found = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        local = rank if len(set(nodes)) == 1 else 0
        assert found["came"] == [[0, 1], nodes, local]
        assert found["launcher"] == launcher
        own = [f"--local_rank={local}"] if launcher == "environment" else []
        assert found["given"] == own


def test_grids_of_deepspeed(tmp_path):
    """Ranks of one data-parallel place get the same batches, whatever else divides them."""
    launch = Launch(tmp_path)
    meeting = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(fresh_port())}
    try:
        ranks = [
            launch.start(
                *(sys.executable, WORKER, str(tmp_path), "grid"),
                **(meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)}),
                DS_ACCELERATOR="cpu",
            )
            for rank in range(4)
        ]
        for process, (_, stderr) in zip(ranks, launch.finish(*ranks), strict=True):
            assert process.returncode == 0, stderr
    finally:
        launch.close()
    found = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(4)]
    # rank = 2 stage + data, and rank = 2 data + part
    assert [f["stages"] for f in found] == [
        [0, [0, 1], [0, 2]],
        [1, [0, 1], [1, 3]],
        [0, [2, 3], [0, 2]],
        [1, [2, 3], [1, 3]],
    ]
    assert [f["tensors"] for f in found] == [
        [0, [0, 2], [0, 1]],
        [0, [1, 3], [0, 1]],
        [1, [0, 2], [2, 3]],
        [1, [1, 3], [2, 3]],
    ]

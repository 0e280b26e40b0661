"""`gear train dist=ddp` by the templates of slurm/, on two virtual nodes."""

from __future__ import annotations

import csv
import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from train.saved_data import write_pendulum

from distribution.ordinary_user import (
    ORDINARY,
    UID,
    as_ordinary,
    as_root,
    home_of,
    loaded,
)
from distribution.pendulum_run import check_run
from gear.train.app import main

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

# Pendulum as a test can afford it.
SHORT = ("algo.learning_starts=400", "algo.batch_size=32", "model.hidden=[32]", "logger=csv")
# A decision transformer whose learning rate does not depend on where the run ends.
OFFLINE = (
    *("data=saved", "data.path=replay", "model.width=16", "model.layers=1", "model.heads=2"),
    *("algo.context=4", "algo.warmup=0", "algo.final_lr=1", "optim.lr=1e-4", "eval_every=0"),
    *("model.max_steps=300", "replay.page_steps=16", "logger=csv"),
)
NO_END = "total_steps=1000000"


@pytest.fixture
def user(cluster: Cluster, installation: Installation) -> dict[str, str]:
    cluster.use_modules("modules")
    return {"MODULEPATH": str(installation.modulefiles)}


@pytest.fixture
def templates(installation: Installation) -> Path:
    return installation.home / "slurm"


def test_by_horovod_and_by_deepspeed_on_two_nodes(
    cluster: Cluster, user: dict[str, str], templates: Path
) -> None:
    """Of the module, which has both: the second learns from what the first has stored. By Horovod a
    rank on each node, and few updates: ranks of MPI that wait keep the core which those need that
    they wait for. Four of them on two cores of a busy machine may take minutes for one call."""
    user = user | {"OMPI_MCA_mpi_yield_when_idle": "1"}
    words = (*SHORT[1:], "algo.learning_starts=760", "total_steps=800", "eval_every=0")
    job = cluster.submit("--ntasks-per-node=1", templates / "horovod.sbatch", *words, env=user)
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    shown = re.sub(r"[\s│┃]+", " ", job.log)
    assert "ranks 2, started by" in shown
    assert "strategy horovod" in shown
    [stored] = (cluster.home / "outputs" / "pendulum-sac-seed0").iterdir()
    summary = json.loads((stored / "summary.json").read_text())
    assert (summary["env_steps"], summary["updates"]) == (800, 21)
    words = (
        *("data=saved", f"data.path={stored}", "hydra.run.dir=offline", "total_steps=20"),
        *("model.width=16", "model.layers=1", "model.heads=1", "algo.batch_size=8"),
        *("algo.context=5", "logger=csv", "checkpoint_every=0", "eval_every=0"),
    )
    job = cluster.submit(templates / "deepspeed.sbatch", *words, env=user)
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    assert "strategy deepspeed" in re.sub(r"[\s│┃]+", " ", job.log)
    summary = json.loads((cluster.home / "offline" / "summary.json").read_text())
    assert summary["updates"] == 20


def test_one_run_on_one_node_then_on_two_then_on_one(
    cluster: Cluster, user: dict[str, str], templates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped by what --signal sends before the time limit, and continued: its losses are those of
    one process that nobody stopped, since the batch of all ranks stays what it was."""
    write_pendulum(cluster.home / "replay", (30, 12, 5, 9, 40, 17, 25, 20, 14))
    told = ("hydra.run.dir=run", "checkpoint_every=1000000", "keep_checkpoints=9")
    number = cluster.start(
        templates / "1node.sbatch", *OFFLINE, *told, "algo.batch_size=8", NO_END, env=user
    )
    metrics = cluster.home / "run" / "metrics.csv"
    until = time.monotonic() + 240
    while not (metrics.exists() and len(metrics.read_text().splitlines()) > 1):
        assert time.monotonic() < until
        time.sleep(0.1)
    cluster.run("scancel", "--signal=TERM", str(number))
    stopped = cluster.finish(number)
    assert (stopped.state, stopped.exit_code) == ("FAILED", 75), stopped.log
    [step] = re.findall(r"SIGTERM: stopped at step ([\d,]+), saved", stopped.log)
    steps = [int(step.replace(",", ""))]
    for template, size in (("multinode-srun", 4), ("1node", 2)):
        steps.append(steps[-1] // 100 * 100 + 200)  # a row of metrics is the mean of 100 updates
        words = ("checkpoint=run", "data.path=replay", f"total_steps={steps[-1]}")
        job = cluster.submit(templates / f"{template}.sbatch", *words, env=user)
        assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
        shown = re.sub(r"[\s│┃]+", " ", job.log)
        assert f"continues run/checkpoints/step_{steps[-2]}," in shown
        assert f"continued by {size}: batches of 16 in all as before, {16 // size} a rank" in shown
    monkeypatch.chdir(cluster.home)
    words = ("hydra.run.dir=alone", "algo.batch_size=16", f"total_steps={steps[-1]}")
    assert main([*OFFLINE, *words]) == 0
    found, expected = (losses(Path(run)) for run in ("run", "alone"))
    assert found.keys() == expected.keys()
    # Of what a stop divided, the row holds the rest.
    whole = {row for row in found if not any(row - 100 < step < row for step in steps)}
    assert len(whole) >= len(found) - 1 >= 4
    assert {row: found[row] for row in whole} == pytest.approx(
        {row: expected[row] for row in whole}, abs=1e-5
    )


def losses(run: Path) -> dict[int, float]:
    with (run / "metrics.csv").open(newline="") as file:
        return {int(row["step"]): float(row["loss"]) for row in csv.DictReader(file)}


@as_root
def test_pendulum_from_a_venv(
    cluster: Cluster, installation: Installation, open_folder: Path
) -> None:
    """An ordinary user extends a venv and submits: every rank runs the venv's python."""
    user = home_of(open_folder)
    words = ('python -m venv --without-pip "my venv"', 'extend-venv-activate "my venv"')
    as_ordinary(user, *loaded(installation.prefix), *words)
    venv = user / "my venv"
    [packages] = venv.glob("lib/python3.*/site-packages")
    # Not sitecustomize: Debian's Python has one of its own, which comes first.
    (packages / "says.pth").write_text(
        "import os, sys; 'train' in sys.orig_argv and "
        "print('rank', os.environ['RANK'], 'runs', sys.executable)\n"
    )
    cluster = replace(cluster, home=user, become=tuple(ORDINARY))
    cluster.use_modules("modules")
    os.chown(user / ".bash_profile", UID, UID)
    env = {"MODULEPATH": str(installation.modulefiles), "GEAR_VENV": str(venv)}
    template = installation.home / "slurm" / "1node.sbatch"
    job = cluster.submit(template, *SHORT, "total_steps=400", env=env)
    check_run(cluster, job, num_ranks=2, num_nodes=1, steps=400)
    for rank in range(2):
        assert f"rank {rank} runs {venv}/bin/python" in job.log, job.log


def test_localhost_is_no_meeting_point(cluster: Cluster, user: dict[str, str]) -> None:
    """A script that does not use env.sh, with the mistake that works on one node only."""
    meet = "import sys, gear; gear.Group.from_env(timeout_s=float(sys.argv[1])).barrier()"
    script = cluster.batch_script(
        "localhost.sbatch",
        "module load gear",
        "export MASTER_ADDR=localhost MASTER_PORT=$((29000 + SLURM_JOB_ID % 1000))",
        f"meet() {{ RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS python -c '{meet}' $1; }}",
        'export -f meet; srun --kill-on-bad-exit=1 bash -c "meet $1"',
    )
    apart = cluster.start("--nodes=2", "--ntasks=2", script, "10", env=user)
    together = cluster.submit("--nodes=1", "--ntasks=2", script, "200", env=user)
    assert together.state == "COMPLETED", together.log
    failed = cluster.finish(apart)
    assert failed.state == "FAILED", failed.log
    assert re.search(r"localhost[:, ]+29\d+|rank 1 did not start", failed.log), failed.log

"""`gear train dist=ddp`: ranks act and store apart, learn together, and continue bit-equal."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import gear
from gear.train.app import main
from gear.train.checkpoint import Checkpoint, checkpoints
from gear.train.seeding import rank_seed

SHORT = (
    "algo.learning_starts=250",
    "algo.batch_size=16",
    "model.hidden=[16]",
    "logger=csv",
    "hydra.run.dir=run",
)
PENDULUM = (*SHORT, "total_steps=900", "checkpoint_every=200", "keep_checkpoints=9")
CARTPOLE = (*SHORT, "env=cartpole", "total_steps=400", "checkpoint_every=400")
CLOCKS = ("seconds", "replay_seconds")


def succeed(processes, streams):
    for process, (_, stderr) in zip(processes, streams, strict=True):
        assert process.returncode == 0, stderr


def rows(run_dir):
    with (run_dir / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def states(saved, size):
    """Every rank's part, without the clocks."""
    found = [saved.state(rank, size) for rank in range(size)]
    for state in found:
        for clock in CLOCKS:
            del state["counters"][clock]
    return found


def differing(a, b, where=""):
    """Paths of the leaves in which two nested states differ."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        return [path for key in a for path in differing(a[key], b[key], f"{where}/{key}")]
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        return [path for n, x in enumerate(a) for path in differing(x, b[n], f"{where}/{n}")]
    if isinstance(a, (np.ndarray, torch.Tensor)):
        return [] if np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True) else [where]
    return [] if a == b else [where]


def test_two_ranks_by_hand_and_continued(launch, tmp_path):
    """One run, and the same run continued from its middle in another folder, end bit-equal."""
    processes = launch.by_hand(2, *PENDULUM)
    streams = launch.finish(*processes)
    succeed(processes, streams)
    run_dir = tmp_path / "run"

    # Rank 0 alone speaks, and says what the run is made of.
    assert streams[1] == ("", "")
    shown = " ".join(streams[0][0].split())
    for words in ("2, started by environment", "2 x cpu", "16 a rank, 32 in all", "200,000 steps"):
        assert words in shown
    # Steps are counted over all ranks, and each episode of each rank is written once.
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["env_steps"] == 900
    assert summary["updates"] == (900 - 250) // 2 + 1
    assert [row["step"] for row in rows(run_dir)] == ["400", "400", "800", "800"]
    assert [row["episode"] for row in rows(run_dir)] == ["0", "1", "2", "3"]
    assert rows(run_dir)[0]["return"] != rows(run_dir)[1]["return"]
    # Networks are equal to the bit, environments and noise are not.
    whole = checkpoints(run_dir)
    assert [saved.step for saved in whole] == [200, 400, 600, 800, 900]
    first, second = states(whole[-1], 2)
    assert first["networks"] == second["networks"]
    assert first["counters"]["returns"] == second["counters"]["returns"]
    assert not np.array_equal(first["episode"]["view"], second["episode"]["view"])
    assert not torch.equal(first["rng"]["torch"], second["rng"]["torch"])

    (tmp_path / "parts" / "checkpoints").mkdir(parents=True)
    older = "parts/checkpoints/step_600"
    shutil.copytree(whole[2].path, tmp_path / older)
    processes = launch.by_hand(2, f"checkpoint={older}")
    succeed(processes, launch.finish(*processes))
    parts = checkpoints(tmp_path / "parts")[-1]
    assert parts.step == 900
    assert differing(states(whole[-1], 2), states(parts, 2)) == []
    for file in (path for path in (whole[-1].path / "replay").rglob("*") if path.is_file()):
        assert file.read_bytes() == (parts.path / file.relative_to(whole[-1].path)).read_bytes()

    # Another number of ranks would be another run.
    with pytest.raises(gear.InvalidArgument, match="saved by 2 ranks and this run has 1 rank"):
        main([f"checkpoint={run_dir}", "total_steps=1000"])


def test_torchrun(launch, tmp_path):
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    command = (sys.executable, *torchrun, "-m", "gear.cli.app", "train", "dist=ddp", *CARTPOLE)
    process = launch.start(*command)
    ((stdout, stderr),) = launch.finish(process)
    assert process.returncode == 0, stderr
    assert "2, started by torchrun" in stdout
    first, second = states(checkpoints(tmp_path / "run")[-1], 2)
    assert first["networks"] == second["networks"]
    assert first["algorithm"]["updates"] == (400 - 250) // 2 + 1


@pytest.mark.mpi
def test_mpirun(launch, tmp_path):
    mpirun = ("mpirun", "-n", "2", "--oversubscribe", "--allow-run-as-root")
    command = (*mpirun, sys.executable, "-m", "gear.cli.app", "train", "dist=ddp", *CARTPOLE)
    process = launch.start(*command)
    ((stdout, stderr),) = launch.finish(process)
    assert process.returncode == 0, stderr
    assert "2, started by mpirun" in stdout
    first, second = states(checkpoints(tmp_path / "run")[-1], 2)
    assert first["networks"] == second["networks"]


@pytest.mark.parametrize(
    ("variables", "overrides", "message"),
    [
        ({}, ["rank=0", "world_size=2"], "rank= and world_size= say .* add dist=ddp"),
        (
            {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "here", "MASTER_PORT": "1"},
            [],
            "environment says .* one of 4 processes.* add dist=ddp",
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"},
            [],
            "mpirun says .* one of 3 processes.* add dist=ddp",
        ),
        ({}, ["dist=ddp", "rank=2", "world_size=2"], "rank=2 is not possible: give 0 to 1"),
        ({}, ["dist=ddp", "rank=0"], "world_size=null is not possible: give the number"),
        ({}, ["dist=ddp", "dist.locality=near"], "dist.locality=near .*: give one of first, off"),
        ({}, ["dist=ddp", "dist.timeout_s=0"], "dist.timeout_s=0 .*: give a number, timeout_s > 0"),
        ({}, ["dist=ddp", "dist.exchange_every=0"], "dist.exchange_every=0 .* of at least 1"),
        ({}, ["dist=dpp"], "dist/dpp.* ddp, single"),
    ],
)
def test_refusals(tmp_path, monkeypatch, variables, overrides, message):
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(gear.InvalidArgument, match=message):
        main(overrides)


def test_one_rank_may_ask_for_ddp(tmp_path, monkeypatch):
    """The same command runs whatever the launcher starts, and one rank is what `single` is."""
    monkeypatch.chdir(tmp_path)
    short = [*SHORT, "total_steps=300", "checkpoint_every=300"]
    for dist in ("ddp", "single"):
        assert main([*short, f"dist={dist}", f"hydra.run.dir={dist}"]) == 0
    a, b = (states(Checkpoint(Path(d, "checkpoints/step_300")), 1) for d in ("ddp", "single"))
    assert differing(a, b) == []


def test_a_checkpoint_of_one_rank_is_none_of_two(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*SHORT, "total_steps=260"]) == 0
    (saved,) = checkpoints(tmp_path / "run")
    with pytest.raises(gear.InvalidArgument, match="saved by 1 rank and this run has 2 ranks"):
        saved.state(1, 2)


def test_seeds_differ_by_rank():
    assert rank_seed(7, 0) == 7
    seeds = {rank_seed(seed, rank) for seed in range(20) for rank in range(50)}
    assert len(seeds) == 20 * 50

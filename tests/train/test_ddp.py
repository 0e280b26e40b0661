"""`gear train dist=ddp`: ranks act and store apart, learn together, and continue bit-equal."""

from __future__ import annotations

import csv
import json
import os
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from docs.documents import launching
from docs.ran import ran
from ports import fresh_port
from train.launched import Launch

import gear
from gear.train.app import main
from gear.train.config import read
from gear.train.record.checkpoint import Checkpoint, checkpoints
from gear.train.tasks.seeding import rank_seed

pytestmark = pytest.mark.subject("trainer")

SHORT = (
    "algo.learning_starts=250",
    "algo.batch_size=16",
    "model.hidden=[16]",
    "logger=csv",
    "hydra.run.dir=run",
)
PENDULUM = (*SHORT, "total_steps=500", "checkpoint_every=200", "keep_checkpoints=9")
PENDULUM = (*PENDULUM, "eval_every=200", "eval_episodes=3")
CARTPOLE = (*SHORT, "env=cartpole", "total_steps=400", "checkpoint_every=400")
INSTALLED = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
CLOCKS = ("seconds", "replay_seconds", "checkpoint_seconds")


def succeed(processes, streams):
    for process, (_, stderr) in zip(processes, streams, strict=True):
        assert process.returncode == 0, stderr


def rows(run_dir):
    with (run_dir / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def states_of(saved):
    """Every rank's part, without the clocks."""
    found = [saved.state(rank) for rank in range(saved.num_ranks)]
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


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """(run directory, what each rank wrote) of a run by two ranks that several tests look at."""
    folder = tmp_path_factory.mktemp("two")
    launch = Launch(folder)
    try:
        processes = launch.by_hand(2, *PENDULUM, "logger.writers=[csv,tensorboard]")
        streams = launch.finish(*processes)
        succeed(processes, streams)
    finally:
        launch.close()
    return folder / "run", streams


def branch(run_dir, tmp_path, step=400):
    """A copy of the run as it was at the checkpoint of this step."""
    older = Path(f"parts/checkpoints/step_{step}")
    shutil.copytree(run_dir / "checkpoints" / f"step_{step}", tmp_path / older)
    shutil.copy(run_dir / "run_id", tmp_path / "parts")
    return older


def test_two_ranks_by_hand(two):
    run_dir, streams = two
    # Rank 0 alone speaks, and says what the run is made of.
    assert streams[1] == ("", "")
    shown = " ".join(streams[0][0].split())
    for words in ("2, started by environment", "2 x cpu", "16 a rank, 32 in all", "200,000 steps"):
        assert words in shown
    # Steps are counted over all ranks, and each episode of each rank is written once.
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["env_steps"] == 500
    assert summary["updates"] == (500 - 250) // 2 + 1
    ended = [row for row in rows(run_dir) if row["return"]]
    assert [row["step"] for row in ended] == ["400", "400"]
    assert [row["episode"] for row in ended] == ["0", "1"]
    assert ended[0]["return"] != ended[1]["return"]
    # Three greedy episodes each time, two of rank 0's and one of rank 1's.
    assert [row["step"] for row in rows(run_dir) if row["eval_return"]] == ["200", "400"]
    assert "evaluation of 3 greedy episodes" in shown
    # Of two ranks that write metrics.csv one wins; TensorBoard's files have a process each.
    assert len(list(run_dir.rglob("events.out.*"))) == 1
    # Networks are equal to the bit, environments and noise are not.
    whole = checkpoints(run_dir)
    assert [saved.step for saved in whole] == [200, 400, 500]
    first, second = states_of(whole[-1])
    assert first["networks"] == second["networks"]
    assert first["counters"]["returns"] == second["counters"]["returns"]
    assert first["counters"]["eval_returns"] == second["counters"]["eval_returns"]
    assert not np.array_equal(first["episodes"][0]["view"], second["episodes"][0]["view"])
    assert not torch.equal(first["rng"]["torch"], second["rng"]["torch"])


@pytest.mark.slow
def test_two_ranks_continue_bit_equal(two, launch, tmp_path):
    """From the middle, in another folder: every rank's part and every byte of the buffer."""
    run_dir, _ = two
    processes = launch.by_hand(2, f"checkpoint={branch(run_dir, tmp_path)}")
    succeed(processes, launch.finish(*processes))
    whole, parts = checkpoints(run_dir)[-1], checkpoints(tmp_path / "parts")[-1]
    assert parts.step == whole.step == 500
    assert differing(states_of(whole), states_of(parts)) == []
    for file in (path for path in (whole.path / "replay").rglob("*") if path.is_file()):
        assert file.read_bytes() == (parts.path / file.relative_to(whole.path)).read_bytes()


@pytest.mark.slow
def test_one_rank_goes_on_after_two_and_two_after_one(two, launch, tmp_path, monkeypatch):
    """With the batch of all, the replay of all and the updates of before; rank 0 where it was, and
    the others' open episodes end."""
    older = branch(two[0], tmp_path, 200)
    monkeypatch.chdir(tmp_path)
    assert main([f"checkpoint={older}", "total_steps=290"]) == 0
    run = tmp_path / "parts"
    before, after = Checkpoint(tmp_path / older), checkpoints(run)[-1]
    assert (before.num_ranks, after.num_ranks, after.config_ranks) == (2, 1, 2)
    log = (run / "train.log").read_text()
    assert "saved by 2 rank(s), continued by 1: batches of 32 in all as before, 32 a rank" in log
    assert "rank 1 is there no more: its episode 0 ends here" in log
    was, now = before.state(0, 2), after.state()
    assert now["counters"]["updates"] == (290 - 250) // 2 + 1
    assert now["episodes"][0]["actions"][: len(was["episodes"][0]["actions"])].tolist() == (
        was["episodes"][0]["actions"].tolist()
    )
    with gear.ReplayBuffer.load(after.path / "replay") as buffer:
        states = [(e.state, e.end - e.begin) for e in buffer.episodes()]
        assert sorted(states) == [("open", 190), ("truncated", 100)]

    processes = launch.by_hand(2, f"checkpoint={run}", "total_steps=330")
    streams = launch.finish(*processes)
    succeed(processes, streams)
    last = checkpoints(run)[-1]
    assert (last.step, last.num_ranks) == (330, 2)
    assert "continued by 2: batches of 32 in all as before, 16 a rank; ranks from 1 on start" in (
        " ".join(streams[0][0].split())
    )
    first, second = states_of(last)
    assert first["networks"] == second["networks"]
    assert first["counters"]["updates"] - now["counters"]["updates"] == 40 // 2
    # The new rank has an environment and noise of its own, and its own episode.
    assert second["episodes"][0]["number"] == len(now["counters"]["returns"]) + 1
    assert not torch.equal(first["rng"]["torch"], second["rng"]["torch"])


def test_ranks_that_cannot_share_the_batch_are_refused(two):
    """32 items for 3 ranks."""
    config = read(Checkpoint(two[0] / "checkpoints" / "step_400").config())
    with pytest.raises(gear.InvalidArgument, match="number of ranks that divides 32"):
        config.over(3, of=2)


@pytest.mark.slow
def test_warning_of_the_second_rank_is_shown(two, launch, tmp_path):
    """Its simulator does not reproduce the episode: the run will differ, and the user is told."""
    older = branch(two[0], tmp_path)
    path = tmp_path / older / "trainer-00001-of-00002.pt"
    state = torch.load(path, weights_only=True)
    state["episodes"][0]["view"]["data"][0] += 1
    torch.save(state, path)
    processes = launch.by_hand(2, f"checkpoint={older}")
    streams = launch.finish(*processes)
    succeed(processes, streams)
    assert streams[1][1].startswith("rank 1: warning: Pendulum-v1 did not reproduce episode 1 ")


# An environment that warns, by a logger with a console of its own.
WARMED = """
import logging
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

log = logging.getLogger(__name__)
log.addHandler(logging.StreamHandler())

class Warmed(CartPoleEnv):
    def __init__(self, **more):
        super().__init__(**more)
        log.warning("too warm")

gymnasium.register("Warmed-v0", Warmed, max_episode_steps=500)
"""


@pytest.mark.slow
def test_torchrun(launch, tmp_path):
    """The guide's command. A warning of each rank is in its output once, with the rank's number."""
    (tmp_path / "warmed.py").write_text(WARMED)
    shown, words = launching("torchrun", 2)
    command = (*words, *CARTPOLE, "env.id=warmed:Warmed-v0")
    process = launch.start(*command, **INSTALLED, PYTHONPATH=".", PET_MASTER_PORT=str(fresh_port()))
    ((stdout, stderr),) = launch.finish(process)
    assert process.returncode == 0, stderr
    ran(shown, shlex.join(command))
    assert "2, started by torchrun" in stdout
    warned = sorted(line for line in (stdout + stderr).splitlines() if "too warm" in line)
    assert warned == ["rank 0: warmed: too warm", "rank 1: warmed: too warm"]
    assert (tmp_path / "run" / "train.log").read_text().count("too warm") == 1
    first, second = states_of(checkpoints(tmp_path / "run")[-1])
    assert first["networks"] == second["networks"]
    assert first["algorithm"]["updates"] == (400 - 250) // 2 + 1


@pytest.mark.slow
@pytest.mark.mpi
def test_mpirun(launch, tmp_path):
    """The guide's command, on a machine of any number of cores, by anybody."""
    allowed = ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe")
    settings = dict.fromkeys((f"OMPI_{name}" for name in allowed), "1")
    shown, words = launching("mpirun", 2)
    command = (*words, *CARTPOLE)
    process = launch.start(*command, **INSTALLED, **settings)
    ((stdout, stderr),) = launch.finish(process)
    assert process.returncode == 0, stderr
    ran(shown, shlex.join(command))
    assert "2, started by mpirun" in stdout
    first, second = states_of(checkpoints(tmp_path / "run")[-1])
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
        ({}, ["dist=fsdp2"], "dist=fsdp2 trains models with one loss, .* use dist=ddp"),
        ({}, ["dist=dpp"], "dist/dpp.* ddp, .*single"),
    ],
)
def test_refusals(tmp_path, monkeypatch, variables, overrides, message):
    """test_ranks.py has what the other ranks are told; here are none to wait for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gear.train.ranks.meeting.decline", lambda *given: None)
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
    a, b = (states_of(Checkpoint(Path(d, "checkpoints/step_300"))) for d in ("ddp", "single"))
    assert differing(a, b) == ["/0/strategy", "/0/run"]


def test_seeds_differ_by_rank():
    assert rank_seed(7, 0) == 7
    seeds = {rank_seed(seed, rank) for seed in range(20) for rank in range(50)}
    assert len(seeds) == 20 * 50

"""The commands of the gear command-line run here, as the documents have them; the other commands
are somebody else's. tools/documented.py says whose, or why nobody runs them, and its `check` at the
end of CI compares that with what was run."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from docs.documents import ROOT, commands
from docs.ran import ran
from train.saved_data import write_arc, write_cartpole
from warm_python import Warm

import gear

TOOL = runpy.run_path(str(ROOT / "tools" / "documented.py"))
MINE = "tests/docs/test_commands.py"
TARGETS = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)[0].split()

# Of what GEAR_MPI_LOG writes.
COLUMNS = "start_us,duration_us,bytes,operation,dtype,ranks,route,group,call,failed"

# Training runs are cut short; the command is otherwise the one in the document.
SHORT = "total_steps=60 algo.learning_starts=40 checkpoint_every=0"
SHORT_OFFLINE = "total_steps=4 eval_every=2 checkpoint_every=0"
SHORT_PUZZLES = (
    "total_steps=2 eval_every=2 checkpoint_every=0 data.eval_puzzles=1 data.puzzles=8 data.pairs=2 "
    "model.width=16 model.layers=1 algo.batch_size=1 algo.precision=float32"
)

RUN_HERE = sorted(TOOL["commands_of"](MINE))


def test_each_command_has_a_runner_or_a_reason() -> None:
    assert TOOL["faults_of_tables"](commands()) == []


def write_what_they_name(folder: Path, command: str) -> None:
    """The files and folders that the commands speak of."""
    schema = gear.Schema([gear.Column("obs", (3,))])
    with gear.ReplayBuffer(schema, capacity=100) as buffer:
        with buffer.writer() as writer:
            writer.extend(obs=np.zeros((10, 3), np.float32))
        buffer.save(folder / "replay")
    if "data=puzzles" in command:
        write_arc(folder / "arc" / "data")
    if "data.path=teacher" in command:
        write_cartpole(folder / "teacher", (30,) * 12)
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    kept = "2026-11-26-2-h100" if "group_markdown" in command else "2026-11-24-h200"
    shutil.copy(ROOT / "benchmarks" / "results" / f"{kept}.json", folder / "FILE")
    (folder / "FOLDER").mkdir()
    (folder / "FOLDER" / "rank-0.csv").write_text(f"{COLUMNS}\n1,2,8,send,Float,2,mpi,g,,0\n")


def trains(command: str) -> bool:
    words = command.split()
    return "train" in words and "--help" not in words


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.slow] if trains(command) else [])
        for command in RUN_HERE
    ],
)
def test_command_runs(command: str, tmp_path: Path) -> None:
    write_what_they_name(tmp_path, command)
    if not re.match(r"gear ", command):
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        by_shell = ["bash", "-ec", command]
        subprocess.run(by_shell, cwd=tmp_path, env={**os.environ, "PATH": path}, check=True)
        ran(command)
        return
    program, *arguments = shlex.split(command.replace("device=cuda", "device=cpu"))
    if "data=puzzles" in command:
        arguments += SHORT_PUZZLES.split()
    elif "data=saved" in command:
        arguments += SHORT_OFFLINE.split()
    elif trains(command):
        arguments += SHORT.split()
    process = Warm("-m", "gear.cli.app", *arguments, cwd=tmp_path, env=os.environ)
    try:
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0, f"{command}\n{out[-2000:]}\n{err[-4000:]}"
    ran(command, shlex.join([program, *arguments]))


@pytest.mark.parametrize("target", TARGETS)
def test_make_target_exists(target: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for script in re.findall(r"\b(?:tools|benchmarks)/[\w./]+", done.stdout):
        assert (ROOT / script).exists(), f"make {target} calls {script}"

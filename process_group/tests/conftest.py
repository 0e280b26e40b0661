"""What is made once for the tests of several files."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from docs.documents import ROOT, documented
from docs.ran import Record, keep, ran

from process_group.tests.launch import run_ranks


@dataclass(frozen=True)
class Failing:
    """What the three ranks of failing.py left."""

    said: list[dict[str, str]]  # what each case raised, by rank
    output: str
    log: Path


@pytest.fixture(scope="session")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Failing:
    """mpirun is not content with them: failed groups are never finalised."""
    folder = tmp_path_factory.mktemp("failing")
    log = folder / "log"
    environment = {"GEAR_MPI_LOG": str(log), "GEAR_DEBUG": "1"}
    files = [folder / f"{rank}.json" for rank in range(3)]
    # mpirun ends all ranks when what it started ends by a signal: shells, which outlive one.
    waits = f'until [ -e "{files[0]}" ] && [ -e "{files[1]}" ]; do sleep 0.2; done'
    shell = f'"$@"; code=$?; [ $code = 137 ] || exit $code; {waits}'
    ended = run_ranks(3, "failing.py", str(folder), environment=environment, shell=shell)
    assert all(file.exists() for file in files), ended.stdout[-6000:]
    return Failing([json.loads(file.read_text()) for file in files], ended.stdout, log)


@pytest.fixture(scope="session")
def torchvision(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder that holds it, for PYTHONPATH: imagenet.py alone needs it, and packages that find it
    installed would import it, too."""
    folder = tmp_path_factory.mktemp("torchvision")
    command = documented(r"pip install --no-deps -r requirements/imagenet\.txt")
    instead = [sys.executable, "-m", *shlex.split(command), "--quiet", f"--target={folder}"]
    done = subprocess.run(instead, cwd=ROOT, capture_output=True, text=True, timeout=300)
    by = "process_group/tests/test_examples.py"
    if done.returncode != 0:
        why = f"torchvision cannot be had here: {done.stderr.strip().splitlines()[-1]}"
        keep(Record(command, by, command, why))
        pytest.skip(why)
    ran(command, shlex.join(instead), by=by)
    return str(folder)

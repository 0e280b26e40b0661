"""Programs run on emulated ranks as they are, and what they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gear.emu as emu
from gear.emu.start import of_rank, variables
from gear.errors import InvalidArgument

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("library")]
PLAIN = Path(__file__).with_name("plain.py")


def run(
    job: emu.Job, command: Sequence[str | Path], folder: Path, **extra: str
) -> tuple[int, list[Any]]:
    """By a process of its own, whose output shows what the ranks say: its exit code, and that."""
    job.save(folder / "given.toml")
    program = (
        "import sys, gear.emu as emu\n"
        "job = emu.Job.load(sys.argv[1])\n"
        "sys.exit(emu.start(job, sys.argv[3:], out=sys.argv[2]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, folder / "given.toml", folder / "out", *command],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | extra,
        stdout=subprocess.PIPE,
        text=True,
        timeout=240,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, sorted(map(json.loads, lines), key=lambda one: one["rank"])


@dataclass(frozen=True)
class Ran:
    """Two real ranks of 512, each a Python that has begun as any does; what they said, and left."""

    backend: str
    job: emu.Job
    code: int
    told: list[Any]
    out: Path


@pytest.fixture(
    scope="module",
    params=[
        "nccl",
        pytest.param("gloo", marks=pytest.mark.nightly),
        pytest.param("none", marks=pytest.mark.nightly),
    ],
)
def fresh(
    request: pytest.FixtureRequest, library: None, tmp_path_factory: pytest.TempPathFactory
) -> Ran:
    """Of a user who has a sitecustomize, too."""
    folder = tmp_path_factory.mktemp("fresh")
    (folder / "sitecustomize.py").write_text('import os\nos.environ["CUSTOMISED"] = "yes"\n')
    job = emu.Job(512, real=(0, 9))
    command = [sys.executable, PLAIN, request.param]
    code, told = run(job, command, folder, PYTHONPATH=str(folder))
    return Ran(request.param, job, code, told, folder / "out")


def test_a_program_needs_no_edit(fresh: Ran) -> None:
    assert fresh.code == 0
    assert [one["rank"] for one in fresh.told] == [0, 9]
    assert [one["local"] for one in fresh.told] == ["0", "1"]
    for one in fresh.told:
        assert one["size"] == 512
        assert one["half"] == 256
        assert one["backend"] == ("undefined" if fresh.backend == "none" else fresh.backend)
    for rank in (0, 9):
        report = json.loads((fresh.out / f"rank-{rank}.json").read_text())
        assert report["steps"] == 3
        by_name = {one["name"]: one for one in report["operations"]}
        assert by_name["all_reduce"]["calls"] == 6
    assert emu.Job.load(fresh.out / "job.toml") == fresh.job


def test_the_users_own_sitecustomize_runs_too(fresh: Ran) -> None:
    assert fresh.code == 0
    assert [one["custom"] for one in fresh.told] == ["yes", "yes"]


def test_all_ranks_may_be_real(tmp_path: Path, warm: Path) -> None:
    code, told = run(emu.Job(2, real=(0, 1)), [warm / "python", PLAIN, "gloo"], tmp_path)
    assert code == 0
    assert [one["size"] for one in told] == [2, 2]


@pytest.mark.parametrize(("word", "code"), [("3", 3), ("kill", 137)])
def test_the_rank_that_fails_ends_the_others(
    word: str, code: int, tmp_path: Path, warm: Path
) -> None:
    found, _ = run(emu.Job(4, real=(0, 1)), [warm / "python", PLAIN, "gloo", word], tmp_path)
    assert found == code


def test_the_environment_of_the_caller_stays(tmp_path: Path) -> None:
    before = dict(os.environ)
    assert emu.start(emu.Job(4), [sys.executable, "-c", "pass"]) == 0
    assert dict(os.environ) == before


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(InvalidArgument, match="command 'no-such-program': a program that is on"):
        emu.start(emu.Job(4), ["no-such-program"])
    with pytest.raises(InvalidArgument, match="command ''"):
        emu.start(emu.Job(4), [])


@pytest.mark.parametrize(
    ("name", "value"), [("TORCH_DIST_INIT_BARRIER", "1"), ("TORCH_DISTRIBUTED_DEBUG", "DETAIL")]
)
def test_what_waits_for_all_ranks_is_refused(
    name: str, value: str, tmp_path: Path, warm: Path
) -> None:
    emu.Job(4).save(tmp_path / "job.toml")
    of_job = variables(tmp_path / "job.toml", None) | of_rank(emu.Job(4), 0)
    done = subprocess.run(
        [warm / "python", PLAIN, "gloo"],
        env=os.environ | of_job | {name: value},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert f"[emu] {name}={value} has torch " in done.stderr


def test_a_torch_whose_door_has_moved_is_told() -> None:
    from types import ModuleType

    from gear.emu.door import open_door

    with pytest.warns(UserWarning, match=r'makes its groups by other ways.*"gear_emu"'):
        open_door(ModuleType("moved"))

"""`gear emu run`, from its words to the reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gear.emu as emu
from gear.cli.app import main

PLAIN = Path(__file__).with_name("plain.py")
GEAR = Path(sys.executable).with_name("gear")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def said_by(command: list[object], **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | extra,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def told_in(output: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return sorted(lines, key=lambda one: one["rank"])


def exported(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> emu.Job:
    assert main(["emu", "run", *words, "--export", "--out", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("=")[0] for line in lines] == [
        "export PYTHONPATH",
        "export GEAR_EMU",
        "export GEAR_EMU_LOG",
    ]
    return emu.Job.load(folder / "job.toml")


@pytest.mark.parametrize(
    ("words", "job"),
    [
        (["-N", "512"], emu.Job(512)),
        (["-N", "64", "--per-node", "4", "--real", "0,8"], emu.Job(64, per_node=4, real=(0, 8))),
        (["-N", "4", "--real", "all"], emu.Job(4, real=(0, 1, 2, 3))),
        (["-N", "16", "--real", "2-4,9"], emu.Job(16, real=(2, 3, 4, 9))),
        (
            ["-N", "16", "--links", "dgx-a100", "--set", "nic.gb_per_s=12.5"],
            emu.Job(16, links="dgx-a100", set={"nic.gb_per_s": 12.5}),
        ),
    ],
)
def test_words_are_a_job(words, job, tmp_path, capsys) -> None:
    assert exported(tmp_path, capsys, *words) == job


def test_words_change_a_file(tmp_path, capsys) -> None:
    events = (emu.Slow(1, by=2.0),)
    given = emu.Job(16, real=(0, 3), set={"nic.gb_per_s": 5.0, "nic.per_node": 4}, events=events)
    given.save(tmp_path / "given.toml")
    words = ["--job", str(tmp_path / "given.toml"), "--real", "all", "--set", "nic.per_node=2"]
    assert main(["emu", "run", *words, "--export", "--out", str(tmp_path / "no")]) == 2
    assert "an event of rank 1, which is real" in capsys.readouterr().err
    found = exported(tmp_path / "out", capsys, *words[:2], "-N", "8", *words[4:])
    assert found == emu.Job(
        8, real=(0, 3), set={"nic.gb_per_s": 5.0, "nic.per_node": 2}, events=events
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "true"], "give the ranks of the job, as -N 512, or --job FILE"),
        (["-N", "8"], "give a program to run, as -- python train.py"),
        (["-N", "8", "--real", "x", "--", "true"], "--real x: as 0,8 or 0-3, or all"),
        (["-N", "8", "--real", "0,3-1", "--", "true"], "--real 0,3-1: as 0,8 or 0-3, or all"),
        (["-N", "8", "--real", "8", "--", "true"], "real rank 8 of 8: 0 to 7 is allowed"),
        (["-N", "8", "--real", "0-99999999999", "--", "true"], "real rank 8 of 8: 0 to 7 is"),
        (["-N", "99999999999", "--real", "all", "--", "true"], "ranks of a job"),
        (["-N", "8", "--real", "1,1", "--", "true"], "real rank 1 is given twice: give it once"),
        (["-N", "9", "--per-node", "8", "--", "true"], "9 ranks, 8 a node: a multiple of 8"),
        (["-N", "8", "--set", "nic", "--", "true"], "--set nic: a name and a number"),
        (["-N", "8", "--set", "nic=x", "--", "true"], "--set nic=x: a name and a number"),
        (["-N", "8", "--export"], "--export: give --out DIR"),
        (["-N", "8", "--export", "--out", "x", "true"], "and no command"),
        (["-N", "8", "--", "no-such-program"], "command 'no-such-program': a program that is on"),
        (["--job", "no-such-file", "--", "true"], "the job no-such-file cannot be read"),
    ],
)
def test_wrong_words(words, message, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["emu", "run", *words]) == 2
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("gear: ")]
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_makes_no_group(capfd) -> None:
    assert main(["emu", "run", "-N", "8", "--", sys.executable, "-c", "print('here')"]) == 0
    told = capfd.readouterr()
    assert told.out == "here\n"
    assert "gear emu: rank 0 of 8 has made no group of torch.distributed" in told.err
    assert main(["emu", "run", "-N", "8", "--", sys.executable, "-c", "raise SystemExit(3)"]) == 3


def test_horovod_is_refused(tmp_path, capfd, monkeypatch) -> None:
    package = tmp_path / "horovod"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    program = "import importlib.util as u\nassert u.find_spec('horovod')\nimport horovod.torch\n"
    assert main(["emu", "run", "-N", "8", "--", sys.executable, "-c", program]) == 1
    told = capfd.readouterr().err
    assert "[emu] horovod goes round the groups of torch.distributed" in told
    again = "try:\n    import horovod\nexcept ImportError:\n    import horovod\n"
    twice = f"import importlib.util as u\nassert u.find_spec('horovod')\n{again}"
    assert main(["emu", "run", "-N", "8", "--", sys.executable, "-c", twice]) == 1


def test_a_rank_imports_nothing_before_its_program(capfd) -> None:
    """Of a program that sets what torch reads when it is imported."""
    program = "import sys; print({'torch', 'numpy', 'gear'} & sys.modules.keys())"
    assert main(["emu", "run", "-N", "8", "--", sys.executable, "-c", program]) == 0
    assert capfd.readouterr().out == "set()\n"


def test_a_job_in_a_rank_of_a_job_is_refused(capfd) -> None:
    inner = [str(GEAR), "emu", "run", "-N", "8", "--", sys.executable, "-c", "pass"]
    assert main(["emu", "run", "-N", "8", "--", *inner]) == 2
    assert "this process is rank 0 of an emulated job" in capfd.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_ranks_which_end_as_they_like(number, tmp_path) -> None:
    """A trainer that saves first, and asks to be begun again."""
    program = (
        "import os, pathlib, signal, sys, time\n"
        "rank = os.environ['RANK']\n"
        "def save(number, _):\n"
        "    time.sleep(0.5 * int(rank))\n"
        "    pathlib.Path(f'saved-{rank}').touch()\n"
        "    sys.exit(75)\n"
        f"signal.signal({int(number)}, save)\n"
        "pathlib.Path(f'ready-{rank}').touch()\n"
        "time.sleep(60)\n"
    )
    words = ["emu", "run", "-N", "8", "--real", "0,3", "--", sys.executable, "-c", program]
    running = subprocess.Popen([GEAR, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while len(list(tmp_path.glob("ready-*"))) < 2:
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(number)
    _, told = running.communicate(timeout=120)
    assert running.returncode == 75, told
    assert {one.name for one in tmp_path.glob("saved-*")} == {"saved-0", "saved-3"}


@pytest.mark.slow
@pytest.mark.usefixtures("library")
def test_a_run_ends_with_the_reports(tmp_path, warm) -> None:
    words = ["-N", 512, "--real", "0,9", "--out", tmp_path / "out", "--"]
    done = said_by([GEAR, "emu", "run", *words, warm / "python", PLAIN, "nccl"])
    assert done.returncode == 0, done.stderr
    assert [(one["rank"], one["size"]) for one in told_in(done.stdout)] == [(0, 512), (9, 512)]
    assert "gear emu: real ranks 0, 9 of 512 on 64 nodes, links hgx-h100" in done.stderr
    for rank in (0, 9):
        assert f"gear emu: rank {rank} of 512\noperation " in done.stderr
    assert done.stderr.count("3 steps: median ") == 2
    assert done.stderr.count("losses are those of ranks that hold copies") == 2
    report = json.loads((tmp_path / "out" / "rank-9.json").read_text())
    assert report["process_peak_bytes"] > 1 << 26
    assert report["allocator_peak_bytes"] is None


@pytest.mark.slow
@pytest.mark.usefixtures("library")
def test_torchrun_starts_the_real_ranks(tmp_path, warm) -> None:
    words = ["--no-python", GEAR, "emu", "run", "-N", 512, "--real", "0,9", "--out", tmp_path]
    done = said_by([*TORCHRUN, *words, "--", warm / "python", PLAIN, "gloo"])
    assert done.returncode == 0, done.stderr
    told = told_in(done.stdout)
    assert [(one["rank"], one["size"], one["local"]) for one in told] == [
        (0, 512, "0"),
        (9, 512, "1"),
    ]
    assert emu.Job.load(tmp_path / "job.toml") == emu.Job(512, real=(0, 9))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.usefixtures("library")
def test_a_batch_script_exports_the_job(tmp_path) -> None:
    script = (
        f'eval "$({GEAR} emu run -N 512 --real 0,9 --export --out {tmp_path})"\n'
        f"exec {' '.join(TORCHRUN)} {PLAIN} gloo\n"
    )
    done = said_by(["bash", "-euc", script])
    assert done.returncode == 0, done.stderr
    assert [(one["rank"], one["half"]) for one in told_in(done.stdout)] == [(0, 256.0), (9, 256.0)]
    left = {f"rank-{rank}.{kind}" for rank in (0, 9) for kind in ("json", "csv")}
    assert {path.name for path in tmp_path.iterdir()} == {"job.toml", *left}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.usefixtures("library")
def test_more_processes_than_real_ranks(tmp_path) -> None:
    words = ["--no-python", GEAR, "emu", "run", "-N", 512, "--real", "3", "--", sys.executable]
    done = said_by([*TORCHRUN, *words, PLAIN, "gloo"])
    assert done.returncode != 0
    assert (
        "by RANK, WORLD_SIZE one of 2, and 1 ranks of the job are real (3 of 512): start as"
        in done.stderr
    )

"""`gear emu whatif`: which jobs it runs, and its table; and what runs leave is compared."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from emu.reports import operation, report

import gear.emu as emu
from gear.cli.app import main
from gear.emu.compare import compare
from gear.emu.whatif import Outcome, combined, folder_of, table

PLAIN = Path(__file__).with_name("plain.py")
GEAR = Path(sys.executable).with_name("gear")


def test_each_value_with_each_of_the_others() -> None:
    found = combined({"ranks": ["8", "16"], "nic.gb_per_s": ["5", "50"]})
    assert [folder_of(one) for one in found] == [
        "ranks=8,nic.gb_per_s=5",
        "ranks=8,nic.gb_per_s=50",
        "ranks=16,nic.gb_per_s=5",
        "ranks=16,nic.gb_per_s=50",
    ]
    assert folder_of({"links": "../a b.json"}) == "links=.._a_b.json"


def test_the_table() -> None:
    one = report(0.1, in_steps=(operation("all_reduce", 10, 10, modelled_s=0.05, waited_s=0.02),))
    outcomes = [
        Outcome({"ranks": "8"}, 3, one),
        Outcome({"ranks": "16"}, 0, None),
        Outcome({"ranks": "32"}, 0, report(steps=1, step_s=None)),
        Outcome({"ranks": "64"}, 0, one),
        Outcome({"ranks": "4096"}, 0, report(0.25)),
    ]
    assert [line.split() for line in table(outcomes).splitlines()] == [
        "ranks step ms half of them exposed ms hidden ms extrapolated of the first".split(),
        "8 exit code 3".split(),
        "16 no group".split(),
        "32 fewer than 4 steps".split(),
        "64 100.000 90.000 to 120.000 2.000 3.000 0% 1.000".split(),
        "4096 250.000 225.000 to 300.000 4.000 6.000 0% 2.500".split(),
    ]
    assert len({len(line) for line in table(outcomes).splitlines()[4:]}) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--vary", "ranks", "true"], "--vary ranks: a name and values, as ranks=64,512"),
        (["--vary", "ranks=8,", "true"], "--vary ranks=8,: a name and values"),
        (["--vary", "ranks=8", "--vary", "ranks=9", "true"], "ranks=9: ranks is varied twice"),
        (["--vary", "ranks=8,x", "true"], "--vary ranks=x: a whole number is allowed"),
        (
            ["--vary", "nic.per_node=8,x", "-N", "8", "true"],
            "nic.per_node=x: a number is allowed",
        ),
        (["--vary", "nic.speed=8", "-N", "8", "true"], "nic.speed"),
        (
            ["--vary", "real=0", "-N", "8", "true"],
            "real=0: ranks, per_node, links, model and",
        ),
        (["--vary", "ranks=8,8", "true"], "two of the runs are both ranks=8, by the names of"),
        (["--vary", "nic.per_node=8", "true"], "give the ranks of the job, as -N 512"),
        (["--vary", "ranks=8,9", "--per-node", "8", "true"], "9 ranks, 8 a node: a multiple of 8"),
        (["--vary", "ranks=8,16", "no-such-program"], "command 'no-such-program': a program that"),
    ],
)
def test_wrong_words(words, message, tmp_path, monkeypatch, capfd) -> None:
    """Before anything has run."""
    monkeypatch.chdir(tmp_path)
    assert main(["emu", "whatif", *words]) == 2
    told = capfd.readouterr()
    assert message in told.err
    assert told.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_does_not_keep_the_others(capfd) -> None:
    program = "import os, sys; print(os.environ['WORLD_SIZE'], flush=True); sys.exit(3)"
    words = ["--vary", "ranks=8,16", "--", sys.executable, "-c", program]
    assert main(["emu", "whatif", *words]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[:2] == ["8", "16"]
    assert [line.split() for line in lines[3:]] == [
        ["8", "exit", "code", "3"],
        ["16", "exit", "code", "3"],
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_a_signal_ends_all_of_it(number, tmp_path) -> None:
    """Also of a program that saves and ends well."""
    program = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(0))\n"
        "pathlib.Path('ready').touch()\n"
        "time.sleep(60)\n"
    )
    words = ["emu", "whatif", "--vary", "ranks=8,16", "--", sys.executable, "-c", program]
    running = subprocess.Popen(
        [GEAR, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "ready").exists():
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(number)
    out, told = running.communicate(timeout=120)
    assert running.returncode == 1, told
    assert told.count("gear emu: real rank") == 1
    assert out.splitlines()[1].split() == ["8", "ended", "by", "a", "signal"]
    assert len(out.splitlines()) == 2


def test_one_of_several_ranks_of_a_launcher_is_refused(tmp_path, monkeypatch, capsys) -> None:
    launched = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    assert main(["emu", "whatif", "--vary", "ranks=8,16", "--real", "0,1", "true"]) == 2
    assert "start it by itself, or a launcher for each gear emu run" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("library")
def test_slower_links_are_slower_and_runs_are_compared(tmp_path, warm, capfd) -> None:
    varied = ["--vary", "nic.gb_per_s=0.00001,0.000001", "--out", str(tmp_path)]
    varied += ["-N", "16", "--per-node", "1"]
    program = [str(warm / "python"), str(PLAIN), "gloo"]
    assert main(["emu", "whatif", *varied, "--", *program]) == 0
    head, fast, slow = capfd.readouterr().out.splitlines()[-3:]
    assert head.split()[:3] == ["nic.gb_per_s", "step", "ms"]
    assert fast.split()[0] == "0.00001"
    assert fast.split()[-1] == "1.000"
    assert float(slow.split()[-1]) > 1
    both = [tmp_path / f"nic.gb_per_s={one}" for one in ("0.00001", "0.000001")]
    (pair,) = compare(*both)
    assert pair.step > 0
    assert [one.name for one in pair.first.in_steps] == ["all_reduce"]
    assert pair.first.in_steps[0].calls == pair.first.steps == 3
    assert pair.second.exposed_a_step_s > pair.first.exposed_a_step_s > 0
    words = ["emu", "compare", *map(str, both)]
    assert main(words) == 0
    assert main([*words, "--require", "0.001"]) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("library")
def test_all_real_ranks_that_no_model_holds(tmp_path, warm) -> None:
    program = [str(warm / "python"), str(PLAIN), "gloo"]
    none = ["-N", "2", "--real", "all", "--model", "none", "--out", str(tmp_path / "real")]
    held = ["-N", "2", "--out", str(tmp_path / "held")]
    assert main(["emu", "run", *none, "--", *program]) == 0
    assert main(["emu", "run", *held, "--", *program]) == 0
    (pair,) = compare(tmp_path / "real", tmp_path / "held")
    assert pair.first.emulated == 0
    assert pair.second.emulated == 1
    assert pair.first.modelled_s == 0
    assert pair.first.exposed_s > 0
    assert all(one.late_calls == 0 for one in pair.first.operations)


@pytest.mark.slow
@pytest.mark.usefixtures("library")
def test_a_report_that_finds_no_room_is_printed(tmp_path, warm, capfd) -> None:
    full = tmp_path / "full"
    full.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(full)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        (full / "other").write_bytes(bytes(4096))
        program = ["--", str(warm / "python"), str(PLAIN), "gloo"]
        assert main(["emu", "run", "-N", "8", "--out", str(full), *program]) == 0
        assert emu.Job.load(full / "job.toml").ranks == 8
        assert not (full / "rank-0.json").exists()
        told = capfd.readouterr().err
        assert "rank-0.json cannot be written: [Errno 28] No space left on device" in told
        assert "3 steps: median " in told
        assert "gear emu: rank 0 of 8 has made no group of torch.distributed, or says above" in told
    finally:
        subprocess.run(["umount", full], check=True)

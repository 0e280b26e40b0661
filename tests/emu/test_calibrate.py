"""`gear emu calibrate` where ranks are: what their operations took is what a job is modelled by."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from docs.documents import documented
from docs.ran import ran

import gear.emu as emu
from gear.cli.app import main

SCRIPTS = Path(sys.executable).parent


def test_alone_there_is_nothing_to_measure(tmp_path, capsys, monkeypatch) -> None:
    pytest.importorskip("torch")
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    assert main(["emu", "calibrate", "--out", str(tmp_path / "links.json")]) == 2
    assert "start two or more, as torchrun" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_two_ranks_measure_what_gloo_takes(tmp_path) -> None:
    pytest.importorskip("torch")
    command = documented(r"torchrun .* gear emu calibrate .*")
    instead = f"{command} --largest 8192"
    done = subprocess.run(
        shlex.split(instead),
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PATH": f"{SCRIPTS}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == [
        *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
    ]
    ran(command, instead)
    links = emu.Links.load(tmp_path / "links.json")
    for operation in ("all_reduce", "all_gather", "all_to_all", "send"):
        curve = emu.ask(emu.two_level, operation, emu.Shape(2), links)
        (measured,) = {
            one.point
            for one in links.measured
            if (one.operation, one.point.bytes) == (operation, 4096)
        }
        assert curve.at(4096) == measured
        assert measured.basis == "measured"
        assert measured.source.startswith("gear emu calibrate: gloo on ")
        assert measured.seconds > 0

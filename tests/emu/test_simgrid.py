"""The example that has SimGrid simulate collectives: what it writes is what the topology allows."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from docs.documents import ROOT, documented
from docs.ran import ran

import gear.emu as emu

PYTHON = "/usr/bin/python3"  # for which Debian has SimGrid
HOP_S, BYTES_S = 2e-6, 12.5e9  # between hosts of a switch, as fat_tree.xml has them
LARGEST = 1 << 20


@pytest.mark.slow
def test_curves_of_a_fat_tree(tmp_path: Path) -> None:
    if subprocess.run(
        [PYTHON, "-c", "import simgrid"], capture_output=True, check=False
    ).returncode:
        pytest.skip("this machine has no python3-simgrid")
    command = documented(r"python3 examples/emulation/simgrid_curves\.py .*")
    words = [*shlex.split(command), "--largest", str(LARGEST)]
    words[words.index("fat_tree.csv")] = str(tmp_path / "fat_tree.csv")
    done = subprocess.run(
        [PYTHON, *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    ran(command, f"{command} --largest {LARGEST}")

    model = emu.model(tmp_path / "fat_tree.csv")
    links = emu.Links.load("hgx-h100")

    def seconds(operation: str, nodes: int, size: int) -> float:
        return emu.ask(model, operation, emu.Shape(1, nodes), links).at(size).seconds

    for size in (1 << 10, LARGEST):
        part = size / 8 / BYTES_S
        assert seconds("all_reduce", 8, size) == pytest.approx(14 * (HOP_S + part), rel=1e-6)
        assert seconds("all_gather", 8, size) == pytest.approx(7 * (HOP_S + part), rel=1e-6)
        assert seconds("all_to_all", 8, size) == pytest.approx(HOP_S + 7 * part, rel=1e-6)
        assert seconds("broadcast", 8, size) == pytest.approx(3 * (HOP_S + 8 * part), rel=1e-6)
    # Of what eight hosts of a switch give, 7/8 leave it, by four links up.
    crowded = 8 * 7 / 8 * LARGEST / (4 * BYTES_S)
    assert crowded < seconds("all_to_all", 64, LARGEST) < crowded + 10e-6
    assert seconds("barrier", 64, 0) < 6 * 5e-6


def test_groups_larger_than_the_platform_are_refused(tmp_path: Path) -> None:
    if subprocess.run(
        [PYTHON, "-c", "import simgrid"], capture_output=True, check=False
    ).returncode:
        pytest.skip("this machine has no python3-simgrid")
    program = ROOT / "examples" / "emulation" / "simgrid_curves.py"
    words = [program, program.with_name("fat_tree.xml"), "--ranks", "8,65", "--out", tmp_path / "x"]
    done = subprocess.run([PYTHON, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--ranks 8,65: 2 to 64, the hosts of" in done.stderr
    assert list(tmp_path.iterdir()) == []

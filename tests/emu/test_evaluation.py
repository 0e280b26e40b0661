"""benchmarks/emulator: models of their published sizes, and what is compared, in small on CPUs."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from docs.documents import ROOT

import gear.emu as emu

torch = pytest.importorskip("torch")

FOLDER = ROOT / "benchmarks" / "emulator"
PUBLISHED = {  # millions of parameters, and how far these may be: their heads and places differ
    "resnet152": (60.19, 0.001),
    "vgg19": (143.67, 0.001),
    "bert-large": (335, 0.01),
    "t5-large": (738, 0.01),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_models_are_of_their_published_sizes(name: str) -> None:
    models = runpy.run_path(str(FOLDER / "models.py"))["MODELS"]
    with torch.device("meta"):
        model = models[name](small=False).model
    millions, apart = PUBLISHED[name]
    assert sum(one.numel() for one in model.parameters()) / 1e6 == pytest.approx(
        millions, rel=apart
    )


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("program", ["vgg19 ddp", "t5-large fsdp2"])
def test_a_program_runs_real_and_emulated(program: str, tmp_path: Path) -> None:
    out, links = tmp_path / "out.json", tmp_path / "links.json"
    emu.Links.load("hgx-h100").save(links)
    command = [sys.executable, FOLDER / "accuracy.py", f"--links={links}", f"--json={out}"]
    words = ["--small", "--steps=2", "--largest=2048", f"--only=collectives,{program}"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # as torchrun has it: sums are of the same order
    done = subprocess.run([*command, *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["collectives"]["torch"].keys() == found["collectives"]["emulated"].keys()
    (ways,) = found["steps"].values()
    assert {way: len(told[0]["ms"]) for way, told in ways.items()} == dict.fromkeys(
        ("torch", "emulated", "all real"), 2
    )
    # All real ranks train as by torch's own backend, to the bit; one of two begins as they do,
    # where it has all parameters.
    assert ways["all real"][0]["losses"] == ways["torch"][0]["losses"]
    if "ddp" in program:
        assert ways["emulated"][0]["losses"][0] == ways["torch"][0]["losses"][0]
    assert f"\n{program}" in done.stdout
    assert "collective, bytes" in done.stdout

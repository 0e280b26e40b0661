"""Programs of every kind give the same numbers on gear_mpi as on gloo. Each number of ranks is
started once, from a process that has imported torch."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from docs.documents import ROOT, documented
from docs.ran import ran
from warm_mpirun import warm_ranks

from process_group.tests.launch import FOLDER, mpirun

pytestmark = [
    pytest.mark.subject("process_group"),
    pytest.mark.gear_mpi,
    pytest.mark.slow,
    pytest.mark.xdist_group("process_group"),
]

WITH_TORCH_ALONE = ("generic", "segmentation", "mnist")

Said = list[dict[str, list[list[float]]]]


@pytest.fixture(scope="module", params=[2, 4])
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What each rank's programs returned, on gear_mpi and on gloo."""
    return returned(request.param, tmp_path_factory.mktemp("programs"), *WITH_TORCH_ALONE)


def returned(size: int, folder: Path, *programs: str) -> Said:
    started = [str(FOLDER / "programs_worker.py"), str(folder), "compression", "dlrm", *programs]
    with warm_ranks(size, folder, *started) as all_:
        for rank in all_:
            _, stderr = rank.communicate(timeout=500)
            assert rank.returncode == 0, stderr
    return [json.loads(Path(folder, f"{r}.json").read_text()) for r in range(size)]


@pytest.mark.parametrize("program", [*WITH_TORCH_ALONE, "dlrm", "uncompressed"])
def test_as_on_gloo(said: Said, program: str) -> None:
    for one in said:
        mpi, gloo = one[program]
        assert mpi == pytest.approx(gloo, rel=1e-6, abs=1e-6)


def test_a_residual_network_as_on_gloo(
    torchvision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means over the few images of a batch magnify what rounding leaves."""
    monkeypatch.setenv("PYTHONPATH", torchvision)
    for one in returned(2, tmp_path, "imagenet"):
        mpi, gloo = one["imagenet"]
        assert mpi == pytest.approx(gloo, rel=1e-4)


def test_tables_shared_out_give_the_losses_of_one_rank(said: Said) -> None:
    for one in said:
        alone, together = one["dlrm alone"]
        assert alone == pytest.approx(together, rel=1e-5)


def test_compressed_gradients_change_losses_by_less_than_a_hundredth(said: Said) -> None:
    for one in said:
        mpi, gloo = one["compression"]
        assert mpi == pytest.approx(gloo, rel=0.01)
        assert mpi[1:] != pytest.approx(gloo[1:], rel=1e-7)


def test_what_trains_learns(said: Said) -> None:
    losses = said[0]["generic"][0]
    assert losses[-1] < losses[0]


def test_the_command_of_the_document(tmp_path: Path) -> None:
    """A program that begins with the document's line."""
    text = (ROOT / "docs" / "process-group.md").read_text(encoding="utf-8")
    begin = "".join(re.findall(r"^    (torch\S+init_process_group.*\n)", text, re.M)[:1])
    rest = "sum_ = torch.ones(1)\ntorch.distributed.all_reduce(sum_)\nprint(f'sum {sum_.item()}')\n"
    (tmp_path / "train.py").write_text(f"import torch\n{begin}{rest}")
    command = documented(r"mpirun .* python train\.py")
    launcher, *words = shlex.split(command)
    instead = [*mpirun(launcher), *words]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(instead, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 4.0") == 4  # lines of ranks may run into each other
    ran(command, shlex.join(instead))

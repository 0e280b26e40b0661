"""Programs of torch on a few ranks of many: DDP, FSDP2, meshes, objects; and what ends them."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from docs.documents import ROOT, documented
from docs.ran import ran

import gear.emu as emu

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("library")]
TRAINER = Path(__file__).parent / "trainer.py"
Run = Callable[..., list[dict[str, Any]]]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def run(tmp_path: Path, warm: Path) -> Run:
    """What the processes of those ranks wrote, side by side."""

    def ran_by(
        what: str, ranks: tuple[int, ...], size: int, job: emu.Job | None = None
    ) -> list[dict[str, Any]]:
        folder = tmp_path / ("gloo" if job is None else "emulated")
        folder.mkdir()
        environment = os.environ | {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(size),
        }
        if job is not None:
            job.save(folder / "job.toml")
            environment["GEAR_EMU"] = str(folder / "job.toml")
        processes = [
            subprocess.Popen(
                [warm / "python", TRAINER, what, folder],
                env=environment | {"RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in ranks
        ]
        said = [process.communicate(timeout=240)[0] for process in processes]
        assert all(process.returncode == 0 for process in processes), "\n".join(said)
        return [json.loads((folder / f"{rank}.json").read_text()) for rank in ranks]

    return ran_by


def test_ddp_takes_the_course_of_ranks_whose_data_repeat(run: Run) -> None:
    by_gloo = run("ddp", (0, 1, 2, 3), 4)
    by_two = run("ddp", (0, 1), 4, emu.Job(4, real=(0, 1)))
    for rank in (0, 1):
        assert by_two[rank]["size"] == 4
        assert by_two[rank]["losses"] == pytest.approx(by_gloo[rank]["losses"], rel=1e-6)
    assert by_two[0]["losses"][-1] < by_two[0]["losses"][0]


@pytest.mark.nightly
def test_ddp_with_all_ranks_real_is_ordinary(run: Run) -> None:
    by_gloo = run("ddp", (0, 1), 2)
    by_all = run("ddp", (0, 1), 2, emu.Job(2, real=(0, 1)))
    for rank in (0, 1):
        assert by_all[rank]["losses"] == pytest.approx(by_gloo[rank]["losses"], rel=1e-12)


@pytest.mark.parametrize(
    "size",
    [
        8,
        512,
        pytest.param(2, marks=pytest.mark.nightly),
        pytest.param(64, marks=pytest.mark.nightly),
    ],
)
def test_fsdp2_has_its_share_of_the_parameters(run: Run, size: int) -> None:
    (found,) = run("fsdp2", (0,), size, emu.Job(size))
    assert all(abs(loss) < float("inf") for loss in found["losses"])
    # A rank has 1/N of each parameter, rounded up to rows.
    assert found["whole"] / size <= found["own"]
    assert found["own"] <= found["whole"] / size + found["most"] * 4 * size


def test_a_step_of_fsdp2_on_4096_ranks(run: Run) -> None:
    (found,) = run("fsdp2_once", (0,), 4096, emu.Job(4096))
    assert abs(found["loss"]) < float("inf")
    # Rows are shared out: four of a wide layer's to each rank, and all of a narrow one's to rank 0.
    assert found["whole"] == [8 * 4 * 4096, 4 * 4096, 4 * 4096, 1]
    assert found["own"] == [8 * 4, 4, 4 * 4096, 1]


@pytest.mark.nightly
def test_tensor_parallel_inside_of_nodes_stays_finite(run: Run) -> None:
    (found,) = run("fsdp2_tp", (0,), 512, emu.Job(512))
    assert len(found["losses"]) == 100
    assert all(abs(loss) < float("inf") for loss in found["losses"])


def test_a_mesh_of_4096_ranks(run: Run) -> None:
    (found,) = run("mesh", (0,), 4096, emu.Job(4096))
    assert found["sum"] == 4096


def test_objects_of_emulated_ranks_are_copies_or_refused(run: Run) -> None:
    for rank, found in zip((0, 1), run("objects", (0, 1), 4, emu.Job(4, real=(0, 1))), strict=True):
        assert found["told"] == [{"rank": 0}, {"rank": 1}, {"rank": 0}, {"rank": 1}], rank
        assert found["one"] == ["from 0"]
        assert "from rank 3, which is emulated" in found["refused"]


def test_ranks_of_torchrun_are_the_real_ones_in_their_order(tmp_path: Path) -> None:
    emu.Job(16, real=(0, 8)).save(tmp_path / "job.toml")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*torchrun, TRAINER, "objects", tmp_path],
        env=os.environ | {"GEAR_EMU": str(tmp_path / "job.toml"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for rank in (0, 8):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found["size"] == 16
        assert [one["rank"] for one in found["told"]][:9] == [0, 0, 8, 0, 8, 0, 8, 0, 8]


def test_the_documented_example(warm: Path) -> None:
    ran(documented(r"tools/c10d\.sh --emulator"), "tools/c10d.sh --emulator")  # by the fixture
    command = documented(r"python examples/emulation/ddp\.py .*")
    done = subprocess.run(
        [warm / "python", *shlex.split(command)[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^512 ranks: loss 0\.0\d+, median of a step ", done.stdout, re.M)
    assert "all_reduce          20" in done.stdout
    ran(command, command)

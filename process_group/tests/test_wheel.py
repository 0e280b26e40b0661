"""The wheel of gear_mpi alone: `pip install ./process_group` is all that a program needs."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest

pytest.importorskip("torch")

from process_group.tests.launch import REPOSITORY, mpirun

pytestmark = [
    pytest.mark.subject("process_group"),
    pytest.mark.gear_mpi,
    pytest.mark.slow,
    pytest.mark.xdist_group("process_group"),
]

# Without -S the clone's own package would be found first.
PROGRAM = """
import sys
sys.path[:0] = [{wheel!r}]
sys.path.append({packages!r})
sys.modules["gear"] = None  # an import of it fails
import torch
import torch.distributed as dist
dist.init_process_group("gear_mpi")
total = torch.ones(3)
dist.all_reduce(total)
import gear_mpi
from gear_mpi.library import load
assert gear_mpi.__file__.startswith({wheel!r}), gear_mpi.__file__
assert load().__file__.startswith({wheel!r}), load().__file__
dist.destroy_process_group()
print("summed", total.tolist(), flush=True)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--quiet"]
    command = [*pip, f"--wheel-dir={to}", str(REPOSITORY / "process_group")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [file] = to.glob("gear_mpi-*.whl")
    return file


def test_it_holds_the_package_and_its_library(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert {"gear_mpi/__init__.py", "gear_mpi/py.typed", "gear_mpi/_c10d.pyi"} <= set(names)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert [name for name in names if name.endswith(f"/_c10d{suffix}")]
    assert not [name for name in names if "rehearsal" in name or name.startswith("gear/")]
    assert "linux" in wheel.name


def test_ranks_meet_and_add_up(wheel: Path, tmp_path: Path) -> None:
    folder = str(tmp_path / "installed")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet"]
    subprocess.run([*pip, f"--target={folder}", str(wheel)], check=True)
    program = PROGRAM.format(wheel=folder, packages=sysconfig.get_path("platlib"))
    command = [*mpirun("mpirun"), "-n", "2", sys.executable, "-S", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("summed [2.0, 2.0, 2.0]") == 2

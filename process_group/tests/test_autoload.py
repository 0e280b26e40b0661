"""torch's import makes gear_mpi known, by an entry point: it costs little, and cannot fail."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

import gear_mpi

pytest.importorskip("torch")

import torch.distributed as dist

from process_group.tests.launch import run_ranks

pytestmark = [pytest.mark.subject("process_group"), pytest.mark.xdist_group("process_group")]

LOADED = """
import sys, time
import torch
from importlib.metadata import entry_points
[entry] = entry_points(group="torch.backends", name="gear_mpi")
begun = time.perf_counter(), time.process_time()
entry.load()()
took = time.perf_counter() - begun[0], time.process_time() - begun[1]
print(f"{1000 * took[0]:.2f} ms, {1000 * took[1]:.2f} ms of CPU time")
assert hasattr(torch.distributed.Backend, "GEAR_MPI")
print(sorted(name for name in sys.modules if name.split(".")[0] == "gear"))
with open("/proc/self/maps") as maps:
    print(sorted({line.split("/")[-1].strip() for line in maps if "mpi" in line.split("/")[-1]}))
"""

RAISES = """
import gear_mpi
def register():
    raise OSError("no such thing")
gear_mpi.register = register
import torch
print("imported", torch.ones(1).item())
"""

DOES_NOT_LOAD = """
import sys
import torch.distributed as dist
sys.modules["gear_mpi.place"] = None  # an import of it fails
try:
    dist.init_process_group("gloo")
except ValueError as error:
    print("torch:", error)
"""


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh process, which no launcher has started."""
    launchers = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_")
    own = {name: text for name, text in os.environ.items() if not name.startswith(launchers)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd="/",
        env={**own, **environment},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_entry_point_is_installed() -> None:
    [entry] = entry_points(group="torch.backends", name="gear_mpi")
    assert entry.value == "gear_mpi:autoload"


def test_it_loads_neither_gear_nor_mpi() -> None:
    """Its time is told, and is to be below 5 ms; the rest of `import torch` takes a second."""
    took, *loaded = python(LOADED, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.splitlines()
    print(f"the entry point took {took}")
    assert loaded == ["[]", "[]"]
    _, *loaded = python(LOADED).stdout.splitlines()  # and by torch itself, in its import
    assert loaded == ["[]", "[]"]


def test_an_import_of_torch_does_not_fail_where_it_does() -> None:
    done = python(RAISES)
    assert done.stdout == "imported 1.0\n"
    assert "torch.distributed does not know gear_mpi: OSError('no such thing')" in done.stderr


def test_torch_meets_as_ever_where_it_does_not_load() -> None:
    done = python(DOES_NOT_LOAD)
    assert "torch: Error initializing torch.distributed using env://" in done.stdout
    assert "no launcher has started" not in done.stdout
    assert "ranks cannot meet by MPI, as gear_mpi does not load: ModuleNotFoundError" in done.stderr


def test_it_registers_once() -> None:
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    gear_mpi.register()
    before = dict(handlers)
    gear_mpi.register()
    gear_mpi.autoload()
    assert handlers == before
    assert dist.Backend.backend_list.count("gear_mpi") == 1


def test_a_torch_without_distributed_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dist, "is_available", lambda: False)
    monkeypatch.delattr(dist, "Backend")
    with caplog.at_level(logging.WARNING):
        gear_mpi.autoload()
    assert not caplog.records


@pytest.mark.slow
@pytest.mark.gear_mpi
def test_a_program_that_imports_torch_alone() -> None:
    ended = run_ranks(2, "autoloaded.py")
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert ended.stdout.count("autoloaded") == 2


@pytest.mark.slow
def test_it_is_made_known_by_hand_where_torch_does_not() -> None:
    script = "import torch.distributed as dist, gear_mpi\ngear_mpi.register()\n"
    script += "print(dist.Backend.GEAR_MPI)"
    assert python(script, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout == "gear_mpi\n"


@pytest.mark.slow
def test_the_former_name_has_all_and_says_what_it_is() -> None:
    script = "import warnings\nwarnings.simplefilter('default')\nimport gear.mpi, gear_mpi\n"
    script += "assert all(getattr(gear_mpi, n) is getattr(gear.mpi, n) for n in gear.mpi.__all__)\n"
    script += "import torch.distributed as dist\nprint(dist.Backend.GEAR_MPI)"
    done = python(script, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.stdout == "gear_mpi\n"
    assert "DeprecationWarning: gear.mpi is the package gear_mpi: import gear_mpi" in done.stderr


@pytest.mark.slow
def test_it_needs_no_gear() -> None:
    script = "import sys\nsys.modules['gear'] = None\nimport gear_mpi, gear_mpi.trace\n"
    script += "print([n for n in gear_mpi.__all__ if not getattr(gear_mpi, n)])"
    assert python(script).stdout == "[]\n"

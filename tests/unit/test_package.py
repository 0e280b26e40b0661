"""The package's own face: version, what was built, the installation check, no work at import."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gear
from gear import _core


def test_version_and_build_info() -> None:
    info = _core.build_info()
    assert gear.__version__ == info["version"]
    assert bool(info["cuda"]) == bool(info["cuda_architectures"]) == bool(_core.runtime_version())
    assert info["compiler"]
    assert info["build_type"]
    assert info["simd"]
    assert info["checkpoint_format"] >= 1


def test_the_version_stands_in_one_place() -> None:
    clone = Path(__file__).parents[2]
    stated = re.search(r'^version = "(.*)"$', (clone / "pyproject.toml").read_text(), re.MULTILINE)
    assert stated is not None
    assert gear.__version__ == stated[1]
    for file in (clone / "CMakeLists.txt", *(clone / "gear").rglob("*.py")):
        assert stated[1] not in file.read_text(), f"{file} says the version, too"


def test_check_visible_device(capsys: pytest.CaptureFixture[str]) -> None:
    count = gear.check_visible_device()
    line = f"CHECK visible_device_count.......................................{count}.\n"
    assert capsys.readouterr().out == line
    assert count >= 0


def test_check_visible_device_prints_0_without_a_gpu() -> None:
    program = "import gear; gear.check_visible_device()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "CHECK visible_device_count.......................................0.\n"


def test_import_loads_no_framework() -> None:
    program = (
        "import sys, gear; "
        "print([m for m in ('torch', 'jax', 'cupy', 'mpi4py', 'horovod', 'hydra', 'click') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_clone_that_is_not_built_says_so() -> None:
    """Python without site-packages, started in the repository."""
    clone = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import gear"],
        cwd=clone,
        env={name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"ImportError: [import] gear in {clone / 'gear'} is source code without")
    assert "start Python in another folder" in said


def test_gear_exports_its_names() -> None:
    assert all(hasattr(gear, name) for name in gear.__all__)
    spec = """Column Schema ReplayBuffer Step Window Uniform Weighted Sequential Fifo Lifo TopK
    RateLimit Group InvalidArgument OutOfMemory CudaError TransportError CorruptData GearError
    check_visible_device Loader Batch Writer Episode"""
    assert set(spec.split()) <= set(gear.__all__)

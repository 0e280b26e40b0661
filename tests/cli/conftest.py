"""Three GPUs that are not there: what knows them stands in for the driver's library."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with NVIDIA's interface; NVML_STUB chooses what goes wrong with it."""
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml_stub.c")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, source], check=True
    )
    return library


@pytest.fixture
def three_gpus(nvml_stub: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    pynvml = pytest.importorskip("pynvml")
    monkeypatch.setattr(pynvml, "CDLL", lambda name: ctypes.CDLL(str(nvml_stub)))
    # What it has loaded and looked up stays for good, otherwise.
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return monkeypatch

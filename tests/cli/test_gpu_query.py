"""`gear gpu query`, over a library with NVIDIA's interface that describes three GPUs.

That library stands in for the driver's (nvml_stub.c). The tests marked `gpu`, which
tests/gpu/run.sh runs, ask the driver, and compare with CUDA and nvidia-smi.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gear.cli import app

pynvml = pytest.importorskip("pynvml")
from gear.cli.gpu import nvml  # noqa: E402


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PCI bus on which there is no GPU of NVIDIA's: a network card, and another's display."""
    put(tmp_path, "0000:00:02.0", "0x8086", "0x030000")
    put(tmp_path, "0000:01:00.0", "0x10de", "0x020000")
    monkeypatch.setattr(nvml, "PCI_DEVICES", tmp_path)
    return tmp_path


def no_library(name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file")


def put(bus: Path, address: str, vendor: str, kind: str) -> None:
    (bus / address).mkdir()
    (bus / address / "vendor").write_text(f"{vendor}\n")
    (bus / address / "class").write_text(f"{kind}\n")


def query(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert app.main(["gpu", "query", "--json"]) == 0
    gpus: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return gpus


def test_json_describes_each_gpu(
    capsys: pytest.CaptureFixture[str], three_gpus: pytest.MonkeyPatch
) -> None:
    gpus = query(capsys)
    assert gpus[0] == {
        "index": 0,
        "name": "NVIDIA H200",
        "compute_capability": [9, 0],
        "memory_bytes": 140 << 30,
        "free_bytes": 139 << 30,
        "pci_bus_id": "0000:3b:00.0",
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "nvlink": {"links": 18, "up": 18, "peers": [1]},
        "gencode": "-gencode arch=compute_90,code=sm_90",
    }
    assert gpus[1]["nvlink"] == {"links": 18, "up": 17, "peers": [0]}
    assert gpus[2]["nvlink"] == {"links": 0, "up": 0, "peers": []}
    assert gpus[2]["gencode"] == "-gencode arch=compute_80,code=sm_80"


def test_table(capsys: pytest.CaptureFixture[str], three_gpus: pytest.MonkeyPatch) -> None:
    three_gpus.setenv("COLUMNS", "120")
    assert app.main(["gpu", "query"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("NVIDIA H200") == 2
    for text in ("9.0", "140.0 GiB", "17 of 18 links up, to 0", "none"):
        assert text in shown
    assert (
        "for nvcc: -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90\n"
        "for a site file: cuda_architectures = 80;90\n"
    ) in shown


@pytest.mark.parametrize("library", ["absent", "not loaded", "none"])
def test_no_gpu_is_no_error(
    library: str,
    capsys: pytest.CaptureFixture[str],
    three_gpus: pytest.MonkeyPatch,
    bus: Path,
) -> None:
    if library == "absent":
        three_gpus.setattr(pynvml, "CDLL", no_library)
    three_gpus.setenv("NVML_STUB", library)
    assert query(capsys) == []
    assert app.main(["gpu", "query"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("no NVIDIA GPU on this machine")
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("library", "said"),
    [
        ("absent", "PCI address 0000:3b:00.0, but: NVML Shared Library Not Found"),
        ("not loaded", "PCI address 0000:3b:00.0, but: Driver Not Loaded"),
        ("mismatch", "RM has detected an NVML/RM version mismatch"),
        ("lost", "GPU is lost"),
    ],
)
def test_a_broken_driver_is_an_error(
    library: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    three_gpus: pytest.MonkeyPatch,
    bus: Path,
) -> None:
    put(bus, "0000:3b:00.0", "0x10de", "0x030200")
    if library == "absent":
        three_gpus.setattr(pynvml, "CDLL", no_library)
    three_gpus.setenv("NVML_STUB", library)
    assert app.main(["gpu", "query", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gear: [gpu] the driver does not answer: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert "nvidia-smi" in captured.err


@pytest.mark.gpu
def test_gpus_are_those_of_cuda(capsys: pytest.CaptureFixture[str]) -> None:
    import gear

    gpus = {gpu["uuid"]: gpu for gpu in query(capsys)}
    for device in gear._core.devices():
        gpu = gpus[device["uuid"]]
        assert tuple(gpu["compute_capability"]) == device["compute_capability"]
        assert (gpu["name"], gpu["pci_bus_id"]) == (device["name"], device["pci_bus_id"].lower())


@pytest.mark.gpu
def test_gpus_are_those_of_nvidia_smi(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "name,compute_cap,memory.total,pci.bus_id,uuid,memory.free"
    said = by_nvidia_smi(f"--query-gpu={asked}", "--format=csv,noheader,nounits")
    links = by_nvidia_smi("nvlink", "--status").split("GPU ")[1:]
    gpus = query(capsys)
    assert len(gpus) == len(said.splitlines())
    for gpu, line in zip(gpus, said.splitlines(), strict=True):
        *expected, free = line.split(", ")
        capability = ".".join(map(str, gpu["compute_capability"]))
        address = f"0000{gpu['pci_bus_id'].upper()}"  # nvidia-smi has the domain in eight digits
        total = str(gpu["memory_bytes"] >> 20)
        assert [gpu["name"], capability, total, address, gpu["uuid"]] == expected
        assert gpu["free_bytes"] >> 20 == pytest.approx(int(free), abs=1024)  # others come and go
        up = sum(each.count(" GB/s") for each in links if gpu["uuid"] in each)
        assert gpu["nvlink"]["up"] == up


def by_nvidia_smi(*arguments: str) -> str:
    command = ["nvidia-smi", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout

"""`gear check`: a row for everything, as a table and as JSON."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

import gear
from gear.cli import app, network
from gear.cli import check as check_module
from gear.distributed.channels import transports
from gear.errors import CudaError


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    assert app.main(["check", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["version"] == gear.__version__
    return {row["name"]: row for row in printed["findings"]}


def test_json_tells_build_machine_and_packages(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys)
    assert {row["area"] for row in found.values()} == {
        "build",
        "machine",
        "packages",
        "environment",
    }
    info = gear._core.build_info()
    assert found["core"]["status"] == "built"
    assert info["compiler"] in found["core"]["detail"]
    assert found["checkpoint format"]["detail"] == str(info["checkpoint_format"])
    assert found["CUDA"]["status"] == ("built" if info["cuda"] else "missing")
    assert found["MPI"]["status"] == ("built" if info["mpi"] else "missing")
    assert found["numpy"]["detail"] == importlib.metadata.version("numpy")
    assert {"cores", "memory", "shared memory", "GPUs", "CUDA driver", "torch"} <= set(found)


def test_environment_variables_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEAR_LOG", "off")
    monkeypatch.delenv("GEAR_SHM_PREFIX", raising=False)
    found = rows(capsys)
    assert (found["GEAR_LOG"]["status"], found["GEAR_LOG"]["detail"]) == ("set", "off")
    assert found["GEAR_SHM_PREFIX"]["status"] == "default"


def test_what_is_missing_has_a_cost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_module, "_version", lambda distribution: None)
    found = rows(capsys)
    missing = [row for row in found.values() if row["status"] == "missing"]
    assert len(missing) >= len(check_module.OPTIONAL)
    assert all(row["cost"] for row in missing)
    assert "pip install" in found["torch"]["detail"]


def test_table_shows_every_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = set(rows(capsys))
    monkeypatch.setenv("COLUMNS", "200")
    assert app.main(["check"]) == 0
    table = capsys.readouterr().out
    assert all(name in table for name in names)
    assert "CHECK visible_device_count" not in table


GATHERS = {"bytes_per_s": 51.2e9, "places_per_s": 41.5e6, "staged_bytes_per_s": 20.04e9}


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine with one GPU, as the core would describe it; nothing measured yet."""
    device = {
        "index": 0,
        "name": "NVIDIA H200",
        "compute_capability": (9, 0),
        "multiprocessors": 132,
        "memory_bytes": 140 << 30,
        "free_bytes": 139 << 30,
        "pci_bus_id": "0000:3b:00.0",
        "pcie_generation": 5,
        "pcie_width": 16,
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
    }
    core = gear._core
    info = core.build_info() | {"cuda": "13.0", "cuda_architectures": "75 90"}
    monkeypatch.setattr(core, "build_info", lambda: info)
    monkeypatch.setattr(core, "devices", lambda: [dict(device)])
    monkeypatch.setattr(core, "driver_version", lambda: 13010)
    monkeypatch.setattr(core, "runtime_version", lambda: 13000)
    monkeypatch.setattr(
        core,
        "measure_bandwidth",
        lambda index: {"host_to_device": 55.4, "device_to_host": 54.0, "device": 4260.0},
    )
    monkeypatch.setattr(core, "link_speeds", lambda index, *, measure: GATHERS if measure else None)
    monkeypatch.setattr(gear, "check_visible_device", lambda: 1)
    return device


def test_a_gpu_is_described(capsys: pytest.CaptureFixture[str], one_gpu: dict[str, Any]) -> None:
    found = rows(capsys)
    assert found["GPUs"]["detail"] == "1 visible"
    assert found["CUDA"]["detail"] == "13.0 for 75 90"
    assert found["CUDA driver"]["detail"] == "CUDA 13.1"
    assert found["CUDA runtime"]["detail"].startswith("CUDA 13.0")
    for part in ("NVIDIA H200", "9.0", "140.0 GiB", "139.0 free", "PCIe 5 x16"):
        assert part in found["GPU 0"]["detail"]
    assert "--measure" in found["GPU 0 gathers"]["detail"]
    assert "GPU 0 copies" not in found


def test_measuring_gives_speeds_of_copies_and_gathers(
    capsys: pytest.CaptureFixture[str], one_gpu: dict[str, Any]
) -> None:
    assert app.main(["check", "--json", "--measure"]) == 0
    printed = json.loads(capsys.readouterr().out)
    gpus = printed["gpus"]
    assert (gpus["visible"], gpus["driver"], gpus["runtime"]) == (1, "13.1", "13.0")
    assert gpus["devices"][0]["uuid"] == one_gpu["uuid"]
    assert gpus["devices"][0]["bandwidth"]["host_to_device"] == 55.4
    assert gpus["devices"][0]["gathers"] == GATHERS
    found = {row["name"]: row for row in printed["findings"]}
    assert "55.4 GB/s" in found["GPU 0 copies"]["detail"]
    assert "4260" in found["GPU 0 copies"]["detail"]
    told = found["GPU 0 gathers"]["detail"]
    assert told == "zero-copy 51.2 GB/s, 41.5 million places/s; staged 20.0 GB/s"


@pytest.mark.parametrize(
    ("architectures", "runs"),
    [("90", True), ("75 90 120", True), ("80", True), ("75 86", True), ("75 120", False)],
)
def test_a_gpu_without_code_is_missing(
    architectures: str,
    runs: bool,
    capsys: pytest.CaptureFixture[str],
    one_gpu: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    info = gear._core.build_info() | {"cuda_architectures": architectures}
    monkeypatch.setattr(gear._core, "build_info", lambda: info)
    row = rows(capsys)["GPU 0"]
    assert row["status"] == ("found" if runs else "missing")
    assert ("GEAR_CUDA_ARCHITECTURES" in row["cost"]) == (not runs)


def test_a_lost_gpu_is_reported_and_the_rest_is_too(
    capsys: pytest.CaptureFixture[str], one_gpu: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> list[dict[str, Any]]:
        raise CudaError("[cuda] cudaMemGetInfo failed: the GPU was lost")

    monkeypatch.setattr(gear._core, "devices", lost)
    found = rows(capsys)
    assert found["GPUs"]["status"] == "missing"
    assert "was lost" in found["GPUs"]["cost"]
    assert "numpy" in found


def test_a_build_without_cuda_beside_a_gpu(
    capsys: pytest.CaptureFixture[str], one_gpu: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = gear._core.build_info() | {"cuda": "", "cuda_architectures": ""}
    monkeypatch.setattr(gear._core, "build_info", lambda: info)
    monkeypatch.setattr(gear._core, "devices", list)
    monkeypatch.setattr(gear._core, "runtime_version", lambda: 0)
    found = rows(capsys)
    assert found["CUDA"]["status"] == "missing"
    assert "built without CUDA" in found["GPUs"]["cost"]
    assert "CUDA runtime" not in found


def test_a_limit_on_locked_memory_has_a_cost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status = tmp_path / "status"
    monkeypatch.setattr(network, "STATUS", status)
    monkeypatch.setattr(network.resource, "getrlimit", lambda which: (8 << 20, 8 << 20))
    status.write_text("Name:\tgear\nCapEff:\t0000000000000000\n")
    row = rows(capsys)["locked memory"]
    assert (row["status"], row["detail"]) == ("missing", "at most 8.0 MiB")
    assert "ulimit -l" in row["cost"]
    status.write_text("Name:\tgear\nCapEff:\t000001ffffffffff\n")
    assert rows(capsys)["locked memory"]["detail"] == "without limit"


def test_rows_of_other_nodes_name_the_port_or_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = gear._core.build_info() | {"verbs": True, "fabric": True}
    monkeypatch.setattr(gear._core, "build_info", lambda: built)
    monkeypatch.setattr(transports, "CARDS", (tmp_path / "infiniband",))
    assert rows(capsys)["verbs"]["detail"] == "no RDMA device"
    (tmp_path / "infiniband" / "mlx5_0").mkdir(parents=True)
    port = "mlx5_0 port 1, RoCE, GID 3 ::ffff:10.0.0.1, MTU 4096"
    monkeypatch.setattr(gear._core, "verbs_port", lambda: port)
    monkeypatch.setattr(gear._core, "fabric_port", lambda: "tcp;ofi_rxm on eth0")
    found = rows(capsys)
    assert (found["verbs"]["status"], found["verbs"]["detail"]) == ("found", port)
    assert found["fabric"]["detail"].startswith("tcp;ofi_rxm on eth0 only")

    def refuse() -> str:
        raise gear.TransportError("[transport] no RDMA port can be used: mlx5_0 port 1 is down")

    monkeypatch.setattr(gear._core, "verbs_port", refuse)
    row = rows(capsys)["verbs"]
    assert row["detail"] == "none to use (no RDMA port can be used: mlx5_0 port 1 is down)"
    assert row["cost"] == "rows of other nodes come by messages"
    built["verbs"] = False
    assert rows(capsys)["verbs"]["detail"].startswith("a build without infiniband/verbs.h")

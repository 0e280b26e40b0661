"""What `gear check` says of the GPUs here is what others say of them, and its speeds are speeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from gear import _core
from gear.cli.gpu.gpus import find_gpus, gpu_findings


@pytest.fixture(autouse=True)
def _needs_a_real_one(gpu) -> None:
    if gpu.rehearsal:
        pytest.skip("facts of a GPU")


def test_they_are_what_torch_says() -> None:
    import torch

    devices = _core.devices()
    assert len(devices) == torch.cuda.device_count()
    for device in devices:
        properties = torch.cuda.get_device_properties(device["index"])
        assert device["name"] == properties.name
        assert device["compute_capability"] == (properties.major, properties.minor)
        assert device["multiprocessors"] == properties.multi_processor_count
        assert device["uuid"] == f"GPU-{properties.uuid}"
        assert 0 < device["free_bytes"] <= device["memory_bytes"]
        assert device["pcie_generation"] in range(8)
        assert device["pcie_width"] in (0, 1, 2, 4, 8, 16, 32)
    assert _core.driver_version() >= _core.runtime_version() // 1000 * 1000 > 0


def test_asking_leaves_the_current_gpu_alone() -> None:
    import torch

    current = torch.cuda.current_device()
    _core.devices()
    assert torch.cuda.current_device() == current


def test_links_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEAR_CACHE", str(tmp_path))
    before = find_gpus(measure=False)
    assert all(device["gathers"] is None for device in before.devices)
    measured = find_gpus(measure=True)
    assert not measured.problem
    for device in measured.devices:
        speed = device["bandwidth"]
        # Slower than PCIe 1 x16, or faster than any link there is, is a mistake in measuring.
        assert 1 < speed["host_to_device"] < 1000
        assert 1 < speed["device_to_host"] < 1000
        assert speed["host_to_device"] < speed["device"] < 50_000
        gathers = device["gathers"]
        assert 0.5e9 < gathers["bytes_per_s"] < 1000e9
        assert 0.5e9 < gathers["staged_bytes_per_s"] < 1000e9
        assert 1e5 < gathers["places_per_s"] < 1e10
    names = {finding.name for finding in gpu_findings(measured)}
    assert {"GPU 0", "GPU 0 copies", "GPU 0 gathers"} <= names
    kept = find_gpus(measure=False)
    assert kept.devices[0]["gathers"] == measured.devices[0]["gathers"]


def test_kept_speeds_that_are_torn_or_of_another_link_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEAR_CACHE", str(tmp_path))
    measured = _core.link_speeds(0, measure=True)
    [file] = tmp_path.glob("links-*.txt")
    line = file.read_text()
    for other in (line[:-9], line.replace("links 4", "links 3"), line.replace(" at ", " in ")):
        file.write_text(other)
        assert _core.link_speeds(0, measure=False) is None
    file.write_text(line)
    assert _core.link_speeds(0, measure=False) == measured

"""`gear check`: a row for everything, as a table and as JSON."""

from __future__ import annotations

import importlib.metadata
import json

import pytest

import gear
from gear.cli import app
from gear.cli import check as check_module


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
    assert found["numpy"]["detail"] == importlib.metadata.version("numpy")
    assert {"cores", "memory", "shared memory", "GPUs", "torch"} <= set(found)


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

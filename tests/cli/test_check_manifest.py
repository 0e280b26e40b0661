"""`gear check --manifest`: shows what was built, and lists what differs from it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from gear.cli import app

PATCH = b"Why: torch 2.13 needs C++17.\n--- a\n+++ b\n"


@pytest.fixture
def manifest() -> dict[str, Any]:
    return {
        "format": 1,
        "gear": {"version": "1.2.3", "kind": "cpu", "source_hash": "0123456789ab"},
        "site": {"name": "Debian 12", "proxy": ""},
        "tools": {"python": "3.11.2", "mpi": "Open MPI 4.1.4"},
        "packages": [
            {"name": "hydra-core", "version": "1.3.8", "sha256": "a" * 64, "source": "hydra.whl"},
            {"name": "pip", "version": "23.0.1", "sha256": None, "source": "python -m venv"},
        ],
        "patches": [
            {
                "file": "cxx17.patch",
                "sha256": hashlib.sha256(PATCH).hexdigest(),
                "why": "torch 2.13 needs C++17.",
            }
        ],
        "options": {"horovod": {"HOROVOD_WITH_MPI": "1"}},
        "steps": ["preflight", "venv"],
    }


@pytest.fixture
def home(tmp_path: Path, manifest: dict[str, Any]) -> Path:
    """An installation that is as its manifest says."""
    home = tmp_path / "gear" / "1.2.3-cpu"
    install(home, "hydra_core", "1.3.8")
    base = tmp_path / "gear" / "base"
    install(base, "pip", "23.0.1")
    patch = base / "share" / "gear" / "patches" / "cxx17.patch"
    patch.parent.mkdir(parents=True)
    patch.write_bytes(PATCH)
    (home / "base").symlink_to(base)
    (home / "share" / "gear").mkdir(parents=True)
    (home / "share" / "gear" / "manifest.json").write_text(json.dumps(manifest))
    return home


def install(home: Path, name: str, version: str) -> Path:
    folder = home / "lib" / "python3.11" / "site-packages" / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def differences(home: Path, capsys: pytest.CaptureFixture[str], code: int) -> list[str]:
    path = home / "share" / "gear" / "manifest.json"
    assert app.main(["check", "--manifest", str(path), "--json"]) == code
    printed = json.loads(capsys.readouterr().out)
    assert printed["manifest"] == json.loads(path.read_text())
    found: list[str] = printed["differences"]
    return found


def test_unchanged(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert differences(home, capsys, code=0) == []


def test_the_manifest_of_the_loaded_module_is_shown(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("GEAR_HOME", str(home))
    assert app.main(["check", "--manifest"]) == 0
    shown = capsys.readouterr().out
    for text in ("gear/1.2.3-cpu", "0123456789ab", "Debian 12", "Open MPI 4.1.4", "hydra.whl"):
        assert text in shown
    for text in (
        "cxx17.patch",
        "needs C++17",
        "HOROVOD_WITH_MPI=1",
        "preflight venv",
        "aaaaaaaaaaaa",
    ):
        assert text in shown
    assert "proxy" not in shown
    assert shown.endswith("the installation is as the manifest says\n")


def test_each_difference_is_a_sentence(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, packages = home / "base", Path("lib", "python3.11", "site-packages")
    (home / packages / "hydra_core-1.3.8.dist-info").rename(home / packages / "old")
    install(home, "hydra_core", "1.4.0")
    (base / packages / "pip-23.0.1.dist-info" / "METADATA").unlink()
    (base / packages / "pip-23.0.1.dist-info").rmdir()
    install(base, "left_pad", "1.0")
    patch = base / "share" / "gear" / "patches" / "cxx17.patch"
    patch.write_bytes(PATCH + b"\n")
    found = differences(home, capsys, code=1)
    assert found == [
        "hydra-core is 1.4.0, was 1.3.8",
        "pip 23.0.1 is not installed",
        "left-pad 1.0 was installed afterwards",
        "base/share/gear/patches/cxx17.patch was changed",
    ]
    patch.unlink()
    assert differences(home, capsys, code=1)[-1] == "base/share/gear/patches/cxx17.patch is missing"
    assert app.main(["check", "--manifest", str(home / "share/gear/manifest.json")]) == 1
    assert "different: hydra-core is 1.4.0, was 1.3.8\n" in capsys.readouterr().out


def test_a_package_that_hides_one_of_the_base(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(home, "pip", "26.0")
    assert differences(home, capsys, code=1) == ["pip is 26.0, was 23.0.1"]


def test_the_environment_beneath_is_compared_by_versions(
    home: Path, tmp_path: Path, manifest: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "torch-env"
    folder = install(given, "torch", "2.11.0")
    (folder / "RECORD").write_text("torch/never_looked_for.py,,12\n")
    manifest["site"]["stand_on"] = str(given)
    manifest["packages"].append(
        {"name": "torch", "version": "2.11.0", "sha256": None, "source": "beneath"}
    )
    (home / "share/gear/manifest.json").write_text(json.dumps(manifest))
    assert differences(home, capsys, code=0) == []
    folder.rename(folder.with_name("torch-2.12.0.dist-info"))
    (folder.with_name("torch-2.12.0.dist-info") / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.12.0\n"
    )
    assert differences(home, capsys, code=1) == ["torch is 2.12.0, was 2.11.0"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "hydra-core: hydra/core.py is missing"),
        (b"hacked\n", "hydra-core: hydra/core.py has 7 bytes, had 5"),
    ],
)
def test_files_of_a_package(
    home: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, sentence: str
) -> None:
    packages = home / "lib" / "python3.11" / "site-packages"
    file = packages / "hydra" / "core.py"
    file.parent.mkdir()
    file.write_bytes(b"good\n")
    record = "hydra/core.py,sha256=xyz,5\nhydra_core-1.3.8.dist-info/RECORD,,\n"
    (packages / "hydra_core-1.3.8.dist-info" / "RECORD").write_text(record)
    assert differences(home, capsys, 0) == []
    file.unlink()
    if content:
        file.write_bytes(content)
    assert differences(home, capsys, 1) == [sentence]


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert app.main(["check", "--manifest", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gear: [manifest] ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_without_a_module(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEAR_HOME", raising=False)
    assert "module load gear" in refused([], capsys)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ("[]", "format None"),
        ('{"format": 2}', "format 2, and this GEAR reads 1"),
        ('{"format": 1, "gear": {}}', "lacks options, packages, patches, site, steps, tools"),
    ],
)
def test_no_manifest(
    text: str | None, said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / "share" / "gear" / "manifest.json"
    path.unlink() if text is None else path.write_text(text)
    assert said in refused([str(path)], capsys)


def test_a_copy_elsewhere_is_of_no_installation(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "a" / "b" / "manifest.json"
    copy.parent.mkdir(parents=True)
    copy.write_bytes((home / "share" / "gear" / "manifest.json").read_bytes())
    assert "is no installation" in refused([str(copy)], capsys)

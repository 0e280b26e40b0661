"""The torch of the site file is the one that pip installs; all else has the pinned versions."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from distribution.recipe_part import fake_python, run_part


def wheel(folder: Path, name: str, version: str) -> None:
    """One of nothing but its name."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        archive.writestr(f"{info}/METADATA", about)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def pip_download(folder: Path, torch: str) -> subprocess.CompletedProcess[str]:
    """What the steps do, with the venv's environment replaced by the one of the tests."""
    house = folder / "wheelhouse"
    house.mkdir()
    for version in ("2.6.0", "2.13.0"):
        wheel(house, "torch", version)
    for version in ("14.0.0", "15.0.0", "16.0.0"):
        wheel(house, "rich", version)
    fake_python(folder / "build", f'exec {sys.executable} "$@"')
    keep = 'pinned_versions | write "$RECORD/constraints.txt"\n'
    get = f'pip download --dest {folder}/got torch rich || {{ cat "$LOG" >&2; exit 1; }}'
    site = {"torch": torch, "wheelhouse": str(house)}
    return run_part("pip.sh", keep + get, folder, site=site)


def test_another_torch_can_be_had(tmp_path):
    done = pip_download(tmp_path, "2.6.0")
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "got").iterdir())
    assert names == ["rich-15.0.0-py3-none-any.whl", "torch-2.6.0-py3-none-any.whl"]


def test_without_torch_the_rest_keeps_its_versions(tmp_path):
    done = run_part("inputs.sh", "pinned_versions", tmp_path, site={"torch": "off"})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert not [line for line in lines if line.startswith("torch==")]
    for pin in ("numpy==", "gymnasium==", "wandb==", "setuptools=="):
        assert len([line for line in lines if line.startswith(pin)]) == 1
    # What developers use is no matter of a site.
    assert not [line for line in lines if line.startswith(("ruff==", "pytest=="))]


def test_a_site_may_choose_a_torch_that_wants_an_older_setuptools(tmp_path):
    """torch 2.10 to 2.12 want one below 82: pip refused them beside the pinned 84."""
    done = run_part("inputs.sh", "pinned_versions", tmp_path, site={"torch": "2.12.1"})
    assert (done.returncode, done.stderr) == (0, "")
    pins = dict(line.partition(" ")[0].split("==") for line in done.stdout.splitlines())
    assert pins["torch"] == "2.12.1"
    assert int(pins["setuptools"].split(".")[0]) < 82

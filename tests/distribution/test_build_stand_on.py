"""`stand_on`: an installation on an environment that the machine has, which stays as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from distribution.recipe import SMALL, Recipe, small_site, toy_recipe, write_site
from distribution.toy_module import command, files_of, make_venv, site_packages

pytestmark = pytest.mark.subject("recipes")

THERE = "8.1.99"  # of click: no release, and not the pinned one


def give(folder: Path, name: str, version: str) -> None:
    """A package with nothing in it but its version."""
    packages = site_packages(folder)
    (packages / f"{name}.py").write_text(f"__version__ = {version!r}\n")
    about = packages / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "INSTALLER").write_text("pip\n")
    (about / "RECORD").write_text(f"{name}.py,,\n{about.name}/METADATA,,\n")


@pytest.fixture
def given(tmp_path: Path) -> Path:
    venv = make_venv(tmp_path / "given", sys.executable)
    give(venv, "click", THERE)
    command(venv / "bin/mpirun", "#!/bin/sh\n")  # of no package
    (site_packages(venv) / "left-2.dist-info").mkdir()  # by an uninstallation
    return venv


@pytest.mark.slow
def test_what_is_there_is_taken_and_left_as_it_is(given: Path, tmp_path: Path) -> None:
    before = files_of(given)
    recipe = toy_recipe(
        small_site(tmp_path / "site.conf", stand_on=str(given)), tmp_path / "prefix"
    )
    said = recipe.succeed()
    assert f"Python {'.'.join(map(str, sys.version_info[:3]))}: {given}/bin/python" in said
    home = recipe.home()
    shows = "import click, pybind11; print(click.__file__, pybind11.__file__)"
    click, pybind11 = subprocess.check_output([home / "bin/python", "-c", shows], text=True).split()
    assert Path(click).is_relative_to(given)
    assert Path(pybind11).is_relative_to((home / "base").resolve())
    packages = {each["name"]: each for each in json.loads(recipe.manifest())["packages"]}
    assert packages["click"] == {
        "name": "click",
        "version": THERE,
        "sha256": None,
        "source": "the environment that this stands on",
    }
    assert packages["pybind11"]["sha256"] is not None
    pins = (home / "base/share/gear/record/constraints.txt").read_text()
    assert "pybind11==" in pins
    assert "click==" not in pins
    assert files_of(given) == before
    assert not (home / "bin/mpirun").is_symlink()

    assert "nothing to do" in recipe.succeed()
    give(given, "another", "1")
    assert "] venv\n" in recipe.succeed()  # a base of its own, on what is there now


def refused(site: Path, prefix: Path) -> str:
    return Recipe(site, prefix).run("--only", "preflight").sentence()


@pytest.mark.parametrize(
    ("has", "torch", "says"),
    [
        ("2.11.0+cu130", "2.12.1", "has torch 2.11.0, and"),
        ("2.11.0+cu130", "2.11.0+cpu", "has torch 2.11.0+cu130, and"),
        ("", "2.12.1", "has no torch of its own"),
    ],
)
def test_another_torch_than_the_one_there_is_refused(
    given: Path, tmp_path: Path, has: str, torch: str, says: str
) -> None:
    if has:
        give(given, "torch", has)
    site = write_site(tmp_path / "site.conf", {"stand_on": str(given), "torch": torch})
    assert f"stand_on = {given} {says}" in refused(site, tmp_path / "prefix")


@pytest.mark.parametrize("torch", ["2.11.0", "2.11.0+cu130"])
def test_the_torch_that_is_there_will_do(given: Path, tmp_path: Path, torch: str) -> None:
    give(given, "torch", "2.11.0+cu130")
    site = write_site(tmp_path / "site.conf", {"stand_on": str(given), "torch": torch})
    assert "done in" in Recipe(site, tmp_path / "prefix").succeed("--only", "preflight")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"python": "python3"}, "has a Python of its own"),
        ({"nccl": "/opt/nccl", "cuda_home": "/cuda"}, "would change the torch of stand_on = "),
        ({"stand_on": "/no where"}, "has a space in it"),
        (
            {"stand_on": "/nowhere"},
            "stand_on = /nowhere has no Python to build with: /nowhere/bin/",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    given: Path, tmp_path: Path, values: dict[str, str], says: str
) -> None:
    site = write_site(tmp_path / "site.conf", SMALL | {"stand_on": str(given)} | values)
    assert says in refused(site, tmp_path / "prefix")

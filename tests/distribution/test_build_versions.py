"""What is in a prefix: versions side by side, the default, and what uninstalling takes away."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from distribution.recipe import REPOSITORY, Installation, Recipe, picture, small_site


@pytest.fixture(scope="module")
def next_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of a version 0.9.0."""
    source = tmp_path_factory.mktemp("next") / "gear"
    names = "gear csrc cmake CMakeLists.txt pyproject.toml README.md LICENSE requirements recipes"
    for name in f"{names} modulefiles slurm extend-venv-activate".split():
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, source / name)
        else:
            shutil.copy2(REPOSITORY / name, source / name)
    project = source / "pyproject.toml"
    text = project.read_text()
    assert 'version = "0.1.0"' in text
    project.write_text(text.replace('version = "0.1.0"', 'version = "0.9.0"'))
    return source


def default(prefix: Path) -> str:
    return (prefix / "modulefiles" / "gear" / ".version").read_text().split('"')[1]


def test_a_second_run_does_nothing(installation: Installation) -> None:
    recipe = Recipe(REPOSITORY / "recipes/sites/debian12-ci.conf", installation.prefix)
    before = picture(installation.prefix)
    started = time.monotonic()
    said = recipe.succeed()
    seconds = time.monotonic() - started
    print(f"second run: {seconds:.1f} s")
    assert f"nothing to do: {installation.name} is installed" in said
    assert picture(installation.prefix) == before
    assert seconds <= 10


@pytest.mark.timeout(900)  # GEAR is compiled for the other version
def test_two_versions_side_by_side(installed: Path, next_version: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    site = small_site(tmp_path / "site.conf")
    old, new = Recipe(site, prefix), Recipe(site, prefix, source=next_version)
    old.succeed()
    assert default(prefix) == "0.1.0-cpu"
    first = picture(prefix)
    new.succeed()
    both = picture(prefix)
    assert default(prefix) == "0.9.0-cpu"
    own = [path for path in first if not path.endswith(".version")]
    assert {path: both[path] for path in own} == {path: first[path] for path in own}
    for version in ("0.1.0", "0.9.0"):
        home = prefix / "gear" / f"{version}-cpu"
        assert list((home / "lib").rglob(f"gear-{version}.dist-info"))
    # Each goes by itself; the default moves to what is left.
    assert "the default module is gear/0.1.0-cpu" in new.succeed("--uninstall")
    assert picture(prefix) == first
    keep = prefix / "gear" / "a file of the site"
    keep.touch()
    old.succeed("--uninstall")
    assert sorted(path for path in prefix.rglob("*") if path.is_file()) == [keep]
    assert "nothing to do" in old.succeed("--uninstall")


def test_a_default_that_the_site_sets_itself(installed: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    recipe = Recipe(small_site(tmp_path / "site.conf", default_module="off"), prefix)
    recipe.succeed()
    version = prefix / "modulefiles" / "gear" / ".version"
    assert not version.exists()
    version.write_text('#%Module1.0\nset ModulesVersion "0.0.9-gpu"\n')
    assert "nothing to do" in recipe.succeed()
    recipe.succeed("--uninstall")
    assert default(prefix) == "0.0.9-gpu"


@pytest.mark.timeout(300)
def test_files_are_for_everyone_whatever_the_umask(installed: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        recipe = Recipe(small_site(tmp_path / "site.conf"), tmp_path / "prefix")
        recipe.succeed()
    finally:
        os.umask(before)
    for path in recipe.prefix.rglob("*"):
        if not path.is_symlink():
            needed = 0o555 if path.is_dir() else 0o444
            assert path.stat().st_mode & needed == needed, path

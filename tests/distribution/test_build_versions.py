"""What is in a prefix: versions side by side, the default, and what uninstalling takes away."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from distribution.recipe import REPOSITORY, Installation, Recipe, picture, small_site

TOY = "__version__ = '0.9.0'\n\n\ndef check_visible_device():\n    pass\n"


@pytest.fixture(scope="module")
def next_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of a version 0.9.0, with a toy in the place of GEAR: it needs no compiler."""
    source = tmp_path_factory.mktemp("next") / "gear"
    folders = ["recipes", "modulefiles", "slurm", "requirements"]
    for name in folders:
        shutil.copytree(REPOSITORY / name, source / name)
    for name in ("pyproject.toml", "README.md", "LICENSE", "extend-venv-activate"):
        shutil.copy2(REPOSITORY / name, source / name)
    for name in ("csrc", "cmake", "gear"):
        (source / name).mkdir()
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(gear LANGUAGES NONE)\n"
    )
    (source / "gear" / "__init__.py").write_text(TOY)
    (source / "gear" / "cli").mkdir()
    (source / "gear" / "cli" / "__init__.py").touch()
    (source / "gear" / "cli" / "app.py").write_text("def main():\n    return 0\n")
    (source / "recipes" / "smoke" / "check_gear.py").write_text("import gear\n")
    project = source / "pyproject.toml"
    text = project.read_text()
    assert 'version = "0.1.0"' in text
    project.write_text(text.replace('version = "0.1.0"', 'version = "0.9.0"'))
    return source


def default(prefix: Path) -> str:
    return (prefix / "modulefiles" / "gear" / ".version").read_text().split('"')[1]


def when_changed(prefix: Path) -> dict[Path, int]:
    """For every file and link, but what running Python leaves."""
    paths = (path for path in prefix.rglob("*") if "__pycache__" not in path.parts)
    return {path: path.lstat().st_ctime_ns for path in paths if path.is_symlink() or path.is_file()}


def test_a_second_run_does_nothing(installation: Installation) -> None:
    recipe = Recipe(REPOSITORY / "recipes/sites/debian12-ci.conf", installation.prefix)
    before = when_changed(installation.prefix)
    started = time.monotonic()
    said = recipe.succeed()
    seconds = time.monotonic() - started
    print(f"second run: {seconds:.1f} s")
    assert f"nothing to do: {installation.name} is installed" in said
    assert when_changed(installation.prefix) == before
    assert seconds <= 10


def test_two_versions_side_by_side(prefix: Path, next_version: Path, tmp_path: Path) -> None:
    site = small_site(tmp_path / "site.conf")
    old = Recipe(site, prefix)
    new = Recipe(site, prefix, {"GEAR_BUILD_CACHE": str(tmp_path / "cache")}, next_version)
    assert default(prefix) == "0.1.0-cpu"
    first = picture(prefix)
    new.succeed()
    both = picture(prefix)
    assert default(prefix) == "0.9.0-cpu"
    own = [path for path in first if not path.endswith(".version")]
    assert {path: both[path] for path in own} == {path: first[path] for path in own}
    for version in ("0.1.0", "0.9.0"):
        home = prefix / "gear" / f"{version}-cpu"
        assert list((home / "lib").rglob(f"gear_replay-{version}.dist-info"))
    # Each goes by itself; the default moves to what is left.
    assert "the default module is gear/0.1.0-cpu" in new.succeed("--uninstall")
    assert picture(prefix) == first
    keep = prefix / "gear" / "a file of the site"
    keep.touch()
    old.succeed("--uninstall")
    assert sorted(path for path in prefix.rglob("*") if path.is_file()) == [keep]
    assert "nothing to do" in old.succeed("--uninstall")


def test_the_lock_stays_while_there_are_other_versions(tmp_path: Path) -> None:
    recipe = Recipe(small_site(tmp_path / "site.conf"), tmp_path / "prefix")
    builds = recipe.prefix / "gear" / ".builds"
    other = builds / "0.0.9-cpu-000000000000"
    for build in (other, builds / "0.1.0-cpu-000000000000"):
        build.mkdir(parents=True)
    recipe.succeed("--uninstall")
    assert {path.name for path in builds.iterdir()} == {".lock", other.name}
    other.rmdir()
    (recipe.prefix / "gear" / "0.1.0-cpu").symlink_to(".builds/0.1.0-cpu-000000000000")
    recipe.succeed("--uninstall")
    assert not builds.exists()


def test_a_default_that_the_site_sets_itself(prefix: Path, tmp_path: Path) -> None:
    recipe = Recipe(small_site(tmp_path / "site.conf", default_module="off"), prefix)
    version = prefix / "modulefiles" / "gear" / ".version"
    version.unlink()
    assert "nothing to do" in recipe.succeed()
    (prefix / "modulefiles" / "gear" / "0.1.0-cpu").unlink()
    assert "switching" in recipe.succeed()
    assert not version.exists()
    version.write_text('#%Module1.0\nset ModulesVersion "0.0.9-gpu"\n')
    recipe.succeed("--uninstall")
    assert default(prefix) == "0.0.9-gpu"


def test_the_default_is_set_though_nothing_is_to_be_built(prefix: Path, tmp_path: Path) -> None:
    recipe = Recipe(small_site(tmp_path / "site.conf"), prefix)
    version = prefix / "modulefiles" / "gear" / ".version"
    before = picture(prefix)
    version.write_text('#%Module1.0\nset ModulesVersion "0.0.9-gpu"\n')
    said = recipe.succeed()
    assert "the default module is gear/0.1.0-cpu now" in said
    assert "nothing to do" not in said
    assert picture(prefix) == before
    assert "nothing to do" in recipe.succeed()


def test_files_are_for_everyone_whatever_the_umask(installed: Path) -> None:
    for path in installed.rglob("*"):
        if not path.is_symlink():
            needed = 0o555 if path.is_dir() else 0o444
            assert path.stat().st_mode & needed == needed, path

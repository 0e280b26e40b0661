"""A site's modules: loaded for the build under either tool, and refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from distribution.recipe import Recipe, small_site, toy_recipe
from distribution.shells import start_up_folder

TOOLS = [pytest.param(tool, marks=getattr(pytest.mark, tool)) for tool in ("modules", "lmod")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A module toy/1.0 that brings a compiler `toy-cxx`, and one that does not load."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "toy-cxx").symlink_to("/usr/bin/g++")
    toy = tmp_path / "tree" / "toy"
    toy.mkdir(parents=True)
    (toy / "1.0").write_text(f"#%Module\nprepend-path PATH {programs}\nsetenv PYTHONPATH /toy\n")
    (toy / "2.0").write_text("#%Module\nconflict toy/1.0\nprereq toy/3.0\n")
    return toy.parent


def recipe(tool: str, tree: Path, folder: Path, modules: str) -> Recipe:
    start_up = start_up_folder(tool)
    assert start_up is not None
    init = str(start_up / "bash")
    site = small_site(folder / "site.conf", modules=modules, module_init=init, cxx="toy-cxx")
    # As for who has no module tool set up, and so not the one of the developer's shell.
    names = ("MODULESHOME", "LMOD_PKG", "LMOD_CMD", "BASH_ENV", "LOADEDMODULES", "_LMFILES_")
    env = dict.fromkeys(names, "") | {"MODULEPATH": str(tree)}
    return toy_recipe(site, folder / "prefix", env)


@pytest.mark.parametrize("tool", TOOLS)
def test_modules_are_loaded_before_preflight(tool: str, tree: Path, tmp_path: Path) -> None:
    done = recipe(tool, tree, tmp_path, "toy/1.0").run("--only", "preflight")
    assert done.code == 0, done.errors
    assert "build:   done in" in done.output
    assert done.errors.startswith("build: [modules] the site's modules set PYTHONPATH=/toy: ")
    assert done.errors.count("\n") == 1
    (log,) = tmp_path.glob("prefix/gear/.builds/*/share/gear/logs/01-preflight.log")
    assert "+ toy-cxx " in log.read_text()
    dry = recipe(tool, tree, tmp_path, "toy/1.0").succeed("--dry-run")
    assert "  module load toy/1.0\n" in dry
    assert "MODULES=toy/1.0" in dry


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("modules", ["toy/1.5", "toy/1.0 toy/2.0"])
def test_a_module_that_does_not_load_ends_the_build(
    tool: str, modules: str, tree: Path, tmp_path: Path
) -> None:
    done = recipe(tool, tree, tmp_path, modules).run()
    name = modules.split()[-1]
    assert f"[modules] the site's module {name} does not load: " in done.sentence()
    assert f"module avail {name.partition('/')[0]} shows what is here" in done.errors
    assert not (tmp_path / "prefix").exists()

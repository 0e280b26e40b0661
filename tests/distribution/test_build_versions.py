"""What is in a prefix: versions side by side, the default, and what uninstalling takes away."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from docs.documents import documented
from docs.ran import ran

from distribution.project import DISTRIBUTION, NAME, REPOSITORY, VERSION
from distribution.recipe import (
    Installation,
    picture,
    running,
    small_site,
    toy_recipe,
)

NEXT = "9.9.0"


def default(prefix: Path) -> str:
    return (prefix / "modulefiles" / "gear" / ".version").read_text().split('"')[1]


def when_changed(prefix: Path) -> dict[Path, int]:
    """For every file and link, but what running Python leaves."""
    paths = (path for path in prefix.rglob("*") if "__pycache__" not in path.parts)
    return {path: path.lstat().st_ctime_ns for path in paths if path.is_symlink() or path.is_file()}


def test_a_second_run_does_nothing(installation: Installation) -> None:
    before = when_changed(installation.prefix)
    said = installation.recipe().succeed()
    assert f"nothing to do: {installation.name} is installed" in said
    assert when_changed(installation.prefix) == before


@pytest.mark.slow
def test_two_versions_side_by_side(prefix: Path, tmp_path: Path) -> None:
    site = small_site(tmp_path / "site.conf")
    old, new = toy_recipe(site, prefix), toy_recipe(site, prefix, version=NEXT)
    assert default(prefix) == NAME
    first = picture(prefix)
    new.succeed()
    both = picture(prefix)
    assert default(prefix) == f"{NEXT}-cpu"
    own = [path for path in first if not path.endswith(".version")]
    assert {path: both[path] for path in own} == {path: first[path] for path in own}
    assert len(list((prefix / "gear" / ".builds").glob("base-*"))) == 1  # under both
    for version in (VERSION, NEXT):
        home = prefix / "gear" / f"{version}-cpu"
        assert list((home / "lib").rglob(f"{DISTRIBUTION}-{version}.dist-info"))
    # Each goes by itself; the default moves to what is left.
    assert f"the default module is gear/{NAME}" in new.succeed("--uninstall")
    assert picture(prefix) == first
    keep = prefix / "gear" / "a file of the site"
    keep.touch()
    old.succeed("--uninstall")
    assert sorted(path for path in prefix.rglob("*") if path.is_file()) == [keep]
    assert "nothing to do" in old.succeed("--uninstall")


def test_the_lock_stays_while_there_are_other_versions(tmp_path: Path) -> None:
    recipe = toy_recipe(small_site(tmp_path / "site.conf"), tmp_path / "prefix")
    builds = recipe.prefix / "gear" / ".builds"
    other = builds / "0.0.9-cpu-000000000000"
    for build in (other, builds / f"{NAME}-000000000000"):
        build.mkdir(parents=True)
    recipe.succeed("--uninstall")
    assert {path.name for path in builds.iterdir()} == {".lock", other.name}
    other.rmdir()
    (recipe.prefix / "gear" / NAME).symlink_to(f".builds/{NAME}-000000000000")
    recipe.succeed("--uninstall")
    assert not builds.exists()


def test_a_default_that_the_site_sets_itself(prefix: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(small_site(tmp_path / "site.conf", default_module="off"), prefix)
    version = prefix / "modulefiles" / "gear" / ".version"
    version.unlink()
    assert "nothing to do" in recipe.succeed()
    (prefix / "modulefiles" / "gear" / NAME).unlink()
    assert "switching" in recipe.succeed()
    assert not version.exists()
    version.write_text('#%Module1.0\nset ModulesVersion "0.0.9-gpu"\n')
    recipe.succeed("--uninstall")
    assert default(prefix) == "0.0.9-gpu"


def test_the_default_is_set_though_nothing_is_to_be_built(prefix: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(small_site(tmp_path / "site.conf"), prefix)
    version = prefix / "modulefiles" / "gear" / ".version"
    before = picture(prefix)
    version.write_text('#%Module1.0\nset ModulesVersion "0.0.9-gpu"\n')
    said = recipe.succeed()
    assert f"the default module is gear/{NAME} now" in said
    assert "nothing to do" not in said
    assert picture(prefix) == before
    assert "nothing to do" in recipe.succeed()


def test_uninstalled_under_a_process_its_files_stay(prefix: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(small_site(tmp_path / "site.conf"), prefix)
    home = recipe.home()
    with running(home.resolve()) as process:
        done = recipe.run("--uninstall")
        assert "gear/" + NAME + " cannot be loaded any more, but its files stay" in done.sentence()
        assert f"{process.pid} (sleep)" in done.errors
        assert "repeat the command when they have ended" in done.errors
        assert (home / "bin" / "python").exists()
        assert not list(prefix.glob("modulefiles/gear/[0-9]*"))
    said = recipe.succeed("--uninstall")
    assert "a shell that has it loaded cannot unload it any more: log in anew" in said
    assert not prefix.joinpath("gear").exists()


def test_who_uninstalls_may_have_it_loaded(prefix: Path, tmp_path: Path) -> None:
    """By the command of INSTALL.md, in a clone with a site file of its own."""
    path = f"{(prefix / 'gear' / NAME).resolve()}/bin:{os.environ['PATH']}"
    recipe = toy_recipe(small_site(tmp_path / "site.conf"), prefix)
    site = small_site(recipe.source / "my-site.conf")
    command = documented(r"recipes/build\.sh .* --uninstall")
    instead = command.replace("/opt/gear", str(prefix))
    env = {**os.environ, **recipe.env, "PATH": path}
    subprocess.run(["bash", "-c", instead], cwd=recipe.source, env=env, check=True)
    site.unlink()
    assert not prefix.joinpath("gear").exists()
    ran(command, instead)


def test_a_moved_installation_is_made_anew(prefix: Path, tmp_path: Path) -> None:
    moved = prefix.rename(tmp_path / "moved")
    recipe = toy_recipe(small_site(tmp_path / "site.conf"), moved)
    said = recipe.succeed("--only", "preflight")
    for layer in (f"{NAME}-", "base-cpu-"):
        assert re.search(rf"{layer}\w+ was not made here but in {prefix}/gear/\.builds/", said)
    assert "nothing to do" not in said
    assert not list(moved.glob("gear/.builds/*/bin"))


def test_an_installation_that_is_reached_by_a_link_has_not_moved(
    prefix: Path, tmp_path: Path
) -> None:
    """As when a prefix is moved, and a link is left in its place."""
    moved = prefix.rename(tmp_path / "moved")
    prefix.symlink_to(moved)
    for place in (prefix, moved):
        recipe = toy_recipe(small_site(tmp_path / "site.conf"), place)
        assert "nothing to do" in recipe.succeed()


def test_job_scripts_know_their_module_and_where_it_is(installed: Path) -> None:
    """For sbatch --export=NONE, and shells that have never said `module use`."""
    for script in (installed / "gear" / NAME / "slurm").glob("*.sbatch"):
        use, load = f"module use --append {installed}/modulefiles", f"module load gear/{NAME}"
        assert f"  {use}\n  {load}\n" in script.read_text()


def test_example_programs_come_as_they_are(installed: Path) -> None:
    for file in (REPOSITORY / "examples" / "process_group").iterdir():
        if file.is_file():
            copy = installed / "gear" / NAME / "examples" / "process_group" / file.name
            assert copy.read_bytes() == file.read_bytes()
            assert (copy.stat().st_mode ^ file.stat().st_mode) & 0o111 == 0, copy


def test_files_are_for_everyone_whatever_the_umask(installed: Path) -> None:
    for path in installed.rglob("*"):
        if not path.is_symlink():
            needed = 0o555 if path.is_dir() else 0o444
            assert path.stat().st_mode & needed == needed, path

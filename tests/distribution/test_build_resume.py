"""A build may be killed at any moment; what goes on from there ends as if nothing had been."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from distribution.recipe import (
    ALL_STEPS,
    ALL_UPDATE_STEPS,
    GEAR_STEPS,
    SMALL_STEPS,
    UPDATE_STEPS,
    Installation,
    done_steps,
    list_files,
    picture,
    small_site,
    toy_recipe,
)

pytestmark = pytest.mark.subject("recipes")

STARTS = [f"[{number}/{len(SMALL_STEPS)}] {step}" for number, step in enumerate(SMALL_STEPS, 1)]


@pytest.mark.slow
def test_killed_at_every_step_boundary_and_within_every_step(
    installed: Path, tmp_path: Path
) -> None:
    recipe = toy_recipe(small_site(tmp_path / "site.conf"), tmp_path / "prefix")
    finished = []
    for index, step in enumerate(SMALL_STEPS):
        # Within the step: it is done again. Then after it: it is not.
        said = recipe.kill_at(STARTS[index], "--resume")
        assert re.findall(r"(\w+): done before", said) == finished
        said = recipe.kill_at(
            STARTS[index + 1] if index + 1 < len(STARTS) else "switching", "--resume"
        )
        assert done_steps(said) == [step]
        finished.append(step)
        assert index + 1 == len(SMALL_STEPS) or not list(recipe.prefix.glob("modulefiles/*"))
    said = recipe.succeed("--resume")
    assert done_steps(said) == []
    whole = toy_recipe(recipe.site, installed)
    assert recipe.manifest() == whole.manifest()
    assert list_files(recipe) == list_files(whole)


@pytest.mark.slow
def test_an_unfinished_build_leaves_the_installed_one_alone(prefix: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(small_site(tmp_path / "site.conf"), prefix)
    changed = toy_recipe(small_site(tmp_path / "changed.conf", env__A_CHANGE="1"), prefix)
    before = picture(prefix)
    changed.kill_at(f"{STARTS[SMALL_STEPS.index('core')]}\n")
    assert picture(prefix) == before
    assert "nothing to do" in recipe.succeed()
    # Without --resume it begins again, and says so.
    said = changed.succeed()
    assert "starting afresh: an unfinished build is here (--resume would go on with it)" in said
    assert done_steps(said) == UPDATE_STEPS
    assert b"A_CHANGE" in changed.manifest()
    # The build that it replaced is kept, for jobs that run in it, and to go back to at once.
    assert len(list((prefix / "gear" / ".builds").glob("[0-9]*"))) == 2
    assert done_steps(recipe.succeed()) == []
    assert picture(prefix) == before


def test_an_interrupted_switch_is_completed_by_the_next_run(prefix: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(small_site(tmp_path / "site.conf"), prefix)
    before = picture(prefix)
    module = prefix / "modulefiles" / "gear"
    for lost in (module / ".version", module / recipe.home().name, recipe.home()):
        lost.unlink()
        said = recipe.succeed()
        assert "switching" in said
        assert done_steps(said) == []
        assert picture(prefix) == before


def test_a_step_that_is_repeated_takes_what_follows_with_it(prefix: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(small_site(tmp_path / "site.conf"), prefix)
    home, link = recipe.home().resolve(), recipe.home()

    def done() -> set[str]:
        return {path.stem for path in (home / "share/gear/steps").iterdir()}

    # A check of what is installed leaves it so.
    recipe.succeed("--only", "preflight")
    assert done() == {"preflight", *GEAR_STEPS}
    link.unlink()
    recipe.succeed("--only", "modulefiles")
    assert done() == {"preflight", "core", "modulefiles"}
    assert done_steps(recipe.succeed("--resume")) == ["smoke", "manifest"]


@pytest.mark.slow
def test_steps_one_by_one(tmp_path: Path) -> None:
    recipe = toy_recipe(small_site(tmp_path / "site.conf"), tmp_path / "prefix")
    assert recipe.run("--only", "core").sentence() == "[core] step preflight is not done yet"
    for step in SMALL_STEPS[:-1]:
        assert done_steps(recipe.succeed("--only", step)) == [step]
        assert not (recipe.prefix / "modulefiles").exists()
    # Of a base that is whole, nothing is repeated.
    assert "is whole; other builds may stand on it" in recipe.succeed("--only", "packages")
    assert "switching" in recipe.succeed("--only", SMALL_STEPS[-1])
    assert recipe.manifest()
    assert done_steps(recipe.succeed("--only", "smoke")) == ["smoke"]
    assert "only its checks" in recipe.succeed("--only", "core")
    assert "nothing to do" in recipe.succeed()


@pytest.mark.slow
def test_what_a_killed_pip_left_is_installed_again(tmp_path: Path) -> None:
    """pip writes METADATA before the rest, and takes a package that has it for installed."""
    recipe = toy_recipe(small_site(tmp_path / "site.conf"), tmp_path / "prefix")
    recipe.kill_at("core", "--resume")
    (base,) = recipe.prefix.glob("gear/.builds/base-*")
    (packages,) = base.glob("lib/python3.*/site-packages")
    (click,) = packages.glob("click-*.dist-info")
    (click / "INSTALLER").unlink()
    record = (click / "RECORD").read_text().splitlines()
    (click / "RECORD").write_text(
        "".join(f"{line}\n" for line in record if "INSTALLER" not in line)
    )
    (packages / "click" / "core.py").unlink()
    (base / "share/gear/steps/packages.done").unlink()
    recipe.succeed("--resume")
    assert (packages / "click" / "core.py").exists()
    assert (click / "INSTALLER").exists()


def test_the_whole_site_is_updated_on_its_base(installation: Installation, tmp_path: Path) -> None:
    """And back again, at once: both builds are there, and the same base under both."""
    before = picture(installation.prefix)
    recipe = installation.recipe()
    site = tmp_path / "site.conf"
    change = (
        f"env.A_CHANGE = {time.time_ns()}\n"  # an earlier run's is kept beside what is installed
    )
    site.write_text(recipe.site.read_text() + change)
    update = installation.recipe(site)
    old = installation.home.resolve()
    try:
        assert done_steps(update.succeed()) == ALL_UPDATE_STEPS
        assert installation.home.resolve() != old
        assert (installation.home / "base").resolve() == (old / "base").resolve()
        # A job that has loaded the previous build.
        names = "gear, torch, mpi4py.MPI, deepspeed, horovod.torch"
        subprocess.run([old / "bin" / "python", "-I", "-c", f"import {names}"], check=True)
    finally:
        assert done_steps(recipe.succeed()) == []
    assert picture(installation.prefix) == before
    assert json.loads(recipe.manifest())["steps"] == ALL_STEPS

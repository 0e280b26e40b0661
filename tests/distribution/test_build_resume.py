"""A build may be killed at any moment; what goes on from there ends as if nothing had been."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from distribution.recipe import (
    ALL_STEPS,
    SITES,
    SMALL_STEPS,
    Installation,
    Recipe,
    picture,
    small_site,
)

STARTS = [f"[{number}/{len(SMALL_STEPS)}] {step}" for number, step in enumerate(SMALL_STEPS, 1)]


def done_steps(said: str) -> list[str]:
    """The steps that a run did itself, to their end."""
    return re.findall(r"\] (\w+)\n(?:build:   (?!done in).*\n)*build:   done in", said)


@pytest.mark.timeout(600)
def test_killed_at_every_step_boundary_and_within_every_step(
    installed: Path, tmp_path: Path
) -> None:
    recipe = Recipe(small_site(tmp_path / "site.conf"), tmp_path / "prefix")
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
    whole = Recipe(recipe.site, installed)
    assert recipe.manifest() == whole.manifest()
    assert list_files(recipe) == list_files(whole)


@pytest.mark.timeout(3600)  # it may be the first that needs an installation
def test_the_whole_site_killed_at_every_step_boundary(
    installation: Installation, tmp_path: Path
) -> None:
    recipe = Recipe(SITES / "debian12-ci.conf", tmp_path / "prefix")
    steps = re.findall(r"\[\d+/\d+\] \w+", recipe.succeed("--dry-run"))
    assert [start.split()[1] for start in steps] == ALL_STEPS
    for done, start in enumerate(steps[1:], 1):
        said = recipe.kill_at(start, "--resume")
        assert done_steps(said) == [ALL_STEPS[done - 1]]
    assert done_steps(recipe.succeed("--resume")) == ALL_STEPS[-1:]
    assert recipe.manifest() == Recipe(recipe.site, installation.prefix).manifest()
    shutil.rmtree(recipe.prefix)  # 1.7 GiB that pytest would keep


def list_files(recipe: Recipe) -> list[str]:
    """All files but what running Python leaves, and the logs and reports of each attempt."""
    home = recipe.home().resolve()
    return sorted(
        str(path.relative_to(home))
        for path in home.rglob("*")
        if "__pycache__" not in path.parts and path.parent.name not in ("pip", "logs")
    )


def test_an_unfinished_build_leaves_the_installed_one_alone(prefix: Path, tmp_path: Path) -> None:
    recipe = Recipe(small_site(tmp_path / "site.conf"), prefix)
    changed = Recipe(small_site(tmp_path / "changed.conf", env__A_CHANGE="1"), prefix)
    before = picture(prefix)
    changed.kill_at(STARTS[2])
    assert picture(prefix) == before
    assert "nothing to do" in recipe.succeed()
    # Without --resume it begins again, and says so.
    said = changed.succeed()
    assert "starting afresh: an unfinished build is here (--resume would go on with it)" in said
    assert done_steps(said) == SMALL_STEPS
    assert b"A_CHANGE" in changed.manifest()
    # The build that it replaced is kept, for jobs that run in it, and to go back to at once.
    assert len(list((prefix / "gear" / ".builds").glob("0*"))) == 2
    assert done_steps(recipe.succeed()) == []
    assert picture(prefix) == before


def test_an_interrupted_switch_is_completed_by_the_next_run(prefix: Path, tmp_path: Path) -> None:
    recipe = Recipe(small_site(tmp_path / "site.conf"), prefix)
    before = picture(prefix)
    module = prefix / "modulefiles" / "gear"
    for lost in (module / ".version", module / recipe.home().name, recipe.home()):
        lost.unlink()
        said = recipe.succeed()
        assert "switching" in said
        assert done_steps(said) == []
        assert picture(prefix) == before


def test_a_step_that_is_repeated_takes_what_follows_with_it(prefix: Path, tmp_path: Path) -> None:
    recipe = Recipe(small_site(tmp_path / "site.conf"), prefix)
    steps = recipe.home() / "share" / "gear" / "steps"

    def done() -> set[str]:
        return {path.stem for path in steps.iterdir()}

    # A check of what is installed leaves it so.
    recipe.succeed("--only", "preflight")
    assert done() == set(SMALL_STEPS)
    steps = steps.resolve()
    recipe.home().unlink()
    recipe.succeed("--only", "modulefiles")
    assert done() == set(SMALL_STEPS[:4])
    assert done_steps(recipe.succeed("--resume")) == SMALL_STEPS[4:]


def test_steps_one_by_one(installed: Path, tmp_path: Path) -> None:
    recipe = Recipe(small_site(tmp_path / "site.conf"), tmp_path / "prefix")
    assert recipe.run("--only", "core").sentence() == "[core] step preflight is not done yet"
    for step in SMALL_STEPS[:-1]:
        assert done_steps(recipe.succeed("--only", step)) == [step]
        assert not (recipe.prefix / "modulefiles").exists()
    assert "switching" in recipe.succeed("--only", SMALL_STEPS[-1])
    assert recipe.manifest()
    assert done_steps(recipe.succeed("--only", "smoke")) == ["smoke"]
    assert "only its checks" in recipe.succeed("--only", "core")
    assert "nothing to do" in recipe.succeed()

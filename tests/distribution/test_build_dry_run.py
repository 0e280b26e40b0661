"""--dry-run prints the commands of every site file, on a machine that lacks what the site has."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from distribution.project import VERSION
from distribution.recipe import ALL_STEPS, SITES, Recipe, small_site


@pytest.mark.parametrize("site", sorted(SITES.glob("*.conf")), ids=lambda path: path.stem)
def test_every_site_file_prints_its_commands(site: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    recipe = Recipe(site, prefix, {"GEAR_BUILD_CACHE": str(tmp_path / "cache")})
    output = recipe.succeed("--dry-run")
    steps = ALL_STEPS
    step_line = rf"^build: \[\d+/{len(steps)}\] (?:\w+)$"
    assert [line.split()[-1] for line in re.findall(step_line, output, re.M)] == steps
    # Each step but the checks says what it would run, as one would type it.
    parts = re.split(step_line, output, flags=re.M)[1:]
    for step, part in zip(steps, parts, strict=True):
        commands = [line for line in part.splitlines() if line.startswith("  ")]
        assert commands or step == "preflight", f"{step}: no command"
        for command in commands:
            assert shlex.split(command), command
    for module in re.search(r"^modules = *(.*)$", site.read_text() + "\nmodules =", re.M)[
        1
    ].split():
        assert f"  module load {module}\n" in output
    # pip is never left to choose a torch of its own.
    torch = re.search(r"^torch = (.+)$", site.read_text() + "\ntorch = 2.13.0", re.M)[1]
    assert not re.search(rf"[ ']torch(?!=={re.escape(torch)})['\s]", "\n".join(parts[2:7]))
    assert f" torch=={torch}" in parts[steps.index("torch")]
    # What GEAR needs is in the base.
    for name in ("'numpy>=", "gymnasium", "hydra-core", "wandb"):
        assert name in parts[steps.index("packages")]
    for profile in ("debug", "release"):
        assert (f"gear-nccl-{profile}.module" in output) == (f"gear/{VERSION}-gpu" in output)
    assert os.listdir(tmp_path) == []


def test_the_python_of_the_site_need_not_be_here(tmp_path: Path) -> None:
    site = small_site(tmp_path / "site.conf", python="python9.9")
    output = Recipe(site, tmp_path / "prefix").succeed("--dry-run")
    assert "  python9.9 -m venv " in output
    assert "[7/7] manifest" in output


def test_a_prefix_keeps_the_name_that_it_was_given(tmp_path: Path) -> None:
    """So that module files follow a link that is pointed elsewhere later."""
    (tmp_path / "real").mkdir()
    (tmp_path / "apps").symlink_to("real")
    output = Recipe(small_site(tmp_path / "site.conf"), tmp_path / "apps").succeed("--dry-run")
    assert f"HOME={tmp_path}/apps/gear/" in output
    assert f"{tmp_path}/real" not in output


def test_a_dry_run_after_the_installation_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    recipe = Recipe(small_site(tmp_path / "site" / "small.conf"), tmp_path / "prefix")
    recipe.succeed("--dry-run")
    recipe.succeed("--uninstall", "--dry-run")
    assert os.listdir(tmp_path) == ["site"]

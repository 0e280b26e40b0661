"""What tests of the distribution share: the one installation, and a small one."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from distribution.recipe import REPOSITORY, SITES, Installation, Recipe, small_site

SITE = SITES / "debian12-ci.conf"
PREFIX = REPOSITORY / "build" / "distribution" / "prefix"
FIRST_BUILD_S = 1800  # Horovod is compiled where its wheel is not in the cache


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that uses an installation waits until it is built."""
    for item in items:
        if {"installation", "installed"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.installation)
            item.add_marker(pytest.mark.timeout(FIRST_BUILD_S))


@pytest.fixture(scope="session")
def installation(pytestconfig: pytest.Config) -> Installation:
    """The module as a site has it: torch, mpi4py, Horovod (MPI), DeepSpeed and GEAR."""
    recipe = Recipe(SITE, PREFIX)
    started = time.monotonic()
    said = recipe.succeed("--resume")
    seconds = time.monotonic() - started
    found = Installation(PREFIX, recipe.home())
    size = subprocess.run(["du", "-smD", found.home], capture_output=True, text=True, check=True)
    built = "found installed" if "nothing to do" in said else "built"
    reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")
    reporter.write_line(
        f"\ndistribution: {found.name} by {SITE.name} {built} in {seconds:.1f} s,"
        f" {size.stdout.split()[0]} MiB"
    )
    return found


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix with a small installation, for reading; its wheel is in the cache then."""
    folder = tmp_path_factory.mktemp("installed")
    umask = os.umask(0o077)  # that of whoever installs; test_build_versions.py looks at the result
    try:
        Recipe(small_site(folder / "site.conf"), folder / "prefix").succeed()
    finally:
        os.umask(umask)
    return folder / "prefix"


@pytest.fixture
def prefix(installed: Path, tmp_path: Path) -> Path:
    """A copy of that, for the test to change; its programs still name the original."""
    shutil.copytree(installed, tmp_path / "prefix", symlinks=True)
    return tmp_path / "prefix"

"""What tests of the distribution share: the one installation, and a small one of a toy."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from distribution.project import REPOSITORY
from distribution.recipe import SITE, Installation, Recipe, small_site, toy_recipe

SITE_BUILD = REPOSITORY / "tools" / "site_build.sh"
PREFIX = REPOSITORY / "build" / "site" / "prefix"  # where that installs
FIRST_BUILD_S = 3600  # Horovod is compiled where its wheel is not in the cache
SLURM_S = 1200  # the longest that a job of a test waits for this machine, and ends well


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that uses the installation waits until it is built. What tests share is made
    once, so all that use it are run by one process of xdist."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if "installation" in fixtures:
            item.add_marker(pytest.mark.installation)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(FIRST_BUILD_S))
        elif "slurm_conf" in fixtures:
            item.add_marker(pytest.mark.timeout(SLURM_S))
        for group, shared in {
            "slurm": "slurm_conf",
            "installation": "installation",
            "installed": "installed",
        }.items():
            if shared in fixtures:
                item.add_marker(pytest.mark.xdist_group(group))
                break


@pytest.fixture(scope="session")
def installation(pytestconfig: pytest.Config) -> Installation:
    """The module as README says that it is installed (tools/site_build.sh): torch, mpi4py, Horovod
    (MPI), DeepSpeed, GEAR and gear_mpi."""
    started = time.monotonic()
    done = subprocess.run([SITE_BUILD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
    seconds = time.monotonic() - started
    found = Installation(PREFIX, Recipe(SITE, PREFIX).home())
    sizes = [
        subprocess.run(["du", "-smD", layer], capture_output=True, text=True, check=True)
        for layer in (found.home, found.base)
    ]
    mib = " + ".join(size.stdout.split()[0] for size in sizes)
    built = "found installed" if "nothing to do" in done.stdout else "built"
    reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:  # a process of xdist has none
        reporter.write_line(
            f"\ndistribution: {found.name} by {SITE.name} {built} in {seconds:.1f} s, {mib} MiB"
        )
    return found


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix with a small installation of the toy, for reading."""
    folder = tmp_path_factory.mktemp("installed")
    recipe = toy_recipe(small_site(folder / "site.conf"), folder / "prefix")
    # Of whoever clones and installs; test_build_versions.py looks at the result.
    umask = os.umask(0o077)
    try:
        clone = shutil.copytree(recipe.source, folder / "clone")
        for path in (clone, *clone.rglob("*")):
            path.chmod(path.stat().st_mode & 0o700)
        replace(recipe, source=clone).succeed()
    finally:
        os.umask(umask)
    return folder / "prefix"


def copy_prefix(installed: Path, prefix: Path, *, link: bool = True) -> Path:
    """A copy that names its own place, as if it had been made there. With `link`, packages are the
    same files."""
    was, now = (f"{path}/".encode() for path in (installed, prefix))

    def copy(source: str, target: str) -> None:
        if link and "/lib/" in source and not source.endswith(".pth"):
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    shutil.copytree(installed, prefix, symlinks=True, copy_function=copy)
    for path in prefix.rglob("*"):
        if path.is_symlink():
            target = os.readlink(path)
            if target.startswith(f"{installed}/"):
                path.unlink()
                path.symlink_to(target.replace(str(installed), str(prefix), 1))
        elif path.is_file() and ("/lib/" not in str(path) or path.suffix == ".pth"):
            text = path.read_bytes()
            if was in text:
                path.write_bytes(text.replace(was, now))
    return prefix


@pytest.fixture
def prefix(installed: Path, tmp_path: Path) -> Path:
    """A copy of that, for the test to change."""
    return copy_prefix(installed, tmp_path / "prefix")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Everybody can enter it and all above it; those of pytest are closed."""
    with tempfile.TemporaryDirectory(prefix="gear-open-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)

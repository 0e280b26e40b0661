"""Marks of what a test needs: skipped where it is absent, failed where --require asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[1]
PYTEST_INI = """[pytest]
markers =
    site: needs a named site
    gpus(n): needs n GPUs
    needs(module, ...): needs these modules
    frameworks: needs DeepSpeed and Horovod
"""
RESOURCES = """
import pytest

@pytest.mark.site
def test_site():
    pass

@pytest.mark.gpus(1000)
def test_gpus():
    pass
"""
PACKAGES = """
import pytest

@pytest.mark.needs("pytest")
def test_here():
    pass

@pytest.mark.needs("pytest", "moon", "mars")
def test_absent():
    pass

def test_imports():
    pytest.importorskip("venus")
"""
WHOLE_FILE = """
import pytest

pytest.importorskip("venus.north")

def test_nothing():
    pass
"""
FRAMEWORKS = """
from pytest import mark

@mark.frameworks
def test_frameworks():
    pass
"""
# A machine that has all packages, and no DeepSpeed.
OF_THE_MACHINE = """
PACKAGES = ["pytest"]
RESOURCES["site"] = lambda: "SUITE_SITE" in os.environ
RESOURCES["frameworks"] = lambda: False
"""


def run_suite(
    folder: Path, tests: str, *arguments: str, site: str | None = None
) -> tuple[int, str]:
    """(exit code, output) of pytest on a file of these tests, with the conftest.py of all tests."""
    (folder / "pytest.ini").write_text(PYTEST_INI)
    (folder / "test_it.py").write_text(tests)
    for path in [*SUITE.glob("*.py"), SUITE.parent / "conftest.py"]:
        if not path.name.startswith("test_"):
            shutil.copy(path, folder)
    with (folder / "conftest.py").open("a") as conftest:
        conftest.write(OF_THE_MACHINE)
    environment = {name: value for name, value in os.environ.items() if name != "SUITE_SITE"}
    if site:
        environment["SUITE_SITE"] = site
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environment | {"COLUMNS": "300"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("site", "arguments", "code", "summary"),
    [
        (None, [], 0, "2 skipped"),
        ("alps", [], 0, "1 passed, 1 skipped"),
        (None, ["--require=site"], 1, "1 skipped, 1 error"),
        ("alps", ["--require=site,gpu"], 1, "1 passed, 1 error"),
        (None, ["--require=moon"], 4, "unknown ['moon']"),
    ],
)
def test_require(
    tmp_path: Path, site: str | None, arguments: list[str], code: int, summary: str
) -> None:
    found, said = run_suite(tmp_path, RESOURCES, *arguments, site=site)
    assert found == code, said
    assert summary in said


def test_packages_that_are_absent_are_named_and_skipped(tmp_path: Path) -> None:
    code, said = run_suite(tmp_path, PACKAGES)
    assert code == 0, said
    assert "1 passed, 2 skipped" in said
    assert ": no moon, mars here\n" in said
    assert ": could not import 'venus': No module named 'venus'\n" in said


@pytest.mark.parametrize("processes", [[], ["-n", "1"]], ids=["one-process", "xdist"])
def test_packages_that_are_absent_and_required_fail_by_name(
    tmp_path: Path, processes: list[str]
) -> None:
    code, said = run_suite(tmp_path, PACKAGES, "--require=packages", *processes)
    assert code == 1, said
    assert "1 failed, 1 passed, 1 error" in said
    assert "--require=packages, but no moon, mars here\n" in said
    assert "--require=packages, but could not import 'venus': No module named 'venus'\n" in said


def test_a_file_without_its_package_is_a_skip_and_required_a_failure(tmp_path: Path) -> None:
    code, said = run_suite(tmp_path, WHOLE_FILE)
    assert code == 5, said  # no tests were run
    assert "1 skipped" in said
    code, said = run_suite(tmp_path, WHOLE_FILE, "--require=packages")
    assert code == 2, said
    assert "--require=packages, but could not import 'venus.north': No module named 'venus'" in said
    assert "1 error" in said


def test_without_the_frameworks_it_is_said_where_their_tests_run(tmp_path: Path) -> None:
    """They are no packages that one installs for the tests."""
    reason = (
        "no DeepSpeed and Horovod here: tests/distribution/test_frameworks_installed.py runs this "
        "in a site's installation"
    )
    code, said = run_suite(tmp_path, FRAMEWORKS, "--require=packages")
    assert (code, f": {reason}\n" in said) == (0, True), said
    code, said = run_suite(tmp_path, FRAMEWORKS, "--require=frameworks")
    assert (code, f"--require=frameworks, but {reason}\n" in said) == (1, True), said
    assert (SUITE / "distribution" / "test_frameworks_installed.py").exists()

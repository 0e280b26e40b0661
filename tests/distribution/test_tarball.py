"""The release tarball: what is in it, and that the same commit gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import runpy
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from docs.documents import documented
from docs.ran import ran

from .project import DISTRIBUTION, REPOSITORY, VERSION
from .release import make, only, refused

STAMP = runpy.run_path(str(REPOSITORY / "tools" / "stamp_recipes.py"))
LEFT_OUT = (
    *(".ci/", ".github/", "tests/kept/"),
    *("recipes/spack/", "recipes/easybuild/", "recipes/conda/"),
)
RECIPES = STAMP["recipes"](REPOSITORY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("release")
    make("--kind=sdist", to=to)
    return to


@pytest.fixture(scope="module")
def tarball(folder: Path) -> Path:
    return folder / f"{DISTRIBUTION}-{VERSION}.tar.gz"


@pytest.mark.slow
def test_tarball_holds_what_is_tracked_except_what_carries_its_checksum(tarball: Path) -> None:
    shown = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    tracked = {name for name in shown.stdout.splitlines() if not name.startswith(LEFT_OUT)}
    with tarfile.open(tarball) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert held == {*tracked, "PKG-INFO"}


@pytest.mark.slow
def test_tarball_made_twice_is_the_same(tarball: Path, tmp_path: Path) -> None:
    make("--kind=sdist", to=tmp_path)
    assert (tmp_path / tarball.name).read_bytes() == tarball.read_bytes()


@pytest.mark.slow
def test_checksums_and_bill_of_materials_are_of_the_tarball(tarball: Path, folder: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True)
    listed = (folder / "SHA256SUMS").read_text().split()[1::2]
    bill = only(folder, "*.cdx.json")
    assert listed == sorted([tarball.name, bill.name])
    component = next(
        each for each in json.loads(bill.read_text())["components"] if each["name"] == tarball.name
    )
    digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
    assert component["hashes"] == [{"alg": "SHA-256", "content": digest}]


@pytest.mark.slow
def test_stamping_that_tarball_makes_the_recipes_right(tarball: Path, tmp_path: Path) -> None:
    for path in [REPOSITORY / "tools" / "stamp_recipes.py", *RECIPES]:
        copy = tmp_path / path.relative_to(REPOSITORY)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    (tmp_path / "dist").symlink_to(tarball.parent)
    command = documented(r"tools/stamp_recipes\.py dist/.*")
    subprocess.run(shlex.split(command), cwd=tmp_path, check=True)
    ran(command)
    digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
    stamped = STAMP["recipes"](tmp_path)
    assert len(stamped) == len(RECIPES) > 0
    for path, form in stamped.items():
        assert STAMP["said"](path, form) == (VERSION, digest), path


def test_the_recipes_of_the_tree_agree() -> None:
    said = {STAMP["said"](path, form) for path, form in RECIPES.items()}
    assert len(said) == 1, said
    ((version, _),) = said
    assert version == VERSION


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--kind=gpu"], "unknown '--kind=gpu': --kind=cpu, cuda or sdist"),
        (["--python=3.9"], "unknown '--python=3.9'"),
        (["--machine=riscv64"], "--machine=x86_64 or aarch64"),
    ],
)
def test_wrong_words_are_refused(words: list[str], says: str) -> None:
    done = refused(*words)
    assert done.returncode == 2
    assert says in done.stderr

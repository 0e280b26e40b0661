"""A release's wheels, in an environment that has nothing but NumPy: on one Python, and each night
on each Python that is here, with CUDA, for AArch64, and made twice."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from docs.documents import documented
from docs.ran import ran

from .project import DISTRIBUTION, REPOSITORY, VERSION
from .pythons import PYTHONS, found_python
from .release import glibc_of, make, only

# The first of them waits for `release`, which compiles GEAR beside all other tests.
pytestmark = [pytest.mark.subject("wheels"), pytest.mark.timeout(1800)]

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
OLDEST_GLIBC = (2, 28)
HEADERS = [Path("/usr/include/infiniband/verbs.h"), Path("/usr/include/rdma/fabric.h")]
# What the tests of the face need beside GEAR; `packages` and the like skip the rest.
TESTERS = ["pytest", "pytest-timeout", "hypothesis"]
FACE = ["content", "gather", "ordered", "seeds", "threads", "rate_limit"]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`make dist`, for this Python and without CUDA."""
    if not shutil.which("make"):
        pytest.skip("this machine has no make")
    if not all(map(Path.exists, HEADERS)):
        pytest.skip("this machine has no libibverbs-dev and libfabric-dev")
    to = tmp_path_factory.mktemp("dist")
    command = ["make", f"DIST=--kind=cpu --python={HERE} --to={to}", "dist"]
    subprocess.run(command, cwd=REPOSITORY, check=True, stdin=subprocess.DEVNULL)
    ran(documented("make dist"), f"make dist {shlex.quote(command[1])}")
    return to


def in_new_environment(python: str, folder: Path, place: Path) -> Path:
    """An environment made by the documents' commands, with the wheel that pip finds in `folder`."""
    venv = place / "gear-venv"
    subprocess.run([python, "-m", "venv", venv], check=True)
    if not (place / "dist").exists():
        (place / "dist").symlink_to(folder)
    for what in ("numpy", "--no-index .*"):
        command = documented(f"~/gear-venv/bin/pip install {what}")
        instead = command.replace("~", str(place))
        subprocess.run(["bash", "-euc", f"{instead} --quiet"], cwd=place, check=True)
        ran(command, instead)
    return venv


def check_face(venv: Path, place: Path) -> None:
    """What an installed GEAR answers, then the tests of the face, with its own files alone."""
    python = venv / "bin" / "python"
    trip = [python, REPOSITORY / "tools" / "round_trip.py"]
    subprocess.run(trip, cwd=place, check=True)
    where = [python, "-c", "import gear; print(gear.__file__)"]
    told = subprocess.run(where, cwd=place, check=True, capture_output=True, text=True)
    assert Path(told.stdout.strip()).is_relative_to(venv)
    pip = [venv / "bin" / "pip", "install", "--quiet", *TESTERS]
    pip += ["-c", REPOSITORY / "requirements" / "constraints.txt"]
    subprocess.run(pip, check=True)
    tests = [REPOSITORY / "tests" / "contract" / f"test_{name}.py" for name in FACE]
    command = [venv / "bin" / "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    subprocess.run([*command, "-c", REPOSITORY / "pyproject.toml", *tests], cwd=place, check=True)


def members(wheel: Path) -> dict[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each for each in archive.infolist()}


@pytest.mark.slow
def test_wheel_runs_with_numpy_alone(release: Path, tmp_path: Path) -> None:
    venv = in_new_environment(sys.executable, release, tmp_path)
    listed = [venv / "bin" / "pip", "list", "--format=freeze"]
    shown = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    names = {line.partition("==")[0] for line in shown} - {"pip", "setuptools", "wheel"}
    assert names == {"gear-replay", "numpy"}
    check_face(venv, tmp_path)


@pytest.mark.slow
def test_wheel_is_small_stripped_and_for_old_systems(release: Path) -> None:
    wheel = only(release, "*.whl")
    assert wheel.name.startswith(f"{DISTRIBUTION}-{VERSION}-cp{HERE.replace('.', '')}-")
    assert glibc_of(wheel) <= OLDEST_GLIBC
    assert wheel.stat().st_size <= 6_000_000
    (core,) = [name for name in members(wheel) if name.endswith(".so")]
    with zipfile.ZipFile(wheel) as archive:
        extension = archive.read(core)
    assert b".debug_info" not in extension
    assert b".symtab" not in extension
    assert str(REPOSITORY).encode() not in extension


@pytest.mark.slow
def test_the_folder_has_checksums_of_all(release: Path) -> None:
    command = documented("sha256sum --check .*")
    subprocess.run(shlex.split(command), cwd=release, check=True)
    ran(command)
    listed = set((release / "SHA256SUMS").read_text().split()[1::2])
    assert listed == {each.name for each in release.iterdir()} - {"SHA256SUMS"}
    assert len(listed) == 3


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_each_python_has_a_wheel_that_runs(tmp_path: Path) -> None:
    said = make("--kind=cpu", to=tmp_path / "dist")
    for version in [*PYTHONS, "3.14"]:
        python = found_python(version)
        if python is None:
            absent = f"dist: no Python {version} on this machine: its wheel (cpu) is not built"
            assert absent in said
            continue
        only(tmp_path / "dist", f"*-cp{version.replace('.', '')}-*.whl")
        place = tmp_path / version
        place.mkdir()
        check_face(in_new_environment(python, tmp_path / "dist", place), place)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_another_clone_makes_the_same_bytes(release: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", REPOSITORY, clone], check=True)
    make("--kind=cpu", f"--python={HERE}", to=tmp_path / "dist", root=clone)
    made = {each.name: each.read_bytes() for each in (tmp_path / "dist").iterdir()}
    assert made == {each.name: each.read_bytes() for each in release.iterdir()}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_wheel_with_cuda_runs_without_a_gpu(tmp_path: Path) -> None:
    if subprocess.run(["tools/find_nvcc.sh"], cwd=REPOSITORY, capture_output=True).returncode:
        pytest.skip("this machine has no nvcc")
    make("--kind=cuda", f"--python={HERE}", to=tmp_path / "dist")
    wheel = only(tmp_path / "dist", f"{DISTRIBUTION}-{VERSION}+cu*.whl")
    assert glibc_of(wheel) <= OLDEST_GLIBC
    assert wheel.stat().st_size <= 25_000_000
    venv = in_new_environment(sys.executable, tmp_path / "dist", tmp_path)
    asks = "import gear; assert gear._core.build_info()['cuda']; print(gear.__version__)"
    told = subprocess.run(
        [venv / "bin" / "python", "-c", asks],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert told.stdout.startswith(f"{VERSION}+cu")
    check_face(venv, tmp_path)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_wheel_for_aarch64_runs_in_an_emulator(tmp_path: Path) -> None:
    if os.uname().machine == "aarch64":
        pytest.skip("this is AArch64: the other tests here are of its wheel")
    if shutil.which("aarch64-linux-gnu-g++") is None or found_python("3.11") is None:
        pytest.skip("this machine has no g++-aarch64-linux-gnu, or no Python 3.11")
    unpack = [REPOSITORY / "tools" / "unpack_aarch64_python.sh"]
    unpacked = subprocess.run(unpack, capture_output=True, text=True, check=False)
    if unpacked.returncode:
        pytest.skip(unpacked.stderr.strip())
    make("--kind=cpu", "--python=3.11", "--machine=aarch64", to=tmp_path / "dist")
    wheel = only(tmp_path / "dist", "*_aarch64.whl")
    assert glibc_of(wheel) <= OLDEST_GLIBC
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    fetch += ["--platform=manylinux2014_aarch64", "--python-version=3.11", "numpy==2.2.6"]
    subprocess.run([*fetch, f"--dest={tmp_path}"], check=True)
    site = tmp_path / "site"
    for each in (wheel, only(tmp_path, "numpy-*.whl")):
        with zipfile.ZipFile(each) as archive:
            archive.extractall(site)
    subprocess.run(
        [unpacked.stdout.strip(), REPOSITORY / "tools" / "round_trip.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        check=True,
    )

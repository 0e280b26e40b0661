"""torchvision and torchaudio in a site: the releases that were made for its torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from distribution.project import REPOSITORY
from distribution.recipe import Recipe, write_site
from distribution.recipe_part import run_part

TABLE = REPOSITORY / "requirements" / "torch-releases.txt"
ROWS = [line.split() for line in TABLE.read_text().splitlines() if line[:1].isdigit()]
PACKAGES = ("torchvision", "torchaudio")
WITHOUT_RANKS = {"mpi": "off", "mpi4py": "off", "horovod": "off", "deepspeed": "off"}


def numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def pinned_torch() -> str:
    pins = (REPOSITORY / "requirements" / "site.txt").read_text()
    return re.search(r"^torch==(.*)$", pins, re.M)[1]


def test_the_table_is_one_of_releases_in_their_order() -> None:
    for column in zip(*ROWS, strict=True):
        order = [numbers(release) for release in column]
        assert order == sorted(order)
    torches = [row[0] for row in ROWS]
    assert len(set(torches)) == len(torches)
    assert pinned_torch() in torches


def test_the_example_of_images_takes_what_was_made_for_the_pinned_torch() -> None:
    pins = (REPOSITORY / "requirements" / "imagenet.txt").read_text()
    release = next(row[1] for row in ROWS if row[0] == pinned_torch())
    assert f"besides torch {pinned_torch()}:" in pins
    assert f"\ntorchvision=={release}\n" in pins


@pytest.mark.parametrize("torch", [pinned_torch(), "2.11.0+cu130"])
def test_a_site_gets_what_was_made_for_its_torch(torch: str, tmp_path: Path) -> None:
    values = WITHOUT_RANKS | {"torch": torch, "torchvision": "on", "torchaudio": "on"}
    output = Recipe(write_site(tmp_path / "site.conf", values), tmp_path / "prefix").succeed(
        "--dry-run"
    )
    torch_row = next(row for row in ROWS if row[0] == torch.partition("+")[0])
    wanted = [f"torch=={torch}", *map("==".join, zip(PACKAGES, torch_row[1:], strict=True))]
    installs = [line for line in output.splitlines() if " pip " in line and wanted[0] in line]
    assert len(installs) == 2  # alone, and named again beside the rest
    for line in installs:
        assert set(wanted) <= set(line.split()), line
    for package in PACKAGES:
        assert output.count(f"check_{package}.py") == 2, output  # at once, and at the end


def test_a_site_that_does_not_want_them_gets_none(tmp_path: Path) -> None:
    site = write_site(tmp_path / "site.conf", WITHOUT_RANKS)
    output = Recipe(site, tmp_path / "prefix").succeed("--dry-run")
    assert not any(package in output for package in PACKAGES)


def test_they_are_pinned_for_every_pip_of_the_build(tmp_path: Path) -> None:
    site = {"torch": "2.13.0", "torchvision": "on", "torchaudio": "off"}
    done = run_part("inputs.sh", "pinned_versions", tmp_path, site=site)
    assert (done.returncode, done.stderr) == (0, "")
    found = [line for line in done.stdout.splitlines() if line.startswith("torch")]
    assert found[-2:] == ["torch==2.13.0", "torchvision==0.28.0"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"torch": "off", "torchaudio": "on"}, "torchaudio = on needs torch: set torch to a"),
        (
            {"torch": "2.99.0", "torchvision": "on"},
            "torchvision = on: no release of it is known for torch 2.99.0, only for 2.4.0 2.4.1",
        ),
    ],
)
def test_a_torch_without_them_is_refused(values: dict[str, str], said: str, tmp_path: Path) -> None:
    site = write_site(tmp_path / "site.conf", WITHOUT_RANKS | values)
    done = Recipe(site, tmp_path / "prefix").run()
    assert done.code == 2
    assert said in done.sentence()


@pytest.mark.nightly
@pytest.mark.parametrize("package", PACKAGES)
def test_packages_say_the_same(package: str) -> None:
    """What each release on the index says of the torch that it needs."""
    column = 1 + PACKAGES.index(package)
    for row in ROWS:
        torch, release = row[0], row[column]
        found = metadata(package, release)
        needed = [Requirement(each) for each in found.get("requires_dist", [])]
        said = [each.specifier for each in needed if each.name == "torch"]
        if said:
            assert said[0].contains(torch), (row, said)
        else:  # torchaudio 2.11.0 forgot to say what its documentation does: torch 2.11 or later
            assert (package, release) == ("torchaudio", "2.11.0")
            assert numbers(torch) >= (2, 11)


def metadata(package: str, release: str) -> dict[str, object]:
    """Of its wheel for a Python that has one for each row."""
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"),
        *("--no-deps", "--only-binary=:all:", "--python-version=3.11", "--target=nowhere"),
        *("--report=-", f"{package}=={release}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    [found] = json.loads(done.stdout)["install"]
    return found["metadata"]


@pytest.mark.slow
@pytest.mark.needs("torch")
@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_runs_with_this_torch_or_says_why_not(package: str, tmp_path: Path) -> None:
    """PyPI's is for CUDA, as its torch for x86_64 is; another torch needs an index of its own."""
    import torch

    mine = version("torch").partition("+")[0]
    release = next(row for row in ROWS if row[0] == mine)[1 + PACKAGES.index(package)]
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    subprocess.run(
        [*install, f"--target={tmp_path}", f"{package}=={release}"], check=True, timeout=300
    )
    [info] = tmp_path.glob(f"{package}-{release}*.dist-info")
    is_for_cpu = "+cpu" in info.name
    done = subprocess.run(
        [sys.executable, REPOSITORY / "recipes" / "smoke" / f"check_{package}.py"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        timeout=300,
    )
    if torch.version.cuda is None and not is_for_cpu and os.uname().machine == "x86_64":
        said = f"error: {package} {release} does not load with torch {version('torch')} (CUDA none)"
        assert done.returncode == 1
        assert said in done.stderr, done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert f"{package} {release}" in done.stdout

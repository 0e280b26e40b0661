"""Every combination of variants comes to a line of CMake options, and CMake takes them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from distribution.project import REPOSITORY
from distribution.spack_recipe import NAMES, Folder, Package, read
from distribution.venv_program import by_venv

PARTS = ("cuda", "mpi", "verbs", "fabric")
# Half of the sixteen combinations, such that each three parts are met in all of their eight: those
# with an even number of parts.
EIGHT = [
    tuple(part for place, part in enumerate(PARTS) if number >> place & 1)
    for number in range(16)
    if number.bit_count() % 2 == 0
]


def nvcc() -> str | None:
    script = REPOSITORY / "tools" / "find_nvcc.sh"
    done = subprocess.run([script], stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip() or None


def places(compiler: str = "/opt/cuda/bin/nvcc") -> dict[str, Package]:
    """What a recipe is told of its dependencies, as they are on this machine."""
    return {
        "cuda": Package(Folder(Path(compiler).parents[1])),
        "mpi": Package(Folder("/usr"), mpicxx=shutil.which("mpicxx") or "mpicxx"),
        "rdma-core": Package(Folder("/usr")),
        "libfabric": Package(Folder("/usr")),
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_combination_comes_to_a_line(name: str) -> None:
    recipe = read(name)
    lines = {}
    for choice in recipe.choices():
        line = recipe.cmake_line(choice, places())
        options = dict(word.removeprefix("-D").split("=", 1) for word in line)
        assert len(options) == len(line)
        for part in PARTS:
            assert options[f"GEAR_WITH_{part.upper()}"] == ("ON" if choice[part] else "OFF")
        archs = choice["cuda_arch"]
        assert isinstance(archs, tuple)
        assert options.get("GEAR_CUDA_ARCHITECTURES", "") == ";".join(archs)
        lines[tuple(line)] = choice
    assert len(lines) == 2**3 * 3  # mpi, verbs, fabric; without CUDA, and for two lists of GPUs


def test_both_packages_come_to_the_same_lines() -> None:
    def lines(name: str) -> set[tuple[str, ...]]:
        recipe = read(name)
        return {tuple(recipe.cmake_line(choice, places())) for choice in recipe.choices()}

    own = "-DGEAR_BUILD_PYTHON=OFF"
    assert {(*line, own) for line in lines("py_gear")} == lines("gear_core")


def configured(name: str, parts: tuple[str, ...], build: Path) -> str:
    """What CMake says; fails where it ends badly."""
    compiler = nvcc() if "cuda" in parts else None
    if "cuda" in parts and compiler is None:
        pytest.skip("no nvcc here: make test-nightly brings one")
    if "mpi" in parts and shutil.which("mpicxx") is None:
        pytest.skip("no mpicxx here")
    if "verbs" in parts and not Path("/usr/include/infiniband/verbs.h").exists():
        pytest.skip("no libibverbs-dev here")
    if "fabric" in parts and not Path("/usr/include/rdma/fabric.h").exists():
        pytest.skip("no libfabric-dev here")
    recipe = read(name)
    choice = {**dict.fromkeys(recipe.variants, False), **dict.fromkeys(parts, True)}
    choice["cuda_arch"] = ("80", "90") if "cuda" in parts else ()
    assert recipe.refusals(choice) == []
    line = recipe.cmake_line(choice, places(compiler) if compiler else places())
    return by_venv("cmake", "-S", REPOSITORY, "-B", build, *line)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(
            parts,
            id="+".join(parts) or "none",
            marks=[] if parts in ((), ("verbs", "fabric")) else pytest.mark.nightly,
        )
        for parts in EIGHT
    ],
)
def test_cmake_takes_the_line(parts: tuple[str, ...], tmp_path: Path) -> None:
    """And builds what the variants say, whatever else this machine has."""
    said = configured("gear_core", parts, tmp_path)
    for part in PARTS:
        without = f"-- GEAR: without {part.upper() if part in ('cuda', 'mpi') else part} "
        assert (without not in said) == (part in parts), said
    assert said.count("-- GEAR: with ") == len(parts)

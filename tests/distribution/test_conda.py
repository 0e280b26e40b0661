"""recipes/conda: the form of its files, and that they want what pyproject.toml wants.

conda and its channel cannot be had where this runs: nothing here is solved or built.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from .project import REPOSITORY, VERSION, stated

FOLDER = REPOSITORY / "recipes" / "conda"
PYPROJECT = (REPOSITORY / "pyproject.toml").read_text()
ENVIRONMENTS = ["environment.yml", "environment-cuda.yml"]
CUDA = {"cuda-cudart-dev", "cuda-cudart-static", "cuda-nvtx-dev", "cuda-cccl"}
# The keys that conda-build knows, of the sections that are used here.
KEYS = {
    "package": {"name", "version"},
    "source": {"url", "sha256"},
    "build": {"number", "string", "skip", "script", "script_env", "entry_points"},
    "requirements": {"build", "host", "run"},
    "test": {"imports", "commands", "requires"},
    "about": {"summary", "license", "license_file"},
}


def wanted_by(key: str) -> dict[str, SpecifierSet]:
    """A list of requirements in pyproject.toml: name -> versions."""
    found = re.search(rf"^{key} = \[(.*?)\]$", PYPROJECT, re.M | re.S)
    assert found is not None, key
    needs = [Requirement(text) for text in re.findall(r'"([^"]+)"', found[1])]
    return {need.name: need.specifier for need in needs}


def specs(lines: list[str]) -> dict[str, SpecifierSet]:
    """conda's lines as `name versions`, each once."""
    parts = [re.fullmatch(r"([a-z0-9][a-z0-9_.-]*)(?: ([<>=!0-9.,]+))?", line) for line in lines]
    assert all(parts), [line for line, part in zip(lines, parts, strict=True) if not part]
    found = {part[1]: SpecifierSet(part[2] or "") for part in parts if part}
    assert len(found) == len(lines), lines
    return found


def recipe(cuda: str) -> dict[str, Any]:
    """meta.yaml as conda-build renders it for that cuda_compiler_version."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    text = environment.from_string((FOLDER / "meta.yaml").read_text()).render(
        cuda_compiler_version=cuda,
        compiler=lambda language: f"{language}-compiler",
        stdlib=lambda language: f"{language}-stdlib",
        environ={},
        PYTHON="python",
        PKG_HASH="0",
        PKG_BUILDNUM="0",
        CONDA_PY="311",
    )
    return dict(yaml.safe_load(text))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment_has_what_building_and_the_command_need(name: str) -> None:
    content = yaml.safe_load((FOLDER / name).read_text())
    assert set(content) == {"name", "channels", "dependencies"}
    assert content["channels"] == ["conda-forge", "nodefaults"]
    found = specs(content["dependencies"])
    for key in ("requires", "dependencies", "cli"):
        for need, versions in wanted_by(key).items():
            assert found[need] == versions, need
    assert str(found["cmake"]) == ">=3.20"
    for version in ("3.10", "3.13", "3.14"):
        assert version in found["python"]
        assert version in SpecifierSet(stated("requires-python"))


def test_the_environments_differ_by_the_cuda_compiler_alone() -> None:
    plain, cuda = (
        specs(yaml.safe_load((FOLDER / name).read_text())["dependencies"]) for name in ENVIRONMENTS
    )
    assert set(cuda) - set(plain) == {*CUDA, "cuda-nvcc"}
    assert set(plain) <= set(cuda)
    assert {name for name in plain if plain[name] != cuda[name]} == {"gxx"}


@pytest.mark.parametrize("cuda", ["None", "13.0"])
def test_recipe_wants_what_pyproject_wants(cuda: str) -> None:
    content = recipe(cuda)
    assert set(content) == set(KEYS)
    for section, keys in KEYS.items():
        assert set(content[section]) <= keys, section
    assert content["package"] == {"name": "gear-replay", "version": VERSION}
    host, run = (specs(content["requirements"][key]) for key in ("host", "run"))
    for need, versions in wanted_by("requires").items():
        assert host[need] == versions
    for need, versions in {**wanted_by("dependencies"), **wanted_by("cli")}.items():
        assert run[need] == versions
    assert (set(host) >= CUDA) == (cuda != "None")
    options = " ".join(content["build"]["script_env"])
    assert f"-DGEAR_WITH_CUDA={'OFF' if cuda == 'None' else 'ON'}" in options
    for option in re.findall(r"-D(GEAR_\w+)=", options):
        assert option in (REPOSITORY / "CMakeLists.txt").read_text()
    assert content["build"]["entry_points"] == ["gear = gear.cli.app:main"]
    assert 'gear = "gear.cli.app:main"' in PYPROJECT


def test_recipe_takes_the_tarball_that_make_dist_makes() -> None:
    url = Path(recipe("None")["source"]["url"])
    place = Path("recipes/conda") / url
    assert place.name == f"gear_replay-{VERSION}.tar.gz"
    assert (REPOSITORY / place).resolve().parent == REPOSITORY / "dist"

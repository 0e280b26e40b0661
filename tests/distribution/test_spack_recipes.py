"""The Spack recipes, read where there is no Spack: their form, their bounds, their conflicts."""

from __future__ import annotations

import hashlib
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from docs.documents import documented
from docs.ran import ran

from distribution.project import PYPROJECT, REPOSITORY, VERSION
from distribution.spack_recipe import (
    NAMES,
    SPACK,
    Directive,
    Recipe,
    faults,
    holds,
    read,
    terms,
    variants_of,
)

tomllib = runpy.run_path(str(SPACK.parents[1] / "tools" / "dependencies.py"))["tomllib"]
EASYCONFIGS = sorted((REPOSITORY / "recipes" / "easybuild").glob("*.eb"))
PROJECT = tomllib.loads(PYPROJECT)


def refused(recipe: Recipe, **given: bool | tuple[str, ...]) -> str:
    """The one message for these variants, all others off."""
    choice = {**dict.fromkeys(recipe.variants, False), "cuda_arch": (), **given}
    (message,) = recipe.refusals(choice)
    return message


def seeded(tmp_path: Path, name: str, what: str, instead: str) -> list[str]:
    """The faults of a recipe that has one text in the place of another."""
    shutil.copytree(SPACK, tmp_path, dirs_exist_ok=True)
    changed = 0
    for path in (tmp_path / "spack_repo").rglob("*.py"):
        text = path.read_text()
        changed += text.count(what)
        path.write_text(text.replace(what, instead))
    assert changed > 0, f"no recipe has {what}"
    return faults(read(name, tmp_path))


def test_both_packages_are_there() -> None:
    assert NAMES == ["gear_core", "py_gear"]
    text = (SPACK / "spack_repo" / "gear" / "repo.yaml").read_text()
    assert text == "repo:\n  namespace: gear\n  api: v2.2\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_has_the_form_that_spack_wants(name: str) -> None:
    recipe = read(name)
    assert faults(recipe) == []
    assert [each.words[0] for each in recipe.all_of("version")] == [VERSION]


@pytest.mark.parametrize(
    ("what", "instead", "says"),
    [
        ('when="+verbs"', 'when="+vrbs"', "there is no variant vrbs"),
        ('conflicts("+nccl"', 'conflicts("+ncll"', "there is no variant ncll"),
        ("class PyGear(", "class GearPython(", "has to have the class PyGear"),
        ('license("Apache-2.0")', "", "its license is not Apache-2.0"),
        ('sha256="', 'sha256="x', "sha256 is not 64 hexadecimal digits"),
        ('msg="GEAR runs on Linux"', 'msg=""', "requires platform=linux: it has no msg"),
        (
            '"gear_mpi: torch.distributed over MPI; and gear_emu"',
            '""',
            "variant c10d: it has no description",
        ),
        ('version("', 'license("', "it has no version"),
    ],
)
def test_a_fault_is_found(tmp_path: Path, what: str, instead: str, says: str) -> None:
    assert any(says in each for each in seeded(tmp_path, "py_gear", what, instead))


def test_what_the_reader_of_conditions_does_not_know_it_refuses() -> None:
    with pytest.raises(ValueError, match="given '!cuda'"):
        holds("!cuda", {"cuda": True})


def test_the_tarball_is_put_where_spack_looks_for_it(tmp_path: Path) -> None:
    """A mirror of Spack's holds sources by their checksums."""
    (tmp_path / "dist").mkdir()
    tarball = tmp_path / "dist" / f"gear_replay-{VERSION}.tar.gz"
    tarball.write_bytes(b"sources")
    sha = hashlib.sha256(b"sources").hexdigest()
    commands = [documented(r"sha=\$\(.*"), documented(r"install -D dist/.*")]
    script = "\n".join(commands)
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, check=True)
    place = tmp_path / "mirror" / "_source-cache" / "archive" / sha[:2] / f"{sha}.tar.gz"
    assert place.read_bytes() == b"sources"
    for command in commands:
        ran(command)


# ---- environments ----


@pytest.mark.needs("yaml")
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_an_environment_asks_for_what_the_recipe_has(kind: str) -> None:
    import yaml

    path = SPACK / "environments" / kind / "spack.yaml"
    asked = yaml.safe_load(path.read_text())["spack"]
    assert (path.parent / asked["repos"]["gear"] / "repo.yaml").is_file()
    (spec,) = asked["specs"]
    name, _, conditions = spec.partition(" ")
    recipe = read(name.replace("-", "_"))
    assert variants_of(conditions) <= set(recipe.variants)
    choice = {**dict.fromkeys(recipe.variants, False), "cuda_arch": ()}
    for part in terms(conditions):
        if part["flag"]:
            choice[part["flag"][1:]] = part["flag"][0] == "+"
        else:
            choice[part["name"]] = (part["value"],)
    assert recipe.refusals(choice) == []
    assert choice["cuda"] == (kind == "gpu")
    tcl = asked["modules"]["default"]["tcl"]
    assert tcl["projections"] == {"py-gear": f"gear/{{version}}-{kind}"}
    # What is left out, and not hidden, is not loaded either: NumPy would be missing.
    assert tcl["hide_implicits"]
    assert "exclude_implicits" not in tcl


# ---- what users load ----

OF_OUR_MODULE = set(
    re.findall(
        r"^override +([A-Z]\w+)",
        (REPOSITORY / "modulefiles" / "gear.module").read_text(),
        re.MULTILINE,
    )
)


class Environment(dict[str, object]):
    """That which Spack writes into the module."""

    def set(self, name: str, value: object) -> None:
        self[name] = value


def test_spacks_module_sets_what_ours_does() -> None:
    package: Any = read("py_gear").classes[0]()
    package.prefix, package.version = "/opt/gear", VERSION
    said = Environment()
    package.setup_run_environment(said)
    assert said == {"GEAR_HOME": "/opt/gear", "GEAR_VERSION": VERSION, "PYTHONNOUSERSITE": "1"}
    assert set(said) == OF_OUR_MODULE


@pytest.mark.parametrize("path", EASYCONFIGS, ids=lambda path: path.name)
def test_easybuilds_module_sets_what_ours_does(path: Path) -> None:
    _, _, text = path.read_text().partition("modextravars = {")
    assert set(re.findall(r"^    '(\w+)':", text, re.MULTILINE)) == OF_OUR_MODULE


# ---- bounds ----


def bound(requirement: str) -> str:
    """As Spack writes it: `numpy>=1.23` is py-numpy@1.23:, and without a bound py-numpy."""
    found = re.fullmatch(r"([\w-]+)(?:>=([\d.]+))?", requirement)
    assert found is not None, f"{requirement}: Spack's form of this is not known here"
    return f"py-{found[1]}" + (f"@{found[2]}:" if found[2] else "")


def test_bounds_are_those_of_pyproject() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = {
        "build": PROJECT["build-system"]["requires"],
        "always": [*PROJECT["project"]["dependencies"], *extras["cli"]],
        "torch": extras["torch"],
    }
    bounds = {kind: {bound(each) for each in lines} for kind, lines in wanted.items()}
    bounds["always"].add(f"python@{PROJECT['project']['requires-python'].removeprefix('>=')}:")
    bounds["build"].add(f"cmake@{PROJECT['tool']['scikit-build']['cmake']['version'][2:]}:")

    recipe = read("py_gear")
    has = recipe.all_of("depends_on")
    given = {each.words[0] for each in has if "@" in each.words[0] and not each.when}
    assert given == bounds["build"] | bounds["always"]
    torch = [each for each in has if each.words[0].startswith("py-torch")]
    assert {each.words[0] for each in torch} == bounds["torch"]
    assert {each.when for each in torch} == {"+c10d", "+deepspeed", "+horovod"}


def test_both_packages_are_compiled_of_the_same() -> None:
    def native(recipe: Recipe) -> set[tuple[str, str]]:
        return {
            (each.words[0], each.when)
            for each in recipe.all_of("depends_on")
            if not each.words[0].startswith(("py-", "python", "ninja"))
        }

    assert native(read("gear_core")) == native(read("py_gear"))


def test_what_gear_opens_at_run_time_is_linked_so_that_its_path_is_known() -> None:
    """Spack leaves paths of what is linked: `type="run"` would leave none."""
    opened = {"nccl@2.18:", "rdma-core@32:", "libfabric@1.7:"}
    found = [each for each in read("py_gear").all_of("depends_on") if each.words[0] in opened]
    assert len(found) == 3
    assert all("type" not in each.more for each in found)


def test_nccl_is_compiled_for_the_same_gpus() -> None:
    recipe = read("gear_core")
    choice = {**dict.fromkeys(recipe.variants, False), "cuda": True, "nccl": True}
    needs = recipe.needs({**choice, "cuda_arch": ("80", "90")})
    assert [each for each in needs if each.startswith("nccl")] == [
        "nccl@2.18:",
        "nccl cuda_arch=80",
        "nccl cuda_arch=90",
    ]


# ---- variants and conflicts ----


def default(variant: Directive) -> object:
    return variant.more.get("default")


def test_variants_are_those_of_the_documents() -> None:
    core = read("gear_core").variants
    assert set(core) == {"cuda", "cuda_arch", "mpi", "nccl", "verbs", "fabric"}
    python = read("py_gear").variants
    assert set(python) - set(core) == {"c10d", "deepspeed", "horovod"}
    assert [name for name, each in python.items() if default(each)] == ["mpi"]


def test_horovod_is_off_and_says_why() -> None:
    horovod = read("py_gear").variants["horovod"]
    assert default(horovod) is False
    assert "CVE-2024-10190" in horovod.more["description"]


@pytest.mark.parametrize("name", NAMES)
def test_conflicts_say_what_to_do(name: str) -> None:
    recipe = read(name)
    assert refused(recipe, nccl=True) == "NCCL carries rows between GPUs: +nccl needs +cuda"
    assert "cuda_arch=90" in refused(recipe, cuda=True)
    assert "compute capability 70 or later" in refused(recipe, cuda=True, cuda_arch=("61",))


def test_what_needs_mpi_says_so() -> None:
    recipe = read("py_gear")
    assert "+c10d needs +mpi" in refused(recipe, c10d=True)
    assert "+horovod needs +mpi" in refused(recipe, horovod=True)


def test_combinations_are_those_that_no_conflict_refuses() -> None:
    core = list(read("gear_core").choices())
    # Without CUDA: mpi, verbs, fabric. With: nccl, too, and two lists of GPUs.
    assert len(core) == 2**3 + 2**4 * 2
    with_mpi, without_mpi = 2**3, 2  # c10d, deepspeed, horovod; without MPI deepspeed alone
    assert len(list(read("py_gear").choices())) == len(core) // 2 * (with_mpi + without_mpi)

"""Reads a Spack recipe where there is no Spack.

Stand-ins for the names that a recipe imports record its directives while its class is made; an
instance answers for one choice of variants what Spack would ask it: the CMake options. It knows as
much of the spec language as the recipes here speak, and refuses the rest.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

from distribution.project import REPOSITORY

SPACK = REPOSITORY / "recipes" / "spack"
RECIPES = sorted((SPACK / "spack_repo" / "gear" / "packages").glob("*/package.py"))
NAMES = [recipe.parent.name for recipe in RECIPES]

# A choice of variants: True and False, or the values of one that has several.
Choice = Mapping[str, bool | tuple[str, ...]]

DIRECTIVES = ("conflicts", "depends_on", "license", "requires", "variant", "version")
# What the recipes use besides, at installation: nothing of it runs here.
AT_INSTALLATION = ("Executable", "install", "install_tree", "join_path", "python_platlib")
BUILD_SYSTEMS = {"cmake": "CMakePackage", "cuda": "CudaPackage", "python": "PythonPackage"}
CUDA_ARCHITECTURES = ("10", "35", "61", "70", "75", "80", "90", "90a", "100", "120")


@dataclass(frozen=True)
class Directive:
    name: str
    words: tuple[Any, ...]
    more: Mapping[str, Any]

    @property
    def when(self) -> str:
        return str(self.more.get("when", ""))


@dataclass(frozen=True)
class Recipe:
    folder: str
    classes: tuple[type, ...]  # those of Spack's kinds that its file makes
    directives: tuple[Directive, ...]

    def all_of(self, name: str) -> list[Directive]:
        return [each for each in self.directives if each.name == name]

    @property
    def variants(self) -> dict[str, Directive]:
        return {each.words[0]: each for each in self.all_of("variant")}

    def choices(self) -> Iterator[Choice]:
        """Every combination of variants, with and without GPUs named, that no conflict refuses."""
        flags = [name for name in self.variants if name != "cuda_arch"]
        for values in product((False, True), repeat=len(flags)):
            for architectures in ((), ("90",), ("80", "90")):
                choice = {**dict(zip(flags, values, strict=True)), "cuda_arch": architectures}
                if (choice["cuda"] or not architectures) and not self.refusals(choice):
                    yield choice

    def refusals(self, choice: Choice) -> list[str]:
        """The messages of the conflicts that this choice is in."""
        return [
            each.more["msg"]
            for each in self.all_of("conflicts")
            if holds(each.words[0], choice) and holds(each.when, choice)
        ]

    def needs(self, choice: Choice) -> list[str]:
        """The dependencies of this choice."""
        return [each.words[0] for each in self.all_of("depends_on") if holds(each.when, choice)]

    def cmake_line(self, choice: Choice, places: Mapping[str, Package]) -> list[str]:
        """The options that CMake gets, with what a dependency is asked for found in `places`."""
        package: Any = self.classes[0]()
        package.spec = Spec(choice, places, self.needs(choice))
        if hasattr(package, "cmake_args"):
            return list(package.cmake_args())
        prefix = "cmake.define."
        settings = package.config_settings(package.spec, Folder("/nowhere"))
        return [
            f"-D{name.removeprefix(prefix)}={value}"
            for name, value in settings.items()
            if name.startswith(prefix)
        ]


class Folder(str):
    """A prefix of Spack's: its attributes are what is in it."""

    def __getattr__(self, name: str) -> Folder:
        return Folder(f"{self}/{name}")


@dataclass(frozen=True)
class Package:
    """A dependency that is there."""

    prefix: Folder
    mpicxx: str = ""


@dataclass(frozen=True)
class Value:
    value: tuple[str, ...]


@dataclass
class Spec:
    choice: Choice
    places: Mapping[str, Package]
    needed: list[str]
    variants: dict[str, Value] = field(init=False)

    def __post_init__(self) -> None:
        self.variants = {
            name: Value(value) for name, value in self.choice.items() if isinstance(value, tuple)
        }

    def satisfies(self, condition: str) -> bool:
        return holds(condition, self.choice)

    def __getitem__(self, name: str) -> Package:
        if not any(re.match(rf"{name}(?![\w-])", each) for each in self.needed):
            raise KeyError(f"{name} is asked for, and does not depend on it: {self.choice}")
        return self.places[name]


TERM = re.compile(r"\s*(?:(?P<flag>[+~]\w+)|(?P<name>\w+)=(?P<value>\w+)|(?P<rest>[%^@].*))")


def terms(condition: str) -> Iterator[re.Match[str]]:
    """The parts of a condition; ValueError for what this does not know."""
    place = 0
    while place < len(condition.rstrip()):
        found = TERM.match(condition, place)
        if found is None:
            raise ValueError(f"given {condition!r}, known: +a, ~a, a=b, and then %, ^ or @")
        yield found
        place = found.end()


def variants_of(condition: str) -> set[str]:
    """The variants that it names."""
    return {
        (part["flag"] or "")[1:] or part["name"] for part in terms(condition) if not part["rest"]
    }


def holds(condition: str, choice: Choice) -> bool:
    """Whether a choice of variants is enough for it. What asks for more, as a compiler, is not."""

    def true(part: re.Match[str]) -> bool:
        if part["flag"]:
            return choice[part["flag"][1:]] == (part["flag"][0] == "+")
        if part["name"]:
            value = choice[part["name"]]
            assert isinstance(value, tuple)
            return part["value"] in value or (part["value"] == "none" and not value)
        return False

    return all(true(part) for part in terms(condition))


@contextmanager
def stand_ins(record: list[Directive], folder: Path) -> Iterator[None]:
    """The modules of Spack's that recipes import, and the repository `folder`/spack_repo/gear."""

    def directive(name: str) -> Any:
        return lambda *words, **more: record.append(Directive(name, words, more))

    def define(_package: object, name: str, value: str) -> str:
        return f"-D{name}={value}"

    def run_after(_phase: str, **_more: Any) -> Any:
        return lambda method: method

    made = {name: ModuleType(name) for name in ("spack", "spack.package", "spack_repo")}
    made["spack_repo"].__path__ = [str(folder / "spack_repo")]
    own: dict[str, Any] = {name: directive(name) for name in DIRECTIVES}
    own |= dict.fromkeys(AT_INSTALLATION)
    vars(made["spack.package"]).update(own, run_after=run_after, __all__=[*own, "run_after"])
    for name in ("spack_repo.builtin", "spack_repo.builtin.build_systems"):
        made[name] = ModuleType(name)
        made[name].__path__ = []
    for name, kind in BUILD_SYSTEMS.items():
        module = ModuleType(f"spack_repo.builtin.build_systems.{name}")
        setattr(
            module, kind, type(kind, (), {"define": lambda _, name, value: f"-D{name}={value}"})
        )
        made[module.__name__] = module
    cuda = made["spack_repo.builtin.build_systems.cuda"].CudaPackage
    cuda.cuda_arch_values = CUDA_ARCHITECTURES
    own["variant"]("cuda", default=False, description="Build with CUDA")
    own["variant"]("cuda_arch", description="CUDA architecture")
    before = dict(sys.modules)
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in set(sys.modules) - set(before):
            if name.split(".")[0] in ("spack", "spack_repo"):
                del sys.modules[name]


def read(name: str, folder: Path = SPACK) -> Recipe:
    """That of the package directory `name` in the repository in `folder`."""
    record: list[Directive] = []
    path = folder / "spack_repo" / "gear" / "packages" / name / "package.py"
    with stand_ins(record, folder):
        described = importlib.util.spec_from_file_location(f"recipe_of_{name}", path)
        assert described is not None
        assert described.loader is not None
        module = importlib.util.module_from_spec(described)
        described.loader.exec_module(module)
    own = [each for each in vars(module).values() if isinstance(each, type)]
    return Recipe(
        name, tuple(each for each in own if each.__module__ == module.__name__), tuple(record)
    )


def faults(recipe: Recipe) -> list[str]:
    """What is wrong with its form, in a sentence each."""
    found = []
    name = "".join(part.capitalize() for part in recipe.folder.split("_"))
    if [each.__name__ for each in recipe.classes] != [name]:
        found.append(f"{recipe.folder} has to have the class {name}, and no other")
    for each in recipe.all_of("version"):
        if not re.fullmatch(r"[0-9a-f]{64}", each.more.get("sha256", "")):
            found.append(f"version {each.words[0]}: sha256 is not 64 hexadecimal digits")
    if not recipe.all_of("version"):
        found.append("it has no version")
    if [each.words[0] for each in recipe.all_of("license")] != ["Apache-2.0"]:
        found.append("its license is not Apache-2.0")
    for each in recipe.directives:
        conditions = [each.when, *(each.words[:1] if each.name == "conflicts" else ())]
        for condition in conditions:
            for unknown in variants_of(condition) - set(recipe.variants):
                found.append(f"{each.name} {condition}: there is no variant {unknown}")
        if each.name in ("conflicts", "requires") and not each.more.get("msg"):
            found.append(f"{each.name} {each.words[0]}: it has no msg")
        if each.name == "variant" and not each.more.get("description"):
            found.append(f"variant {each.words[0]}: it has no description")
    return found

"""Whether what mutations name is still there: the place of each fault, and the tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from mutations.mutation import Mutation

CASE = re.compile(r'TEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
PART = re.compile(r'"((?:[^"\\]|\\.)*)"')


def complaints(mutations: Mapping[str, Mutation], root: Path) -> dict[str, list[str]]:
    """Name of a mutation -> sentences, of those that no longer fit the tree `root`."""
    cases = native_cases(root)
    functions = cache(_functions)
    found: dict[str, list[str]] = {}
    for name, mutation in mutations.items():
        said = list(_place(name, mutation, root))
        for node in mutation.tests:
            file, *_, test = node.split("::")
            if test.partition("[")[0] not in functions(root / file):
                said.append(f"its test {node} is there no more")
        for case in mutation.native:
            if case not in cases:
                said.append(f"its native test '{case}' is there no more")
        if not mutation.tests and not mutation.native:
            said.append("it names no test that is to find it")
        if said:
            found[name] = [f"mutation {name}: {sentence}" for sentence in said]
    return found


def native_cases(root: Path) -> set[str]:
    """The names of all cases of the native tests."""
    names = set()
    for path in (root / "tests" / "native").rglob("*.cpp"):
        for found in CASE.finditer(path.read_text(encoding="utf-8")):
            names.add("".join(PART.findall(found[1])))
    return names


def _place(name: str, mutation: Mutation, root: Path) -> Iterator[str]:
    path = root / mutation.file
    if not path.is_file():
        yield f"its place in {mutation.file} has moved: there is no such file"
        return
    times = path.read_text(encoding="utf-8").count(mutation.old)
    if times != 1:
        yield (
            f"its place in {mutation.file} has moved: its old text stands there {times} times; "
            f"correct it in tests/mutations/{name}.py"
        )


def _functions(path: Path) -> set[str]:
    """The names of all functions of a file; none if it is not there."""
    if not path.is_file():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

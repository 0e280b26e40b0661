"""A fault of the product, and the tests that must find it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent
KINDS = ("core", "ranks", "recipes", "trainer")  # the folders beside this file


@dataclass(frozen=True)
class Mutation:
    """`old`, which stands in `file` exactly once, becomes `new`.

    Attributes:
        file: of the product, from the root of the repository.
        tests: node ids of pytest: of a test, or of one of its parameters.
        native: names of cases of the native tests.
        found_a_gap: no test caught it until it was put in; those that it names were written then.
        fault: one sentence, the docstring of the file that this one stands in.
    """

    file: str
    old: str
    new: str
    tests: Sequence[str] = ()
    native: Sequence[str] = ()
    found_a_gap: bool = False
    fault: str = ""

    def applied(self, text: str) -> str:
        """The file's text with the fault in it."""
        assert text.count(self.old) == 1
        return text.replace(self.old, self.new)


def read_mutations() -> dict[str, Mutation]:
    """Every file of the folders KINDS: name, as in ``core/a_priority_counts_twice`` -> MUTATION."""
    found = {}
    for kind in KINDS:
        for path in sorted((FOLDER / kind).glob("*.py")):
            module = import_module(f"mutations.{kind}.{path.stem}")
            fault = " ".join((module.__doc__ or "").split())
            found[f"{kind}/{path.stem}"] = replace(module.MUTATION, fault=fault)
    return found

"""The messages that INSTALL.md tells the remedy of are messages that GEAR has."""

from __future__ import annotations

import re

import pytest
from docs.documents import ROOT

# What splits a message in a source: the end of a literal and the begin of the next one.
SEAM = re.compile(r'"\s*\\?\n\s*f?"')
SOURCES = ("csrc", "gear", "process_group", "cmake", "recipes", "modulefiles", "slurm")


def own_messages() -> list[str]:
    """Symptoms that begin as GEAR's messages do: with an area, the command's name or an option."""
    table = (
        (ROOT / "INSTALL.md").read_text(encoding="utf-8").split("\n## When something is wrong\n")[1]
    )
    symptoms = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    return [text for text in symptoms if re.match(r"\[[a-z]+\] |gear: |GEAR_", text)]


@pytest.fixture(scope="module")
def sources() -> str:
    files = [
        path
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".cpp", ".h", ".py", ".sh", ".cmake", ".patch"}
    ]
    texts = (
        path.read_text(encoding="utf-8")
        for path in [*files, ROOT / "CMakeLists.txt", ROOT / "extend-venv-activate"]
    )
    return SEAM.sub("", "\n".join(texts))


def test_there_are_some() -> None:
    assert len(own_messages()) >= 10


@pytest.mark.parametrize("message", own_messages())
def test_message_is_in_the_sources(message: str, sources: str) -> None:
    words = re.sub(r"^(gear: )?\[[a-z]+\] ", "", message)
    for part in words.split("..."):
        assert part.strip(" ,") in sources, f"no source says {part!r}"

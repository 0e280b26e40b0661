"""Every patch says why it is there, and belongs to a source that is pinned by its hash."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"
PATCHES = sorted((RECIPES / "patches").glob("*"))
SOURCES = sorted((RECIPES / "sources").glob("*"))


def test_there_are_some():
    assert {path.stem for path in SOURCES} == {"deepspeed", "horovod", "mpi4py"}
    assert PATCHES


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_source_is_one_version_with_its_hash(path):
    line = re.escape(path.stem) + r"==[\d.]+ --hash=sha256:[0-9a-f]{64}\n"
    assert re.fullmatch(line, path.read_text())


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_a_patch_says_why_and_for_what(path):
    assert path.suffix == ".patch"
    assert path.stem.split("-")[0] in {source.stem for source in SOURCES}
    head, _, body = path.read_text().partition("\n\n--- a/")
    assert head.startswith("Why: ")
    assert len(head) > 60
    assert "\n+++ b/" in body

"""Links between documents lead somewhere, and so do the paths they mention."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.documents import DOCUMENTS, ROOT

FOLDERS = (
    "benchmarks|csrc|docs|examples|gear|modulefiles|process_group|recipes|requirements|slurm|tests"
    "|tools"
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not re.match(r"https?://|mailto:", target):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
    for path in re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", text):
        assert (ROOT / path).exists(), f"{document.name} mentions {path}"

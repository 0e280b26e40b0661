"""INSTALL.md's table of extras names what pip would install."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from docs.documents import ROOT

TEXT = (ROOT / "INSTALL.md").read_text(encoding="utf-8")
TABLE = TEXT.partition("| extra | adds |")[2].partition("\n\n")[0]
ROWS = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", TABLE, re.MULTILINE))


def required(extras: str) -> set[str]:
    """The names of the packages."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "dependencies.py", extras],
        capture_output=True,
        text=True,
        check=True,
    )
    return {re.split(r"[^\w-]", line.lower())[0] for line in done.stdout.splitlines()}


# As pyproject.toml's extras name each other.
@pytest.mark.parametrize(
    ("extra", "others"),
    [("cli", ""), ("torch", ""), ("train", "cli,torch"), ("wandb", "train")],
)
def test_the_row_of_an_extra_names_its_packages(extra, others):
    row = ROWS[extra].lower()
    for package in required(extra) - required(others):
        assert package.removesuffix("-core").removesuffix("-python-headless") in row, package
    for other in filter(None, others.split(",")):
        assert f"`{other}`" in row

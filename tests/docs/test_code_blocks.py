"""Every Python block of every document runs by itself, in an empty folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from docs.documents import Block, blocks

PYTHON_BLOCKS = blocks("python")


@pytest.mark.parametrize("block", PYTHON_BLOCKS, ids=lambda block: block.name)
def test_python_block_runs(block: Block, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(block.code)
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{block.name}\n{done.stderr}"


def test_readme_is_short() -> None:
    readme = next(b.document for b in PYTHON_BLOCKS if b.document.name == "README.md")
    assert len(readme.read_text().splitlines()) <= 150

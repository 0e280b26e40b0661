"""The pictures and tables of docs/results.md are what the kept evaluations say."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from docs.documents import ROOT, documented
from docs.ran import ran

pytest.importorskip("matplotlib")
from matplotlib.image import imread

DOCUMENT = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
TOOL = runpy.run_path(str(ROOT / "tools" / "draw_results.py"))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What the command needs of one."""
    for file in ("tools/draw_results.py", *ROOT.glob("docs/results/*.csv")):
        place = tmp_path / (ROOT / file).relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, place)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def test_the_command_draws_the_pictures_of_the_document(clone: Path) -> None:
    """Another version of what draws moves some letters; a curve would take more."""
    command = documented(r"\S+ tools/draw_results\.py")
    subprocess.run(shlex.split(command), cwd=clone, check=True)
    ran(command)
    drawn = sorted(path.name for path in (clone / "docs").glob("*.png"))
    assert drawn == sorted(re.findall(r"\]\((\w+\.png)\)", DOCUMENT))
    for name in drawn:
        ours, theirs = imread(clone / "docs" / name), imread(ROOT / "docs" / name)
        assert ours.shape == theirs.shape, name
        differs = (np.abs(ours - theirs).max(axis=2) > 0.2).mean()
        assert differs < 0.0005, f"docs/{name}: run tools/draw_results.py ({differs:.1%} differs)"


def rows(heading: str, first: str) -> list[list[str]]:
    """The cells of the lines under `heading` whose first begins so."""
    section = DOCUMENT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines if line[0].strip().startswith(first)]


def test_the_tables_of_hopper_have_the_last_and_the_best_evaluation() -> None:
    shown = [row for row in rows("Hopper", "") if row[0].isdigit()]
    runs = [run for name in ("hopper", "hopper_starts_10000") for run in TOOL["read"](name).items()]
    for row, (seed, curve) in zip(shown, runs, strict=True):
        best, last = (float(cell.replace(",", "")) for cell in row[2:4])
        assert row[0] == seed
        assert best == round(max(curve["eval_return"]))
        assert last == round(curve["eval_return"][-1])


def test_the_table_of_puzzles_has_the_last_evaluation() -> None:
    (curve,) = TOOL["read"]("puzzles").values()
    for name in ("seen_families", "unseen_parameters"):
        ((*_, solved),) = rows("Grid puzzles", f"`{name}`")
        assert solved == f"{100 * curve[f'{name}_solved'][-1]:.1f} %"

"""benchmarks/emulator/published.py: what others have published, beside the model."""

from __future__ import annotations

import importlib
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from docs.documents import ROOT
from docs.ran import ran

import gear.emu as emu
from gear.emu.models.spread import LARGE, spread

PROGRAM = ROOT / "benchmarks" / "emulator" / "published.py"


@pytest.fixture(scope="module")
def published() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PROGRAM.parent)
        yield importlib.import_module(PROGRAM.stem)


def test_the_median_of_large_ones_is_within_a_fifth(published: Any) -> None:
    found = published.errors(large=True)
    assert len(found) > 50
    assert statistics.median(map(abs, found)) <= 0.2


@pytest.mark.parametrize("large", [True, False])
def test_the_interval_is_where_nine_of_ten_rows_lie(published: Any, large: bool) -> None:
    low, high = published.within(published.errors(large), 0.9)
    of_model = spread(LARGE if large else LARGE - 1)
    assert of_model == pytest.approx((1 / (1 + high), 1 / (1 + low)), abs=0.006)
    links = emu.Links.load("hgx-h100")
    for one in published.rows():
        point = emu.two_level(one.operation, one.shape, links).at(LARGE if large else 4096)
        assert point.interval == pytest.approx([point.seconds * each for each in of_model])


def test_the_documented_command_prints_each_row(published: Any) -> None:
    command = "python benchmarks/emulator/published.py"
    said = subprocess.check_output([sys.executable, PROGRAM], text=True, timeout=120)
    lines = said.splitlines()
    assert len([line for line in lines if " us  " in line]) == len(published.rows())
    assert lines[0].startswith("64 MiB and more: ")
    ran(command)

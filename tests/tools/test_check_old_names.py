"""A name that a reshape took away is found, with what took its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CHECK = REPOSITORY / "tools" / "check_old_names.py"


def check(root: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, CHECK, root], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("  const UnspentSteps& unspent_;", "UnspentSteps"),
        ("  std::shared_ptr<store::Offer> offer_;", "store::Offer"),
        ("  return index.offers().heads();", "offers()"),
        ("  if (page.spent == 0) {", "page.spent"),
        ("  ChangeLog log_;", "ChangeLog"),
        ("  std::vector<std::function<void()>> intake_;", "std::vector<std::function<void()>>"),
    ],
)
def test_an_old_name_is_found(tmp_path: Path, line: str, name: str) -> None:
    source = tmp_path / "csrc" / "store" / "shard.h"
    source.parent.mkdir(parents=True)
    source.write_text(f"#pragma once\n{line}\n")
    code, printed = check(tmp_path)
    assert code == 1
    assert printed.startswith(f"csrc/store/shard.h:2: {name} is gone: ")


@pytest.mark.parametrize("room", ["tests/native/select", "benchmarks"])
def test_an_old_name_is_found_where_the_core_is_used(tmp_path: Path, room: str) -> None:
    source = tmp_path / room / "draws.cpp"
    source.parent.mkdir(parents=True)
    source.write_text("auto sampler = select::make_group_sampler(options);\n")
    assert check(tmp_path)[1].startswith(f"{room}/draws.cpp:1: make_group_sampler is gone: ")


def test_this_tree_has_none() -> None:
    assert check(REPOSITORY) == (0, "")

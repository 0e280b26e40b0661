"""One table, in INSTALL.md, holds every environment variable of GEAR that anything reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.documents import DOCUMENTS, ROOT

import gear

PLACES = (
    *(".ci", "benchmarks", "cmake", "csrc", "examples", "gear"),
    *("modulefiles", "process_group", "recipes", "slurm", "tests"),
)
FILES = ("CMakeLists.txt", "Makefile", "extend-venv-activate", "tools")

# How the languages here read a variable that may be unset; what a script sets itself, it reads
# without ":-". An assignment to os.environ[...] is no reading.
READS = (
    r'environ(?:\.get\(|\[|\.pop\()\s*"(GEAR_\w+)"(?!\]\s*=[^=])',
    r'(?:getenv|env_string|env_int)\(\s*"(GEAR_\w+)"',
    r"\$\{(GEAR_\w+):?[-?+=]",
    r"\$ENV\{(GEAR_\w+)\}",
)

# GEAR sets these itself for what it starts; a native test asks for GEAR_SECRET to see it
# refused.
FOR_ITSELF = {
    "GEAR_EMU_RANK": "gear/emu/launched.py, for what a real rank of an emulated job starts",
    "GEAR_JOB_NODES": "slurm/env.sh, for its tasks",
    "GEAR_REQUEUED": "slurm/env.sh, for the batch script",
    "GEAR_MPICXX": "recipes/steps/horovod.sh, for Horovod's build",
    "GEAR_SECRET": "tests/native/base/test_environment.cpp, to see it refused",
    "GEAR_TEST_MACHINE": "tests/rdma/in_vm.sh, for the tests between two machines",
}


def read_somewhere() -> dict[str, str]:
    """Every variable that a file here reads, and one such file."""
    found = {}
    for place in (*PLACES, *FILES):
        paths = [ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*")
        for path in sorted(paths):
            if not path.is_file() or path.suffix in {".pyc", ".so"} or path == Path(__file__):
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            for name in (name for pattern in READS for name in re.findall(pattern, text)):
                found[name] = str(path.relative_to(ROOT))
    return found


READ = read_somewhere()


def rows() -> list[str]:
    """The variables of the table, in its order."""
    section = (ROOT / "INSTALL.md").read_text().split("\n## Environment variables\n")[1]
    return re.findall(r"^\| `(GEAR_\w+)` \|", section.partition("\n## ")[0], re.MULTILINE)


def test_a_reading_is_found_in_each_language() -> None:
    assert {"GEAR_NODE", "GEAR_NCCL", "GEAR_BUILD_CACHE", "GEAR_MPICXX"} <= set(READ)
    assert set(FOR_ITSELF) <= set(READ)


@pytest.mark.parametrize("name", sorted(set(READ) - set(FOR_ITSELF)))
def test_variable_that_is_read_has_a_row(name: str) -> None:
    assert name in rows(), f"{READ[name]} reads {name}: give it a row in INSTALL.md"


@pytest.mark.parametrize("name", rows())
def test_row_is_of_a_variable_that_is_read_and_stands_once(name: str) -> None:
    assert name in READ, f"nothing reads {name}: take its row out of INSTALL.md"
    assert rows().count(name) == 1
    assert name not in FOR_ITSELF


def test_no_second_table_of_variables() -> None:
    tables = [d.name for d in DOCUMENTS if re.search(r"^\| variable \|", d.read_text(), re.M)]
    assert tables == ["INSTALL.md"]
    assert (ROOT / "INSTALL.md").read_text().count("\n| variable |") == 1


def test_variables_of_the_core_are_as_it_tells_them() -> None:
    text = re.sub(r"[`\s]+", " ", (ROOT / "INSTALL.md").read_text(encoding="utf-8"))
    for row in gear._core.environment():
        assert " | ".join(row) in text, f"INSTALL.md lacks the row of {row[0]}"

"""What of the emulator needs no torch, in C++: process_group/tests/emu."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from docs.documents import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "sanitize",
    [
        "",
        pytest.param("address,undefined", marks=pytest.mark.nightly),
        pytest.param("thread", marks=pytest.mark.nightly),
    ],
)
def test_cases_in_cpp(sanitize: str, tmp_path: Path) -> None:
    if not Path("/usr/include/doctest/doctest.h").exists():
        pytest.skip("this machine has no doctest")
    build = [ROOT / "tools" / "c10d.sh", "--emulator", f"--python={sys.executable}"]
    if sanitize:
        build += [f"--sanitize={sanitize}", f"--to={tmp_path}", "--tests"]
    made = subprocess.run(build, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    program = (ROOT / made.stdout.strip()).parent / "gear_emu_tests"
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed" in done.stdout

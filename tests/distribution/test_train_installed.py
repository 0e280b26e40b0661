"""The tests of the trainer that need DeepSpeed or Horovod, by an installation that has both."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distribution.project import REPOSITORY

if TYPE_CHECKING:
    from distribution.conftest import Installation

TESTS = REPOSITORY / "tests"
FILES = [
    path
    for path in sorted((TESTS / "train").glob("test_*.py"))
    if re.search(r"mark\.(deepspeed|horovod)\b", path.read_text())
]
# pytest is that of these tests; all else comes from the installation, where that has it.
RUN = "import sys; sys.path.append(sys.argv.pop(1)); import pytest; sys.exit(pytest.main())"


@pytest.mark.mpi
def test_deepspeed_and_horovod_train_as_one_process_does(
    installation: Installation, tmp_path: Path
) -> None:
    """One process for all; what would be skipped here fails there."""
    done = subprocess.run(
        [
            *(installation.python, "-c", RUN, sysconfig.get_paths()["purelib"]),
            *("-p", "no:cacheprovider", "-p", "no:xdist", "--durations=0", "-m"),
            *("deepspeed or horovod", "--require=deepspeed,horovod,mpi", *FILES),
        ],
        cwd=tmp_path,  # not the sources, which Python would import
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ended = done.stdout.splitlines()[-1]
    assert len(FILES) >= 4
    assert re.search(r"\b\d\d passed, \d+ deselected in", ended), ended  # and none skipped

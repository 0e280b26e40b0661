"""tests/site/run.sh and its settings, before ReFrame is asked: distribution/test_site_checks.py has
the checks run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from distribution.project import NAME

SITE = Path(__file__).parents[1] / "site"


def test_the_settings_name_the_version_of_these_sources() -> None:
    assert f'"gear/{NAME}"' in (SITE / "settings.py").read_text()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "which settings, and what to do"),
        (["settings.py"], "which settings, and what to do"),
        (["no.py", "--run"], "no.py is no file: copy "),
    ],
)
def test_wrong_words_are_refused(words: list[str], complaint: str) -> None:
    done = subprocess.run([SITE / "run.sh", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, complaint in done.stderr) == (2, True), done.stderr

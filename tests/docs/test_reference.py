"""`make docs` makes a page of every public name, without a warning."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.documents import ROOT

import gear
import gear.distributed

pytest.importorskip("pdoc")

FACES = (gear, gear.distributed)


def test_reference_is_built_without_warnings(tmp_path: Path) -> None:
    rule = re.search(
        r"^docs: setup ; \.venv/bin/python (.*) build/docs$", (ROOT / "Makefile").read_text(), re.M
    )
    assert rule is not None
    done = subprocess.run(
        [sys.executable, *rule[1].split(), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Warn" not in done.stdout + done.stderr
    for face in FACES:
        page = (tmp_path / (face.__name__.replace(".", "/") + ".html")).read_text()
        for name in face.__all__:
            assert f'id="{name}"' in page, f"{face.__name__}.{name} has no entry"


@pytest.mark.parametrize("face", FACES, ids=lambda face: str(face.__name__))
def test_public_names_say_what_they_are(face: object) -> None:
    silent = []
    for name in face.__all__:  # type: ignore[attr-defined]
        value = getattr(face, name)
        members = vars(value).items() if inspect.isclass(value) else ()
        functions = [
            (f"{name}.{key}", member) for key, member in members if not key.startswith("_")
        ]
        for where, member in [(name, value), *functions]:
            wrapped = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if callable(wrapped) and not inspect.getdoc(wrapped):
                silent.append(where)
    assert silent == []

"""`gear data inspect`: what a checkpoint holds, and damage that it finds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gear
from gear.cli import app


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    schema = gear.Schema([gear.Column("obs", (3,)), gear.Column("action", (), "int64")])
    with gear.ReplayBuffer(schema, capacity=320) as buffer:
        with buffer.writer() as writer:
            for steps in (20, 37):
                writer.extend(
                    obs=np.ones((steps, 3), np.float32), action=np.arange(steps, dtype=np.int64)
                )
                writer.end_episode(terminated=True)
        buffer.save(tmp_path / "replay")
    return tmp_path / "replay"


def test_json(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["data", "inspect", str(checkpoint), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 57
    assert found["episodes"] == 2
    assert found["errors"] == []
    assert found["format"] >= 1
    assert found["columns"] == [
        {"name": "obs", "shape": [3], "dtype": "float32"},
        {"name": "action", "shape": [], "dtype": "int64"},
    ]


def test_tables(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert app.main(["data", "inspect", str(checkpoint)]) == 0
    shown = capsys.readouterr().out
    for text in ("57", "obs", "(3,)", "int64", "checksums", "all right"):
        assert text in shown


def test_damage_is_told_and_exit_code_is_2(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    largest = max((p for p in checkpoint.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[-100] ^= 0xFF  # in the last page
    largest.write_bytes(content)
    assert app.main(["data", "inspect", str(checkpoint)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gear: [")
    assert largest.name in error


def test_not_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    assert app.main(["data", "inspect", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gear: [")
    assert captured.err.count("\n") == 1

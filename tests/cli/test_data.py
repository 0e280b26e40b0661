"""`gear data inspect`: what a checkpoint holds, and damage that it finds."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gear
from gear.cli import app


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    schema = gear.Schema([gear.Column("obs", (3,)), gear.Column("action", (), "int64")])
    with gear.ReplayBuffer(schema, capacity=320, page_steps=16) as buffer:
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


# ---- of several ranks ----


def save_by_ranks(path: Path, steps: tuple[int, ...]) -> None:
    """A checkpoint of as many ranks as there are numbers; each stored so many steps."""
    schema = gear.Schema([gear.Column("obs", (3,)), gear.Column("action", (), "int64")])

    def run(group: gear.Group) -> None:
        with gear.ReplayBuffer(schema, capacity=320, page_steps=16, group=group) as buffer:
            with buffer.writer() as writer:
                count = steps[group.rank]
                writer.extend(
                    obs=np.ones((count, 3), np.float32), action=np.arange(count, dtype=np.int64)
                )
            buffer.save(path)

    with ThreadPoolExecutor(len(steps)) as threads:
        list(threads.map(run, gear.Group.loopback(len(steps), timeout_s=20)))


def inspect_json(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], str]:
    code = app.main(["data", "inspect", str(path), "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out or "{}"), said.err


def test_ranks_are_added_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_by_ranks(tmp_path / "replay", (20, 37))
    code, found, error = inspect_json(tmp_path / "replay", capsys)
    assert (code, error, found["errors"]) == (0, "", [])
    assert (found["ranks"], found["steps"], found["episodes"]) == (2, 57, 2)
    assert found["pages"] == 2 * 320 // 16
    size = sum(p.stat().st_size for p in (tmp_path / "replay").rglob("*.gear"))
    assert found["bytes"] >= size
    assert app.main(["data", "inspect", str(tmp_path / "replay")]) == 0
    assert "2 ranks" in capsys.readouterr().out


def test_damage_names_the_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "replay"
    save_by_ranks(path, (20, 37, 4))
    (shard,) = (path / "rank-00001-of-00003").glob("*.gear")
    content = bytearray(shard.read_bytes())
    content[-100] ^= 0xFF
    shard.write_bytes(content)
    shutil.rmtree(path / "rank-00002-of-00003")
    code, found, error = inspect_json(path, capsys)
    assert code == 2
    assert found["steps"] == 57
    assert [e.split(":")[0] for e in found["errors"]] == [
        "rank-00001-of-00003",
        "rank-00002-of-00003",
    ]
    assert len(error.splitlines()) == 2


def test_parts_of_two_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "replay"
    save_by_ranks(path, (20, 37))
    (path / "rank-00000-of-00002").rename(path / "rank-00000-of-00001")
    code, found, _ = inspect_json(path, capsys)
    assert code == 2
    assert found["errors"][0].endswith("has parts of 1 and of 2 ranks")


def test_between_the_two_renames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_by_ranks(tmp_path / "replay", (20, 37))
    (tmp_path / "replay").rename(tmp_path / ".replay.replaced")
    code, _, error = inspect_json(tmp_path / "replay", capsys)
    assert code == 2
    assert ".replay.replaced exists: a save by several ranks was killed between its two" in error
    assert not (tmp_path / "replay").exists()

"""Runs that are kept, and the subjects whose tests are due by them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import kept_runs
import pytest


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources of one subject, and no run yet."""
    monkeypatch.setattr(kept_runs, "ROOT", tmp_path)
    monkeypatch.setattr(kept_runs, "KEPT", tmp_path / "tests" / "kept")
    monkeypatch.setattr(kept_runs, "BEGUN", tmp_path / "build" / "nightly.json")
    monkeypatch.setattr(kept_runs, "SUBJECTS", {"rdma": ["csrc/transport", "tests/rdma_*.py"]})
    monkeypatch.setenv("GEAR_COMMIT", "abc1234")
    for file in ("csrc/transport/a.cpp", "csrc/transport/verbs/b.cpp", "tests/rdma_c.py"):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)
    kept_runs.unchanged_since.cache_clear()
    return tmp_path


def due(tree: Path) -> bool:
    kept_runs.unchanged_since.cache_clear()
    return kept_runs.main(["unchanged", "rdma"]) == 1


def nightly(*left_out: str) -> None:
    kept_runs.unchanged_since.cache_clear()
    assert kept_runs.main(["begin-nightly"]) == 0
    assert kept_runs.main(["keep-nightly", "7 passed", *left_out]) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: (tree / "csrc/transport/verbs/b.cpp").write_text("other"),
        lambda tree: (tree / "csrc/transport/new.h").touch(),
        lambda tree: (tree / "tests/rdma_c.py").rename(tree / "tests/rdma_d.py"),
    ],
    ids=["changed", "added", "renamed"],
)
def test_a_subject_is_due_when_its_files_change(tree: Path, change) -> None:
    assert due(tree)  # nothing is kept
    nightly()
    assert not due(tree)
    change(tree)
    assert due(tree)


def test_a_subject_may_be_kept_by_a_run_of_its_own(tree: Path) -> None:
    nightly()
    (tree / "tests/rdma_c.py").write_text("other")
    assert due(tree)
    assert kept_runs.main(["keep-subject", "rdma", "3 passed"]) == 0
    assert not due(tree)
    assert json.loads((tree / "tests/kept/nightly.json").read_text())["result"] == "7 passed"
    (tree / "tests/rdma_c.py").write_text("another")
    assert due(tree)
    assert kept_runs.main(["keep-subject", "weather", "3 passed"]) == 2


def test_what_is_compiled_is_no_change(tree: Path) -> None:
    nightly()
    (tree / "csrc" / "transport" / "a.so").touch()
    (tree / "csrc" / "other.cpp").touch()
    assert not due(tree)


def test_the_checksum_of_the_tarball_is_no_change(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_runs, "SUBJECTS", {"rdma": ["recipes/easybuild"]})
    easyconfig = tree / "recipes" / "easybuild" / "gear.eb"
    easyconfig.parent.mkdir(parents=True)
    easyconfig.write_text(f"version = '1'\nchecksums = ['{'0' * 64}']\n")
    nightly()
    easyconfig.write_text(f"version = '1'\nchecksums = ['{'1' * 64}']\n")
    assert not due(tree)
    easyconfig.write_text(f"version = '2'\nchecksums = ['{'1' * 64}']\n")
    assert due(tree)


def test_files_that_are_not_there_are_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_runs, "SUBJECTS", {"rdma": ["csrc/gone"]})
    with pytest.raises(SystemExit, match="rdma is about csrc/gone, which is not there"):
        kept_runs.main(["unchanged", "rdma"])


def test_the_last_lines_name_what_ran_where(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept_runs.main(["show"])
    assert "tests/gpu/run.sh on one GPU: no run is kept" in capsys.readouterr().out
    kept_runs.main(["keep-gpu", "build: ok", "1 NVIDIA H100"])
    kept_runs.main(["keep-gpu", "build: FAILED", "2 NVIDIA H100"])
    assert json.loads((tree / "tests/kept/gpu.json").read_text())["commit"] == "abc1234"
    capsys.readouterr()
    kept_runs.main(["show"])
    said = capsys.readouterr().out
    assert ", 1 NVIDIA H100, commit abc1234: build: ok\n" in said
    assert ", 2 NVIDIA H100, commit abc1234: build: FAILED\n" in said


def test_what_is_marked_nightly_is_due_until_it_has_passed_too(tree: Path) -> None:
    kept_runs.main(["keep-subject", "rdma", "3 passed"])
    assert due_nightly()
    kept_runs.main(["keep-subject", "rdma", "5 passed", "nightly"])
    assert not due_nightly()
    assert not due(tree)
    (tree / "tests/rdma_c.py").write_text("other")
    assert due_nightly()


def due_nightly(subject: str = "rdma") -> bool:
    kept_runs.unchanged_since.cache_clear()
    return kept_runs.main(["unchanged", subject, "nightly"]) == 1


def test_a_nightly_run_keeps_what_was_due_and_says_what_it_left_out(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_runs.main(["keep-subject", "rdma", "5 passed", "nightly"])
    rdma = (tree / "tests/kept/rdma.json").read_text()
    subjects = {**kept_runs.SUBJECTS, "ssh": ["tests/rdma_*.py"], "wheels": ["csrc"]}
    monkeypatch.setattr(kept_runs, "SUBJECTS", subjects)
    nightly("wheels")
    assert (tree / "tests/kept/rdma.json").read_text() == rdma, "its date would not be the run's"
    kept = json.loads((tree / "tests/kept/nightly.json").read_text())
    assert kept["without"] == f"rdma of {kept['date']}, wheels: due"
    assert not due_nightly("ssh")
    assert due_nightly("wheels")


def test_files_that_change_while_it_runs_have_not_passed(tree: Path) -> None:
    kept_runs.main(["begin-nightly"])
    (tree / "tests/rdma_c.py").write_text("other")
    kept_runs.main(["keep-nightly", "7 passed"])
    assert due(tree)


def test_a_subject_of_which_a_test_was_skipped_has_not_passed(tree: Path) -> None:
    kept_runs.main(["begin-nightly"])
    said = '<skipped message="this machine has no rdma (a test of rdma)"/>'
    (tree / "build" / "pytest.xml").write_text(said)
    kept_runs.main(["keep-nightly", "7 passed"])
    assert due(tree)


def test_what_passed_long_ago_is_due_at_night_alone(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all that it rests on is in files."""
    kept_runs.main(["keep-subject", "rdma", "5 passed", "nightly"])
    later = kept_runs._today() + datetime.timedelta(days=8)
    monkeypatch.setattr(kept_runs, "_today", lambda: later)
    assert due_nightly()
    assert not due(tree)


@pytest.mark.parametrize(
    "words",
    [[], ["unchanged"], ["unchanged", "weather"], ["unchanged", "rdma", "daily"], ["show", "all"]],
)
def test_wrong_words_are_refused(words: list[str]) -> None:
    assert kept_runs.main(words) == 2


@pytest.mark.parametrize("subject", kept_runs.SUBJECTS)
def test_files_of_each_subject_are_there(subject: str) -> None:
    assert len(kept_runs.digest(subject)) == 16

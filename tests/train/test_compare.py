"""`gear compare`: one table and one plot of the mean of several runs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from train.composed import compose

from gear.cli.app import main
from gear.train.config import read
from gear.train.record.compare import curve, interval, read_runs
from gear.train.record.folder import begin


def put_run(
    folder: Path, seed: int, returns: list[float], length: int = 100, words: tuple[str, ...] = ()
) -> None:
    begin(folder)
    (folder / "config.yaml").write_text(read(compose(*words, f"seed={seed}")).yaml)
    rows = [f"{length * (i + 1)},{i},{value}," for i, value in enumerate(returns)]
    rows[len(rows) // 2 : 0] = [f"{length},,,7.5"]  # an evaluation's, between those of episodes
    (folder / "metrics.csv").write_text("\n".join(["step,episode,return,eval_return", *rows, ""]))
    summary = {
        "final_return": float(np.mean(returns[-10:])) if returns else None,
        "env_steps": length * len(returns),
        "env_steps_per_s": 321.0,
        "seed": seed,
    }
    (folder / "summary.json").write_text(json.dumps(summary))


def test_table_and_plot(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for seed in (2, 0, 1):
        put_run(Path("sweep") / f"seed{seed}", seed, [100.0 * seed] * 20)
    put_run(Path("sweep") / "empty", 3, [])
    assert main(["compare", "sweep"]) == 0
    shown = capsys.readouterr().out
    positions = [shown.index(f"sweep/seed{seed}") for seed in range(3)]
    assert positions == sorted(positions)
    assert "3 runs" in shown
    assert "100.0 (0.0 to 200.0)" in shown
    assert "left out: sweep/empty: no episode of its own has ended" in shown
    assert "warning" not in shown
    assert "learning curves: sweep/compare.png" in shown
    assert Path("sweep/compare.png").stat().st_size > 1000


def test_two_folders_in_one_plot_and_runs_of_other_lengths(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put_run(Path("a/1"), 1, [1.0] * 20)
    put_run(Path("a/2"), 2, [2.0] * 12)
    put_run(Path("b/1"), 1, [3.0] * 3)
    assert main(["compare", "a", "b"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "warning: runs of a end after 1,200 to 2,000 steps" in shown
    assert "mean of b" in shown
    assert Path("a/compare.png").exists()
    assert not Path("b/compare.png").exists()


def test_no_run_is_refused(tmp_path, capsys):
    assert main(["compare", str(tmp_path)]) == 2
    assert "[train] no run below" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (("env=cartpole",), (), r"are of the environments .*CartPole-v1.* and .*Pendulum-v1"),
        ((), ("+env.kwargs.g=9.81",), r"are of the environments .*9\.81"),
        ((), ("algo.gamma=0.9",), r"have algo\.gamma=0\.99 and algo\.gamma=0\.9: .*a folder for"),
        (("replay=uniform",), (), r"have replay\."),
    ],
    ids=["env", "kwargs", "gamma", "replay"],
)
def test_runs_that_are_no_repetitions_are_refused(tmp_path, one, other, said, capsys):
    put_run(tmp_path / "1", 1, [1.0] * 20, words=one)
    put_run(tmp_path / "2", 2, [2.0] * 20, words=other)
    assert main(["compare", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(rf"{tmp_path}/1 and {tmp_path}/2 {said}", error), error
    assert "cannot be compared; give" in error
    assert not (tmp_path / "compare.png").exists()
    assert main(["compare", str(tmp_path / "1"), str(tmp_path / "2")]) == 2 * ("env" in said)


def test_one_run_counts_once(tmp_path, capsys):
    """A copy of it is the same run, and so is a run with its seed."""
    put_run(tmp_path / "a" / "1", 1, [1.0] * 20)
    shutil.copytree(tmp_path / "a" / "1", tmp_path / "a" / "copy")
    for folders in (["a"], ["a/1", "a/copy"], ["a", "a/1"]):
        assert main(["compare", *(str(tmp_path / each) for each in folders)]) == 2
        assert "are one run, which would count twice" in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "a/1"), str(tmp_path / "a/1")]) == 2
    assert "is given twice" in capsys.readouterr().err
    put_run(tmp_path / "b" / "1", 1, [1.0] * 20)
    put_run(tmp_path / "b" / "again", 1, [1.0] * 20)
    assert main(["compare", str(tmp_path / "b")]) == 2
    assert "have one seed, 1, and are no two samples" in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "b/1"), str(tmp_path / "b/again")]) == 0


def test_what_learns_from_data_has_no_returns_to_compare(tmp_path, capsys):
    data = ("data=saved", "data.path=x")
    put_run(tmp_path / "1", 1, [], words=data)
    assert main(["compare", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert "what learns from saved data has no returns to compare" in told.err
    assert f"left out: {tmp_path}/1: no episode of its own has ended" in told.out


def test_names_of_folders_are_shown_as_they_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    put_run(Path("a[/b]/1"), 1, [1.0] * 20)
    assert main(["compare", "a[/b]"]) == 0
    assert "mean of a[/b]" in capsys.readouterr().out


def test_curves_meet_at_the_same_steps(tmp_path):
    put_run(tmp_path / "a", 0, list(range(30)), length=100)
    put_run(tmp_path / "b", 1, list(range(0, 60, 2)), length=50)
    runs = read_runs(tmp_path)
    steps, returns = curve(runs)
    # Means of ten episodes: from the tenth of the slower run to the end of the shorter one.
    assert (steps[0], steps[-1]) == (1000, 1500)
    assert returns[0] == pytest.approx(steps / 100 - 1 - 4.5)
    assert returns[1] == pytest.approx(2 * (steps / 50 - 1 - 4.5))


def test_interval_of_the_mean():
    low, high = interval(np.full((5, 3), 7.0))
    assert (low == 7.0).all()
    assert (high == 7.0).all()
    values = np.random.default_rng(1).normal(size=(400, 1))
    low, high = interval(values)
    assert low[0] < values.mean() < high[0]
    assert high[0] - low[0] == pytest.approx(2 * 1.96 / 20, rel=0.2)

"""`gear eval` of grid puzzles, and the exported policy of a behaviour clone."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest
from PIL import Image
from train.composed import compose
from train.saved_data import write_cartpole, write_pendulum

from gear.cli import app
from gear.train.config import read
from gear.train.loop import Learner
from gear.train.models.exported import load_policy
from gear.train.record.report import write_policy
from gear.train.tasks.puzzles.canvas import ask_of

PUZZLES = (
    *("data=puzzles", "data.most=6", "data.puzzles=20", "data.eval_puzzles=3", "data.pairs=3"),
    *("model.width=16", "model.layers=1", "model.heads=2", "algo.batch_size=4"),
)


@pytest.fixture(scope="module")
def solver(tmp_path_factory):
    """A run of puzzles after two updates."""
    folder = tmp_path_factory.mktemp("puzzles")
    learner = Learner(read(compose(*PUZZLES)))
    for _ in range(2):
        learner.step()
    learner.save(folder)
    yield folder, learner
    learner.close()


@pytest.mark.needs("torchmetrics")
def test_puzzles_are_scored_by_set_and_drawn(solver, tmp_path, capsys):
    folder, learner = solver
    assert app.main(["eval", str(folder), f"out={tmp_path}"]) == 0
    with (tmp_path / "scores.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    names = ["seen_families", "unseen_parameters", "unseen_families"]
    assert [row["set"] for row in found if not row["family"]] == names
    algorithm = learner.algorithm
    expected, scored = algorithm.scores(), algorithm.look().scored
    for row in found:
        puzzles = [p for p in scored[row["set"]] if row["family"] in ("", p.name)]
        assert row["puzzles"] == str(len(puzzles))
        asked = ask_of(puzzles, 3, 6)
        cells = int((algorithm.answer(asked) != asked.answers).sum())
        assert float(row["pixel_difference"]) == pytest.approx(cells / len(puzzles))
        for score in ("solved", "accuracy", "pixel_difference") if not row["family"] else ():
            assert float(row[score]) == pytest.approx(expected[f"{row['set']}_{score}"])
    families = {(row["set"], row["family"]) for row in found if row["family"]}
    assert families == {(name, puzzle.name) for name in names for puzzle in scored[name]}
    said = capsys.readouterr().out
    assert all(name in said for name in names)
    assert f"written: {tmp_path / 'puzzles.png'}" in said
    picture = np.asarray(Image.open(tmp_path / "puzzles.png").convert("RGB"))
    # A row for each of two puzzles of three sets; a cell's colour is one of ARC's.
    assert picture.shape[0] > 6 * 200
    assert (picture == (0x00, 0x74, 0xD9)).all(2).any()


@pytest.mark.needs("torchmetrics")
def test_the_picture_shows_the_answer_beside_what_is_wanted(solver, tmp_path, monkeypatch):
    from gear.train.policies import film

    folder, learner = solver
    drawn = []
    monkeypatch.setattr(film, "grids", lambda path, rows: drawn.extend(rows) or path)
    assert app.main(["eval", str(folder), f"out={tmp_path}"]) == 0
    puzzles = learner.algorithm.look().scored["seen_families"]
    title, shown = drawn[0]
    assert title == f"seen_families: {puzzles[0].name}"
    grids = dict(shown[-3:])
    np.testing.assert_array_equal(grids["query"], puzzles[0].query[0])
    np.testing.assert_array_equal(grids["wanted"], puzzles[0].query[1])
    answer = learner.algorithm.answer(ask_of(puzzles[:1], 3, 6))[0].numpy()
    height, width = grids["answer: wrong"].shape
    expected = np.where(answer == 10, -1, answer)[:height, :width]
    np.testing.assert_array_equal(grids["answer: wrong"], expected)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["eval", "RUN", "env=cartpole"], "has learned to answer grid puzzles and plays no env"),
        (["eval", "RUN", "episodes=3"], "episodes=3 is not possible: .* leave episodes= out"),
        (["eval", "RUN", "video=film.gif"], "video=film.gif is not possible"),
        (["data", "collect", "policy=RUN"], "grid puzzles and plays no environment: give the"),
    ],
)
def test_what_puzzles_cannot_do_is_refused_in_one_sentence(
    solver, words, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert app.main([word.replace("RUN", str(solver[0])) for word in words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(said, error), error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("env", ["pendulum", "cartpole"])
def test_policy_of_a_clone_acts_as_the_algorithm(env, tmp_path):
    """Of an MLP, with the data's scales; a transformer needs its history, and exports nothing."""
    (write_pendulum if env == "pendulum" else write_cartpole)(tmp_path / "data", (30,) * 8)
    data = (f"env={env}", "data=saved", f"data.path={tmp_path / 'data'}", "algo=bc")
    learner = Learner(read(compose(*data, "model=mlp", "model.hidden=[8]", "algo.batch_size=4")))
    for _ in range(3):
        learner.step()
    write_policy(tmp_path / "policy.pt", learner)
    policy, size = load_policy(tmp_path / "policy.pt"), 3 if env == "pendulum" else 4
    for obs in np.random.default_rng(0).normal(size=(20, size)).astype(np.float32):
        expected = learner.algorithm.player()(obs[None], 0.0)
        # Pendulum's torque is in -2 ... 2, an action in -1 ... 1.
        scale = 2.0 if env == "pendulum" else 1
        np.testing.assert_allclose(policy(obs), scale * np.asarray(expected), rtol=1e-5)
    learner.close()
    small = ("model=dt_1m", "model.width=8", "model.layers=1", "model.heads=1")
    transformer = Learner(read(compose(*data, *small, "algo.batch_size=4")))
    assert transformer.algorithm.exported() is None
    transformer.close()

"""Grid puzzles: what a batch asks, the loss, ARC's files, and that easy ones are learned."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from train.saved_data import write_arc

import gear
from gear.train.algo.puzzles import puzzle_losses
from gear.train.loop import Learner
from gear.train.ranks import Ranks
from gear.train.tasks.puzzles.arc import read_sets
from gear.train.tasks.puzzles.augment import draws, exchange_colours, mirror
from gear.train.tasks.puzzles.canvas import OUTSIDE, UNKNOWN, ask_of, on_canvas
from gear.train.tasks.puzzles.puzzle import Puzzle, generate
from gear.train.tasks.puzzles.sets import make_sets

SMALL = (
    *("data=puzzles", "data.puzzles=40", "data.eval_puzzles=7", "data.least=5", "data.most=6"),
    *("data.pairs=3", "model.width=16", "model.layers=1", "model.heads=2", "algo.batch_size=4"),
    *("algo.warmup=0", "optim.lr=3e-3", "optim.weight_decay=0"),
)


# ---- canvases and augmentations ----


def test_mirrors_and_colours_keep_each_grid_in_its_corner():
    """Against NumPy on each grid alone; both at once change nothing else."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 7, (16, 3, 2))
    grids = [[rng.integers(0, 10, size).astype(np.uint8) for size in each] for each in sizes]
    stacked = np.stack([[on_canvas(grid, 6) for grid in each] for each in grids])
    drawn = draws(3, 4, torch.arange(16))
    found = mirror(torch.from_numpy(stacked).long(), drawn[:, 9:12]).numpy()
    kinds = set()
    for row, each in enumerate(grids):
        odd = (drawn[row, 9:12] % 2).tolist()
        kinds.add(tuple(odd))
        for at, grid in enumerate(each):
            grid = grid.T if odd[0] else grid
            grid = grid[::-1] if odd[1] else grid
            grid = grid[:, ::-1] if odd[2] else grid
            assert np.array_equal(found[row, at], on_canvas(grid, 6))
    assert len(kinds) > 4
    recoloured = exchange_colours(torch.from_numpy(stacked).long(), drawn[:, :9]).numpy()
    for row in range(16):
        pairs = set(
            zip(stacked[row].ravel().tolist(), recoloured[row].ravel().tolist(), strict=True)
        )
        assert len(dict(pairs)) == len(pairs) == len({new for _, new in pairs})
        assert all(new == old for old, new in pairs if old in (0, OUTSIDE))
    assert (recoloured != stacked).any()


def test_draws_follow_from_seed_update_and_puzzle():
    numbers = torch.tensor([5, 9, 5])
    first = draws(1, 2, numbers)
    assert torch.equal(first[0], first[2])
    assert torch.equal(first[1:2], draws(1, 2, torch.tensor([9])))
    others = [draws(1, 3, numbers), draws(2, 2, numbers)]
    assert all((first != other).any() for other in others)
    many = draws(0, 0, torch.arange(20_000)).double() / 2**31
    assert many.mean(0).sub(0.5).abs().max() < 0.01
    assert torch.corrcoef(many.T).fill_diagonal_(0).abs().max() < 0.04
    assert (draws(0, 0, torch.arange(8000)) % 2).double().mean(0).sub(0.5).abs().max() < 0.03


def test_a_batch_asks_each_pair_of_its_puzzles(configure):
    """All of the drawn puzzle is there, one pair's output apart; padding is OUTSIDE."""
    learner = Learner(configure(*SMALL, "data.colours=false", "data.symmetries=false"))
    sets, queries = learner.facts, set()
    for update in range(30):
        batch = next(learner.loader)
        learner.algorithm._updates = update
        asked = learner.algorithm.asked(batch)
        for row, number in enumerate(batch["puzzle"].tolist()):
            pairs = sets.learned(number).pairs
            known = {on_canvas(g, 6).tobytes(): on_canvas(w, 6) for g, w in pairs}
            order = [asked.inputs[row, k].numpy().astype(np.uint8).tobytes() for k in range(3)]
            assert set(order) == set(known)
            assert (asked.outputs[row, -1] == UNKNOWN).all()
            assert np.array_equal(asked.answers[row], known[order[-1]])
            for at in range(2):
                assert np.array_equal(asked.outputs[row, at], known[order[at]])
            queries.add(list(known).index(order[-1]))
    assert queries == {0, 1, 2}
    learner.close()


# ---- loss ----


def test_loss_against_numpy(configure):
    """Mean inside the answer plus mean outside of it, and the weights of the batch."""
    learner = Learner(configure(*SMALL))
    algorithm, batch = learner.algorithm, next(learner.loader)
    asked = algorithm.asked(batch)
    with torch.no_grad():
        logits = algorithm._model(asked.inputs, asked.outputs).double().numpy()
    answers, expected = asked.answers.numpy(), []
    for row in range(4):
        cells = {True: [], False: []}
        for (r, c), colour in np.ndenumerate(answers[row]):
            of_cell = logits[row, r, c]
            loss = np.log(np.exp(of_cell).sum()) - of_cell[colour]
            cells[colour != OUTSIDE].append(loss)
        assert cells[True]
        expected.append(sum(np.mean(each) for each in cells.values() if each))
    weights = torch.tensor([1.0, 0.5, 0.25, 0.75])
    weighted = Weighted(batch, weights)
    np.testing.assert_allclose(algorithm.learn(weighted).numpy(), expected, rtol=1e-4)
    wanted = np.mean(weights.numpy() * expected)
    assert algorithm.metrics()["loss"] == pytest.approx(wanted, rel=1e-4)
    learner.close()


class Weighted(dict):
    """A batch with importance weights."""

    def __init__(self, batch, weights):
        super().__init__(batch.items())
        self.weights, self.masks = weights, batch.masks


def test_loss_descends(configure):
    """The step is down the gradient of that loss, by the same batch again."""
    learner = Learner(configure(*SMALL, "optim.lr=1e-3"))
    batch, found = next(learner.loader), []
    for _ in range(12):
        learner.algorithm._updates = 0
        found.append(float(learner.algorithm.learn(batch).mean()))
    assert found[-1] < found[0] - 0.1
    learner.close()


def test_an_answer_that_fills_the_canvas_has_no_outside():
    answers = torch.randint(0, 10, (2, 4, 4))
    logits = torch.randn(2, 4, 4, 11)
    each = -logits.log_softmax(-1).gather(-1, answers[..., None])
    torch.testing.assert_close(puzzle_losses(logits, answers), each.flatten(1).mean(1))


# ---- model ----


def test_a_pair_that_is_not_there_is_not_looked_at(configure):
    """Nor are cells outside of both grids; the query's are, since its answer may reach there."""
    model = Learner(configure(*SMALL)).algorithm._model
    puzzle = generate((0, 0), ["recolour"], unseen=False, least=5, most=5, pairs=2)
    asked, found = ask_of([puzzle], 3, 6), []
    for change in (None, 1, 2):
        with torch.no_grad():
            if change is not None:
                model.embed_pair.weight[change] += 1.0
            found.append(model(asked.inputs, asked.outputs))
    assert torch.equal(found[0], found[1])  # the demonstration in the middle is missing
    assert not torch.allclose(found[1], found[2])


# ---- ARC's files ----


def test_arcs_files_are_learned_from_and_scored_on(configure, tmp_path):
    write_arc(tmp_path)
    learner = Learner(configure(*SMALL, f"data.path={tmp_path}"))
    sets = learner.facts
    assert {name: len(puzzles) for name, puzzles in sets.scored.items()} == {
        "training": 3,
        "evaluation": 1,
    }
    assert (sets.size, sets.left_out) == (2, 1)
    assert "1 that are too large left out" in str(sets)
    batch = next(learner.loader)
    there = batch.masks["input"].sum(1).tolist()
    assert {2, 3} == {there[row] for row in range(4)} | set(there)
    assert np.array_equal(batch["output"][0, 0, :4, 0], [2, 1, 0, OUTSIDE])
    learner.step()
    learner.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "no puzzle of ARC: JSONDecodeError"),
        ('{"train": []}', "no puzzle of ARC: KeyError: 'test'"),
        ('{"train": [], "test": []}', "no pair to learn from"),
        ('{"train": [{"input": [[10]], "output": [[1]]}], "test": []}', "not 0 to 9"),
        ('{"train": [{"input": [[1], [1, 2]], "output": [[1]]}], "test": []}', "no puzzle of ARC"),
    ],
)
def test_a_file_that_is_no_puzzle_is_refused(tmp_path, text, message):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(gear.InvalidArgument, match=message):
        read_sets(tmp_path)


def test_a_folder_without_puzzles_is_refused(configure, tmp_path):
    with pytest.raises(gear.InvalidArgument, match="holds no puzzles to learn from"):
        read_sets(tmp_path)
    write_arc(tmp_path)
    (tmp_path / "training" / "a.json").unlink()
    (tmp_path / "training" / "b.json").unlink()
    config = configure(*SMALL, f"data.path={tmp_path}")
    with pytest.raises(gear.InvalidArgument, match="the smallest has 9 cells a side"):
        make_sets(config.data, 0)


def test_demonstrations_beyond_the_pairs_are_left_out():
    grid = np.ones((2, 2), np.uint8)
    puzzle = Puzzle("x", tuple((grid * k, grid) for k in range(1, 6)), (grid * 9, grid * 3))
    asked = ask_of([puzzle], 3, 5)
    assert asked.inputs[0, :, 0, 0].tolist() == [1, 2, 9]
    assert asked.answers[0, 0, 0] == 3


# ---- runs ----


def test_a_continued_run_is_bit_equal(configure, tmp_path):
    config = configure(*SMALL, "total_steps=8")
    whole = Learner(config)
    while whole.steps < 4:
        whole.step()
    checkpoint, found = whole.save(tmp_path), []
    for one in (whole, Learner(config, start=checkpoint)):
        while one.steps < 8:
            one.step()
        found.append(one.algorithm.digest())
        one.close()
    assert found[0] == found[1]


def test_more_ranks_than_puzzles_are_refused(configure):
    algorithm = Learner(configure(*SMALL)).algorithm
    algorithm._ranks = SimpleNamespace(size=41)
    with pytest.raises(gear.InvalidArgument, match="not one to learn from for each of 41 ranks"):
        algorithm.look()


def test_playing_is_refused(configure):
    learner = Learner(configure(*SMALL))
    with pytest.raises(gear.InvalidArgument, match="answers puzzles and plays no environment"):
        learner.algorithm.player()
    assert learner.ranks.size == Ranks.single().size
    learner.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("data.least=8",), "data.least=8 is not possible: give at most data.most=6"),
        (("data.unseen_families=[fill]",), "a list without fill"),
        (("data.families=[]",), "data.families"),
    ],
)
def test_what_does_not_fit_is_refused(configure, given, message):
    with pytest.raises(gear.InvalidArgument, match=r"data\.name=puzzles is not possible"):
        configure("data=puzzles", "algo=dqn")
    with pytest.raises(gear.InvalidArgument, match=message.replace("[", r"\[")):
        configure(*SMALL, *given)


@pytest.mark.needs("torchmetrics")
@pytest.mark.slow
def test_learns_an_easy_family(configure):
    """Recolouring, shown by one pair, with colours that are exchanged in every update."""
    given = (
        *("data.families=[recolour]", "data.unseen_families=[]", "data.pairs=2", "data.most=5"),
        *("data.puzzles=200", "data.eval_puzzles=20", "model.width=32", "model.layers=2"),
        *("algo.batch_size=16", "total_steps=150"),
    )
    learner = Learner(configure(*SMALL, *given))
    before = learner.algorithm.scores()
    while learner.steps < 150:
        learner.step()
    after = learner.algorithm.scores()
    assert after["unseen_parameters_accuracy"] > before["unseen_parameters_accuracy"] + 0.3
    learner.close()

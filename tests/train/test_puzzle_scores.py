"""The scores of puzzles against a slow reference, and the sets that are scored."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from train.on_threads import on_threads
from train.test_puzzles import SMALL

from gear.train.loop import Learner
from gear.train.tasks.evaluation import Evaluation
from gear.train.tasks.puzzles.canvas import OUTSIDE
from gear.train.tasks.puzzles.families import FAMILIES
from gear.train.tasks.puzzles.puzzle import parameters
from gear.train.tasks.puzzles.sets import make_sets


def test_unseen_parameters_and_families_are_not_trained_on(configure, monkeypatch):
    used = {}
    for name, family in FAMILIES.items():
        seen, unseen = (set(parameters(name, unseen=each)) for each in (False, True))
        assert seen.isdisjoint(unseen)
        assert unseen
        assert seen | unseen == set(family.parameters)

        def pair(parameter, *more, name=name, family=family):
            used.setdefault(kind, set()).add((name, parameter))
            return family.pair(parameter, *more)

        monkeypatch.setitem(FAMILIES, name, type(family)(family.parameters, pair))
    config, kind = configure(*SMALL, "data.eval_puzzles=30"), "scored"
    sets = make_sets(config.data, 0)
    assert list(sets.scored) == ["seen_families", "unseen_parameters", "unseen_families"]
    kind = "learned"
    for number in range(sets.size):
        sets.learned(number)
    assert {name for name, _ in used["learned"]} == set(config.data.families)
    for name, puzzles in sets.scored.items():
        families = {puzzle.name for puzzle in puzzles}
        wanted = config.data.unseen_families if name == "unseen_families" else config.data.families
        assert families <= set(wanted)
    assert all(parameter in parameters(name, unseen=False) for name, parameter in used["learned"])
    shown = {puzzle.query[0].tobytes() for puzzles in sets.scored.values() for puzzle in puzzles}
    learned = {sets.learned(n).query[0].tobytes() for n in range(sets.size)}
    assert shown.isdisjoint(learned)


def slow_scores(predicted, answers):
    """Of grids as lists of rows, without canvases: None is where there is no cell."""
    solved, right, cells, differ = [], 0, 0, []
    for found, wanted in zip(predicted, answers, strict=True):
        wrong = 0
        for place in found.keys() | wanted.keys():
            same = found.get(place) == wanted.get(place)
            wrong += not same
            if place in wanted:
                cells, right = cells + 1, right + same
        solved.append(wrong == 0)
        differ.append(wrong)
    return [np.mean(solved), right / cells, np.mean(differ)]


@pytest.mark.needs("torchmetrics")
@pytest.mark.parametrize("size", [1, 2, 4])
def test_scores_are_those_of_a_slow_reference(size):
    """Random sizes of grids, canvases, batches and shares of the ranks."""
    from gear.train.tasks.puzzles.metrics import Solved

    rng = np.random.default_rng(size)
    for _ in range(5):
        side, number = int(rng.integers(5, 9)), 23
        answers, predicted = np.full((2, number, side, side), OUTSIDE)
        grids = {"answers": [], "predicted": []}
        for row in range(number):
            h, w = rng.integers(1, side - 2, 2)
            answers[row, :h, :w] = rng.integers(0, 10, (h, w))
            kind = row % 3
            predicted[row] = answers[row]
            if kind == 1:
                predicted[row, rng.integers(h), rng.integers(w)] = rng.integers(0, 11)
            if kind == 2:
                predicted[row, : h + 1, : w + 1] = rng.integers(0, 11, (h + 1, w + 1))
            for name, grid in (("answers", answers[row]), ("predicted", predicted[row])):
                there = {place: c for place, c in np.ndenumerate(grid) if c != OUTSIDE}
                grids[name].append(there)
        owners = rng.integers(0, size, number)
        owners[:size] = range(size)

        def of_rank(ranks, answers=answers, predicted=predicted, owners=owners):
            metric, mine = Solved(ranks), np.flatnonzero(owners == ranks.rank)
            for some in np.array_split(mine, 3):
                metric.update(torch.from_numpy(predicted[some]), torch.from_numpy(answers[some]))
            return metric.compute().tolist()

        expected = slow_scores(grids["predicted"], grids["answers"])
        assert 0 < expected[0] < 1
        assert on_threads(size, of_rank) == [pytest.approx(expected)] * size


@pytest.mark.needs("torchmetrics")
def test_sets_are_scored_by_name_and_alike_over_ranks(configure):
    config = configure(*SMALL)
    learner = Learner(config)
    algorithm = learner.algorithm
    found = Evaluation(config, learner.ranks).run(algorithm, lambda: False)
    names = [f"{name}_{score}" for name in learner.facts.scored for score in ("solved", "accuracy")]
    assert set(names) < set(found.scores)
    assert found.value == found.scores["seen_families_solved"]
    alone = algorithm.ready_to_play

    def score(ranks):
        one = SimpleNamespace(**vars(algorithm), answer=algorithm.answer, ready_to_play=alone)
        one._ranks = ranks
        one.score = partial(type(algorithm).score, one)
        return type(algorithm).scores(one)

    for size in (2, 4):
        assert on_threads(size, score) == [pytest.approx(found.scores)] * size
    learner.close()

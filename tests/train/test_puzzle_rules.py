"""The families of rules: each against a walk over the cells, and puzzles that follow from seeds."""

from __future__ import annotations

import numpy as np
import pytest

from gear.train.tasks.puzzles.families import FAMILIES, STEPS
from gear.train.tasks.puzzles.puzzle import generate

SIZES = {"least": 5, "most": 12, "pairs": 4}


def slow_recolour(parameter, given):
    return np.vectorize(lambda c: parameter[1] if c == parameter[0] else c)(given)


def slow_mirror(parameter, given):
    (height, width), turn = given.shape, parameter[0]
    places = (
        lambda r, c: (r, width - 1 - c),
        lambda r, c: (height - 1 - r, c),
        lambda r, c: (c, r),
        lambda r, c: (height - 1 - r, width - 1 - c),
        lambda r, c: (width - 1 - c, r),
        lambda r, c: (c, height - 1 - r),
        lambda r, c: (width - 1 - c, height - 1 - r),
    )
    found = np.full(given.shape if turn in (0, 1, 3) else given.shape[::-1], 99)
    for (r, c), colour in np.ndenumerate(given):
        found[places[turn](r, c)] = colour
    return found


def slow_move(parameter, given):
    (down, right), mover = STEPS[parameter[0]], parameter[1]
    found, moved = given.copy(), True
    while moved:
        moved = False
        for r, c in np.argwhere(found == mover):
            to = r + down, c + right
            if min(to) >= 0 and to[0] < len(given) and to[1] < given.shape[1] and not found[to]:
                found[to], found[r, c], moved = mover, 0, True
    return found


def reaches_edge(given, cell):
    seen, queue = {cell}, [cell]
    while queue:
        r, c = queue.pop()
        for to in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            if not (0 <= to[0] < given.shape[0] and 0 <= to[1] < given.shape[1]):
                return True
            if given[to] == 0 and to not in seen:
                seen.add(to)
                queue.append(to)
    return False


def slow_fill(parameter, given):
    found = given.copy()
    for cell, colour in np.ndenumerate(given):
        if colour == 0 and not reaches_edge(given, cell):
            found[cell] = parameter[1]
    return found


def slow_count(parameter, given):
    return np.full((1, (given == parameter[0]).sum()), parameter[1])


def slow_copy(parameter, given):
    found, pattern = given.copy(), given[:2, :2]
    for r, c in np.argwhere(given == parameter[0]).tolist():
        found[r : r + 2, c : c + 2] = pattern
    return found


def slow_extend(parameter, given):
    (down, right), colour = STEPS[parameter[0]], parameter[1]
    found = given.copy()
    for (r, c), there in np.ndenumerate(given):
        back = r - down, c - right
        while there == 0 and 0 <= back[0] < len(given) and 0 <= back[1] < given.shape[1]:
            if given[back]:
                found[r, c] = colour if given[back] == colour else 0
                break
            back = back[0] - down, back[1] - right
    return found


def slow_outline(parameter, given):
    found = given.copy()
    for (r, c), there in np.ndenumerate(given):
        near = given[max(0, r - 1) : r + 2, max(0, c - 1) : c + 2]
        if there == 0 and (near == parameter[0]).any():
            found[r, c] = parameter[1]
    return found


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_rule_does_what_it_says(family):
    """On grids of all sizes up to 30x30, with every parameter that a few draws give."""
    slow = globals()[f"slow_{family}"]
    for number, parameter in enumerate(FAMILIES[family].parameters[::5]):
        rng = np.random.default_rng(number)
        height, width = (30, 30) if number == 0 else rng.integers(5, 13, 2).tolist()
        given, wanted = FAMILIES[family].pair(parameter, height, width, rng)
        assert given.shape == (height, width)
        assert given.dtype == wanted.dtype == np.uint8
        assert max(wanted.shape) <= max(height, width)
        assert np.array_equal(wanted, slow(parameter, given)), (parameter, given, wanted)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_puzzle_follows_from_its_seed_and_shows_its_rule(family):
    made = [generate((seed, 0), [family], unseen=False, **SIZES) for seed in (1, 1, 2)]
    texts = [repr(puzzle) for puzzle in made]
    assert texts[0] == texts[1] != texts[2]
    for puzzle in made:
        assert len(puzzle.pairs) == 4
        assert all(not np.array_equal(given, wanted) for given, wanted in puzzle.pairs)
        assert len({given.tobytes() for given, _ in puzzle.pairs}) == 4

"""Checks of what the ranks of a group wrote down of a scenario; `ranks`: by rank."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

import numpy as np
from reference import difference

import gear
from distributed.content import SCHEMA, owner_of
from distributed.scenarios import Scenario
from distributed.single_rank import SLOT_MASK, Arrays, expected_batches, items_of

_expected: dict[tuple[str, int, str], list[Arrays | None]] = {}


def at_turn(arrays: Arrays, turn: int) -> Arrays | None:
    """What a rank got at that call of next; None: the end of an epoch."""
    start = f"{turn}/"
    found = {key[len(start) :]: value for key, value in arrays.items() if key.startswith(start)}
    del found["layout"]
    return found or None


def expected(scenario: Scenario, ranks: list[Arrays]) -> list[Arrays | None]:
    """The batches of one rank, computed once for all transports that stored alike."""
    layouts = [
        [{(uid, step): i & SLOT_MASK for uid, step, i in rank[f"{turn}/layout"].tolist()}
         for rank in ranks]
        for turn in range(scenario.batches)
    ]  # fmt: skip
    digest = hashlib.sha1(repr(layouts).encode()).hexdigest()
    key = (repr(scenario), len(ranks), digest)
    if key not in _expected:
        _expected[key] = expected_batches(scenario, len(ranks), iter(layouts))
    return _expected[key]


def places(numbers: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Where `numbers` stand in `of`, ascending: fails unless they are there in this order."""
    found, place = [], 0
    for number in numbers.tolist():
        while place < len(of) and of[place] != number:
            place += 1
        assert place < len(of), f"{number} is not where the single rank has it"
        found.append(place)
        place += 1
    return np.array(found, np.int64)


def check_draws(scenario: Scenario, ranks: list[Arrays]) -> None:
    """All ranks together have what one rank draws, and each has its share of it."""
    for turn, one in enumerate(expected(scenario, ranks)):
        got = [at_turn(rank, turn) for rank in ranks]
        if one is None:
            assert got == [None] * len(ranks), f"turn {turn}: the epoch ends on all ranks at once"
            continue
        numbers = [batch["data anchor"].reshape(-1) for batch in got]
        whole = one["data anchor"].reshape(-1)
        assert sorted(np.concatenate(numbers)) == sorted(whole), f"turn {turn}"
        for rank, mine in enumerate(numbers):
            share = len(whole) // len(ranks) + (rank < len(whole) % len(ranks))
            assert len(mine) == share, f"turn {turn}: {len(mine)} items on rank {rank}"
            places(mine, whole)
            if scenario.locality == "off" and len(whole) % len(ranks) == 0:
                assert np.array_equal(mine, whole[rank * share : (rank + 1) * share])


def check_batches(scenario: Scenario, ranks: list[Arrays]) -> None:
    """Data, masks, lengths, probabilities and weights are those of one rank, to the bit."""
    for turn, one in enumerate(expected(scenario, ranks)):
        for rank, arrays in enumerate(ranks):
            got = at_turn(arrays, turn)
            if one is None or got is None:
                continue
            chosen = places(got["data anchor"].reshape(-1), one["data anchor"].reshape(-1))
            wanted = items_of(one, chosen)
            assert set(wanted) | {"ids"} == set(got)
            for name, array in wanted.items():
                wrong = difference(got[name], array)
                assert wrong is None, f"turn {turn}, rank {rank}, {name}: {wrong}"


def check_ids(scenario: Scenario, ranks: list[Arrays]) -> None:
    """The ids of a batch that is drawn when it is asked for are ids that owners have just then."""
    known: set[int] = set()
    for turn in range(scenario.batches):
        for rank in ranks:
            known.update(rank[f"{turn}/layout"][:, 2].tolist())
        for arrays in ranks:
            got = at_turn(arrays, turn)
            if got is None:
                continue
            ids = got["ids"]
            assert np.array_equal(ids >> 50 & 0xFFF, owner_of(got["data anchor"].reshape(-1)))
            unit_bit = 1 << 62 if scenario.sampler.unit == "episode" else 0
            assert np.all(ids & 1 << 62 == unit_bit)
            assert set((ids & ~(1 << 62)).tolist()) <= known


def check_what_travels(scenario: Scenario, ranks: list[Arrays], *, padding: bool) -> None:
    """Owners keep what they can; the rest stays on their node if there is room; stats() say so.

    `padding`: rows of padding count in all bytes.
    """
    nodes = np.array(scenario.nodes(len(ranks)))
    reckoned = [Counter() for _ in ranks]
    for turn, one in enumerate(expected(scenario, ranks)):
        if one is None:
            continue
        got = [at_turn(rank, turn) for rank in ranks]
        owners = [owner_of(batch["data anchor"].reshape(-1)) for batch in got]
        if scenario.locality == "first":
            check_kept(owners, nodes)
        for rank, batch in enumerate(got):
            for owner, size in zip(owners[rank], item_bytes(scenario, batch), strict=True):
                near = "same_node" if nodes[owner] == nodes[rank] else "remote"
                reckoned[rank]["local" if owner == rank else near] += int(size)
    for rank, arrays in enumerate(ranks):
        stats = json.loads(str(arrays["stats"]))
        for near in ("local", "same_node", "remote"):
            assert stats[f"{near}_bytes"] == reckoned[rank][near], (rank, near, stats)
        if not padding:
            assert stats["bytes"] == sum(reckoned[rank].values())


def check_kept(owners: list[np.ndarray], nodes: np.ndarray) -> None:
    """As many items as can be are with their owners, and of the others on their owners' node."""
    size = len(owners)
    shares = np.array([len(of) for of in owners])
    moved = np.array([np.bincount(of, minlength=size) for of in owners])  # [consumer, owner]
    drawn = moved.sum(0)
    kept = np.minimum(drawn, shares)
    assert np.array_equal(np.diag(moved), kept)
    surplus, lack = drawn - kept, shares - kept
    for node in set(nodes.tolist()):
        here = nodes == node
        within = moved[np.ix_(here, here)].sum() - kept[here].sum()
        assert within == min(surplus[here].sum(), lack[here].sum())


def item_bytes(scenario: Scenario, batch: Arrays) -> np.ndarray:
    """Bytes of rows of every item."""
    total = np.zeros(len(batch["ids"]), np.int64)
    for name, output in scenario.outputs.items():
        if isinstance(output, gear.Derived):  # read from no page
            continue
        column = SCHEMA[output.column or name]
        array = batch[f"data {name}"]
        row = array.itemsize * int(np.prod(column.shape))
        total += batch[f"lengths {name}"].astype(np.int64) * row
    return total

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


def dealt(owners: np.ndarray, nodes: np.ndarray, locality: str) -> list[np.ndarray]:
    """Which draws each rank receives, in the order of its batch, dealt one by one."""
    ranks = range(len(nodes))
    share = [len(owners) // len(nodes) + (rank < len(owners) % len(nodes)) for rank in ranks]
    draws = list(range(len(owners)))
    if locality == "off":
        ends = np.cumsum(share)
        return [np.arange(end - items, end) for end, items in zip(ends, share, strict=True)]
    drawn = [[draw for draw in draws if owners[draw] == rank] for rank in ranks]
    batches = [own[:items] for own, items in zip(drawn, share, strict=True)]
    surplus = [own[items:] for own, items in zip(drawn, share, strict=True)]
    for may_take in (lambda giver, taker: nodes[giver] == nodes[taker], lambda *_: True):
        for giver in ranks:
            takers = [rank for rank in ranks if may_take(giver, rank)]
            free = [rank for rank in takers for _ in range(share[rank] - len(batches[rank]))]
            for draw, taker in zip(surplus[giver], free, strict=False):
                batches[taker].append(draw)
            surplus[giver] = surplus[giver][len(free) :]
    assert not any(surplus)
    return [np.array(batch, np.int64) for batch in batches]


def dealt_among(scenario: Scenario, whole: np.ndarray, ranks: int) -> list[np.ndarray]:
    nodes = np.array(scenario.nodes(ranks))
    return dealt(owner_of(whole), nodes, scenario.locality)


def check_draws(scenario: Scenario, ranks: list[Arrays]) -> None:
    """All ranks together have what one rank draws, and each has what is dealt to it."""
    for turn, one in enumerate(expected(scenario, ranks)):
        got = [at_turn(rank, turn) for rank in ranks]
        if one is None:
            assert got == [None] * len(ranks), f"turn {turn}: the epoch ends on all ranks at once"
            continue
        numbers = [batch["data anchor"].reshape(-1) for batch in got]
        whole = one["data anchor"].reshape(-1)
        assert sorted(np.concatenate(numbers)) == sorted(whole), f"turn {turn}"
        for rank, draws in enumerate(dealt_among(scenario, whole, len(ranks))):
            assert numbers[rank].tolist() == whole[draws].tolist(), f"turn {turn}, rank {rank}"


def check_batches(scenario: Scenario, ranks: list[Arrays]) -> None:
    """Data, masks, lengths, probabilities and weights are those of one rank, to the bit."""
    for turn, one in enumerate(expected(scenario, ranks)):
        if one is None:
            continue
        dealt_to = dealt_among(scenario, one["data anchor"].reshape(-1), len(ranks))
        for rank, arrays in enumerate(ranks):
            got = at_turn(arrays, turn)
            if got is None:
                continue
            wanted = items_of(one, dealt_to[rank])
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


def check_what_travels(
    scenario: Scenario, ranks: list[Arrays], *, padding: bool, path: str
) -> None:
    """Owners keep what they can; the rest stays on their node if there is room; stats() say so.

    `padding`: rows of padding count in all bytes, and where a GPU selects, in their parts.
    `path`: how rows come that are not mapped.
    """
    nodes = np.array(scenario.nodes(len(ranks)))
    reckoned = [Counter() for _ in ranks]
    all_stats = [json.loads(str(arrays["stats"])) for arrays in ranks]
    for turn, one in enumerate(expected(scenario, ranks)):
        if one is None:
            continue
        got = [at_turn(rank, turn) for rank in ranks]
        owners = [owner_of(batch["data anchor"].reshape(-1)) for batch in got]
        if scenario.locality == "first":
            check_kept(owners, nodes)
        for rank, batch in enumerate(got):
            padded = all_stats[rank]["selection"] == "device"
            sizes = item_bytes(scenario, batch, padded=padded)
            for owner, size in zip(owners[rank], sizes, strict=True):
                near = "same_node" if nodes[owner] == nodes[rank] else "remote"
                reckoned[rank]["local" if owner == rank else near] += int(size)
    for rank, stats in enumerate(all_stats):
        for near in ("local", "same_node", "remote"):
            assert stats[f"{near}_bytes"] == reckoned[rank][near], (rank, near, stats)
        travelled = stats["message_bytes"] + stats["one_sided_bytes"]
        assert stats["remote_path"] == (path if travelled else "")
        assert stats["pack_below"] == 64 or not stats["one_sided_bytes"]
        assert stats["packed_bytes"] in (0, stats["one_sided_bytes"])
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


def item_bytes(scenario: Scenario, batch: Arrays, *, padded: bool) -> np.ndarray:
    """Bytes of rows of every item; of all rows of its windows, if `padded`."""
    total = np.zeros(len(batch["ids"]), np.int64)
    for name, output in scenario.outputs.items():
        if isinstance(output, gear.Derived):  # read from no page
            continue
        column = SCHEMA[output.column or name]
        array = batch[f"data {name}"]
        row = array.itemsize * int(np.prod(column.shape))
        rows = array.nbytes // (row * len(total)) if padded else batch[f"lengths {name}"]
        total += np.asarray(rows, np.int64) * row
    return total

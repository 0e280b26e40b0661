"""Priorities given as tensors of torch: of every kind, or refused."""

from __future__ import annotations

import numpy as np
import pytest

import gear

torch = pytest.importorskip("torch")

SCHEMA = gear.Schema([gear.Column("x", (), "int32")])


def write(buffer: gear.ReplayBuffer, priorities: list[float]) -> None:
    """An ended episode."""
    with buffer.writer() as writer:
        writer.extend(x=np.arange(len(priorities), dtype=np.int32), priority=priorities)
        writer.end_episode()


TENSORS = {
    "float32": lambda values: values,
    "float64": lambda values: values.double(),
    "float16": lambda values: values.half(),
    "bfloat16": lambda values: values.bfloat16(),
    "int64": lambda values: values.long(),
    "with a gradient": lambda values: values.clone().requires_grad_(),
    "strided": lambda values: values.repeat_interleave(2)[::2],
    "of one step, negated lazily": lambda values: torch.complex(values, -values)[:1].conj().imag,
    "a parameter": torch.nn.Parameter,
}


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("strided_ids", [False, True])
def test_priorities_may_be_tensors_of_any_real_kind(tier, kind: str, strided_ids: bool) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        write(buffer, [9.0] * 4)
        priorities = TENSORS[kind](torch.tensor([1.0, 2.0, 4.0, 8.0]))
        ids = torch.from_numpy(buffer.episodes()[0].ids.copy())[: len(priorities)]
        given = ids.repeat_interleave(2)[::2] if strided_ids else ids
        assert buffer.update(given, priorities) == len(priorities)
        assert list(buffer.priorities(ids)) == [1.0, 2.0, 4.0, 8.0][: len(priorities)]


OF_ANOTHER_RANK = 4095 << 50


@pytest.mark.parametrize(
    ("ids_of", "priorities", "words"),
    [
        (lambda ids: ids, torch.ones(3), "one priority an id"),
        (lambda ids: ids[:, None], torch.ones((2, 1)), "int64 of one dimension"),
        (lambda ids: ids.int(), torch.ones(2), "int64 of one dimension"),
        (lambda ids: ids, torch.ones(2, dtype=torch.complex64), "real numbers"),
        (lambda ids: ids, torch.tensor([1.0, float("nan")]), "position 1"),
        (lambda ids: ids, torch.tensor([1.0, -1.0]), "position 1"),
        (lambda ids: ids | torch.tensor([0, OF_ANOTHER_RANK]), torch.ones(2), "not of this buffer"),
    ],
)
def test_tensors_that_are_no_update_change_nothing(tier, ids_of, priorities, words: str) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        write(buffer, [9.0] * 4)
        stored = buffer.episodes()[0].ids
        with pytest.raises(gear.InvalidArgument, match=words):
            buffer.update(ids_of(torch.from_numpy(stored[:2].copy())), priorities)
        assert list(buffer.priorities(stored)) == [9.0] * 4


@pytest.mark.parametrize("convert", [lambda values: values, lambda values: values.double()])
def test_a_tensor_whose_memory_is_gone_is_refused(tier, convert) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        write(buffer, [9.0] * 4)
        ids = torch.from_numpy(buffer.episodes()[0].ids.copy())
        freed = convert(torch.ones(4))
        freed.untyped_storage().resize_(0)
        with pytest.raises(gear.InvalidArgument, match="without memory"):
            buffer.update(ids, freed)
        gone = ids.clone()
        gone.untyped_storage().resize_(0)
        with pytest.raises(gear.InvalidArgument, match="without memory"):
            buffer.update(gone, torch.ones(4))
        assert list(buffer.priorities(ids)) == [9.0] * 4


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.ones(4).to_sparse(), "give a dense one"),
        (lambda: torch.ones(4, device="meta"), "without memory"),
    ],
    ids=["sparse", "meta"],
)
def test_a_tensor_that_is_no_array_is_refused(tier, make, words: str) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        write(buffer, [9.0] * 4)
        ids = torch.from_numpy(buffer.episodes()[0].ids.copy())
        with pytest.raises(gear.InvalidArgument, match=words):
            buffer.update(ids, make())
        assert list(buffer.priorities(ids)) == [9.0] * 4


def test_ids_that_torch_negates_lazily_are_resolved(tier) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        write(buffer, [9.0] * 4)
        ids = torch.from_numpy(buffer.episodes()[0].ids.copy())
        assert buffer.update(torch._neg_view(-ids), torch.ones(4)) == 4
        assert list(buffer.priorities(ids)) == [1.0] * 4


def test_zeros_that_torch_only_remembers_are_zeros(tier) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        write(buffer, [9.0] * 4)
        ids = torch.from_numpy(buffer.episodes()[0].ids.copy())
        assert buffer.update(ids, torch._efficientzerotensor(4)) == 4
        assert list(buffer.priorities(ids)) == [0.0] * 4
        assert buffer.update(ids[:0], torch.empty(0)) == 0

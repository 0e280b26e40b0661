"""Steps whose every value follows from their number: any batch can be checked by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import gear

# Rows of 8, 44, 48 and 1 bytes: a 44-byte row is moved by 4-byte vectors, a 1-byte one by bytes.
COLUMNS = [
    gear.Column("number", (), "int64"),
    gear.Column("obs", (11,), "float32"),
    gear.Column("frame", (4, 4, 3), "uint8"),
    gear.Column("done", (), "bool"),
]
SCHEMA = gear.Schema(COLUMNS)


def rows(numbers: np.ndarray) -> dict[str, np.ndarray]:
    """The values of the steps of these numbers, of any shape; of number 0 they are all zero."""
    n = np.asarray(numbers, np.int64)
    obs = (n[..., None] * np.arange(3, 14) % 16_777_213).astype(np.float32)
    frame = (n[..., None] * np.arange(5, 53) % 251).astype(np.uint8)
    done = n % 3 == 1
    return {"number": n, "obs": obs, "frame": frame.reshape(*n.shape, 4, 4, 3), "done": done}


def write(
    buffer: gear.ReplayBuffer, first: int, lengths: list[int], rng: np.random.Generator
) -> int:
    """Ended episodes of these lengths with random priorities; numbers from `first` (1 or more) on.
    Returns the number after the last."""
    for length in lengths:
        writer = buffer.writer()
        priority = rng.random(length, np.float32) * 4
        writer.extend(priority=priority, **rows(np.arange(first, first + length)))
        writer.end_episode(terminated=True)
        first += length
    return first


def check(batch: Mapping[str, np.ndarray], masks: Mapping[str, np.ndarray] | None = None) -> None:
    """Every output follows from the batch's own numbers; padding is zero. All outputs of one
    window, "number" among them."""
    numbers = batch["number"]
    expected = rows(numbers)
    for name in batch:
        column = name.split("@")[0]
        assert np.array_equal(batch[name], expected[column]), name
        if masks is not None:
            assert np.array_equal(masks[name], numbers > 0), name


def outputs(start: int, stop: int, pad: str = "both") -> dict[str, Any]:
    return {column.name: gear.Window(start, stop, pad=pad) for column in COLUMNS}

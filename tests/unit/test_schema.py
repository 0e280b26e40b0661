"""Column and Schema: what they say, and what they refuse."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import gear

OBS = gear.Column("obs", (17,), "float32")
DONE = gear.Column("done", (), "bool")
BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4,
    "uint64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip


def test_defaults_and_identity() -> None:
    assert gear.Column("reward") == gear.Column("reward", (), "float32")
    assert gear.Column("x", [2, 3], "int8").shape == (2, 3)
    assert gear.Column("x", (2,), np.float32).dtype == "float32"
    assert gear.Column("x", (2,), np.dtype("u1")).dtype == "uint8"
    with pytest.raises(dataclasses.FrozenInstanceError):
        OBS.name = "other"


@pytest.mark.parametrize("dtype", list(BYTES))
def test_step_bytes(dtype: str) -> None:
    assert gear.Schema([gear.Column("x", (), dtype)]).step_bytes == BYTES[dtype]
    assert gear.Schema([gear.Column("x", (3, 5), dtype), DONE]).step_bytes == 15 * BYTES[dtype] + 1


def test_access() -> None:
    schema = gear.Schema([OBS, DONE])
    assert schema.columns == (OBS, DONE)
    assert list(schema) == [OBS, DONE]
    assert schema["done"] is DONE
    assert "obs" in schema
    assert "action" not in schema
    with pytest.raises(gear.InvalidArgument, match=r"'action'.*obs, done"):
        schema["action"]


def test_equality_and_hash_cover_everything() -> None:
    schemas = [
        gear.Schema([OBS, DONE]),
        gear.Schema([DONE, OBS]),
        gear.Schema([OBS]),
        gear.Schema([gear.Column("obs2", (17,), "float32"), DONE]),
        gear.Schema([gear.Column("obs", (18,), "float32"), DONE]),
        gear.Schema([gear.Column("obs", (17, 1), "float32"), DONE]),
        gear.Schema([gear.Column("obs", (1, 7), "float32"), DONE]),
        gear.Schema([gear.Column("obs", (17,), "int32"), DONE]),
    ]
    assert len({schema.hash for schema in schemas}) == len(schemas)
    assert all(len(schema.hash) == 16 and int(schema.hash, 16) >= 0 for schema in schemas)
    assert all((a == b) == (a is b) for a in schemas for b in schemas)
    assert gear.Schema([OBS, DONE]) == schemas[0]
    assert gear.Schema(iter([OBS, DONE])).hash == schemas[0].hash
    assert schemas[0] != "schema"


def test_the_hash_is_part_of_the_format() -> None:
    """FNV-1a of one line a column, as docs/format.md says."""
    text = "obs float32 17\ndone bool \n"
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    assert gear.Schema([OBS, DONE]).hash == f"{value:016x}"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], r"0 columns.*1 to 64"),
        ([gear.Column(f"c{i}") for i in range(65)], r"65 columns.*1 to 64"),
        ([OBS, OBS], r"'obs'.*twice"),
        ([gear.Column("")], r"''.*letters"),
        ([gear.Column("a b")], r"'a b'.*letters"),
        ([gear.Column("1st")], r"'1st'.*letters"),
        ([gear.Column("ä")], r"'ä'.*letters"),
        ([gear.Column("a\n")], r"'a\n'.*letters"),
        ([gear.Column("x" * 64)], r"x{64}.*63"),
        ([gear.Column("priority")], r"'priority'.*rename"),
        ([gear.Column("x", (0,))], r"'x'.*\(0\).*1 or more"),
        ([gear.Column("x", (2, -1))], r"'x'.*\(2, ?-1\).*1 or more"),
        ([gear.Column("x", (1 << 31, 2))], r"'x'.*4 GiB"),
        ([gear.Column("x", (1 << 62, 1 << 62))], r"'x'.*4 GiB"),
        ([gear.Column("x", (), "float8")], r"float8.*float32"),
        ([gear.Column("x", (), "complex64")], r"complex64.*float32"),
        (["obs"], r"'obs'.*Column"),
        ([("obs", (3,), "float32")], r"obs.*Column"),
    ],
)
def test_refused(columns: list[gear.Column], message: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=rf"(?s)^\[\w+\] .*{message}"):
        gear.Schema(columns)


@pytest.mark.parametrize("shape", [3, "3", (2.5,), None])
def test_refused_shapes(shape: object) -> None:
    with pytest.raises(gear.InvalidArgument, match=r"'x'.*tuple"):
        gear.Schema([gear.Column("x", shape)])


def test_up_to_64_columns_and_odd_names() -> None:
    names = ["_", "A", "obs/left.eye-0", "x" * 63]
    columns = [gear.Column(name) for name in names] + [gear.Column(f"c{i}") for i in range(60)]
    schema = gear.Schema(columns)
    assert len(schema.columns) == 64
    with gear.ReplayBuffer(schema, 16) as buffer, buffer.writer() as writer:
        values = {column.name: float(i) for i, column in enumerate(columns)}
        writer.append(**values)
        final = {name: value + 1 for name, value in list(values.items())[::3]}
        writer.end_episode(final=final)
        outputs = {name: gear.Window(0, 2) for name in values}
        batch = buffer.collect(buffer.episodes()[0].ids, outputs, framework="numpy")
        for name, value in values.items():
            assert batch[name].tolist() == [[value, final.get(name, 0.0)]]
            assert batch.masks[name].tolist() == [[True, name in final]]

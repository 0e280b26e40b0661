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


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("f4", "float32"),
        ("<i2", "int16"),
        ("?", "bool"),
        ("half", "float16"),
        (float, "float64"),
        (int, "int64"),
        (bool, "bool"),
        (np.uint16, "uint16"),
        (np.dtype(np.int32), "int32"),
        (np.str_("int8"), "int8"),
    ],
)
def test_dtypes_have_the_names_of_other_libraries_too(dtype: object, name: str) -> None:
    assert gear.Column("x", (), dtype) == gear.Column("x", (), name)
    assert gear.Schema([gear.Column("x", (), dtype)]).step_bytes == BYTES[name]


@pytest.mark.parametrize("name", list(BYTES))
def test_dtypes_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    assert gear.Column("x", (), getattr(torch, name)) == gear.Column("x", (), name)


def test_outputs_take_the_same_dtypes() -> None:
    with gear.ReplayBuffer(gear.Schema([gear.Column("x", (), "u1")]), 16) as buffer:
        with buffer.writer() as writer:
            writer.append(x=3)
            writer.end_episode()
        ids = buffer.episodes()[0].ids
        for dtype in ("float32", "f4", np.float32, np.dtype("f4")):
            outputs = {"x": gear.Step(dtype=dtype), "w": gear.Window(0, 1, "x", dtype=dtype)}
            batch = buffer.collect(ids, outputs, framework="numpy")
            assert batch["x"].dtype == batch["w"].dtype == np.float32
        for dtype in ("float8", 3, float, ">f4"):
            with pytest.raises(gear.InvalidArgument):
                buffer.collect(ids, {"x": gear.Step(dtype=dtype)})


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
        ([gear.Column("x", (), np.complex64)], r"'complex64'.*float32"),
        ([gear.Column("x", (), complex)], r"'complex'.*float32"),
        ([gear.Column("x", (), ">f4")], r"'>f4'.*float32"),
        ([gear.Column("x", (), "U3")], r"'U3'.*float32"),
        ([gear.Column("x", (), None)], r"'None'.*float32"),
        ([gear.Column("x", (), object)], r"'object'.*float32"),
        ([gear.Column("obs/left"), gear.Column("obs")], r"'obs' and 'obs/left'.*rename"),
        ([gear.Column("a/b"), DONE, gear.Column("a/b/c/d")], r"'a/b' and 'a/b/c/d'.*rename"),
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


def test_folders_and_columns_of_like_names_stand_side_by_side() -> None:
    columns = [gear.Column(name) for name in ("obs/left", "obs/right", "obs2", "obs.left", "obs-")]
    assert gear.Schema(columns).columns == tuple(columns)


def test_steps_stored_under_names_that_are_refused_by_now_are_still_there(tmp_path) -> None:
    schema = gear.Schema.stored([("a", [], "int8"), ("a/b", [2], "int8")])
    with gear.ReplayBuffer(schema, 16) as buffer:
        with buffer.writer() as writer:
            writer.append(**{"a": 1, "a/b": np.array([2, 3], np.int8)})
            writer.end_episode()
        buffer.save(tmp_path / "replay")
    with gear.ReplayBuffer.load(tmp_path / "replay") as buffer:
        assert buffer.schema == schema
        assert buffer.schema.columns == (gear.Column("a", (), "int8"), schema["a/b"])
        batch = buffer.collect(buffer.episodes()[0].ids, framework="numpy")
        assert batch["a/b"].tolist() == [[2, 3]]


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

"""NumPy, torch (by DLPack) and Python values in; NumPy and torch out; all bits as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from places import as_numpy
from reference import DTYPES, Column, difference
from script import random_values

import gear

torch = pytest.importorskip("torch")

TORCH_DTYPES = {name: getattr(torch, name) for name in DTYPES}


def as_torch(array: np.ndarray, dtype: str) -> Any:
    bits = np.array(array)
    if dtype == "bfloat16":
        return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(bits)


@pytest.mark.parametrize("shape", [(), (1,), (3, 4), (84, 84)])
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_every_dtype_in_and_out(tier, dtype: str, shape: tuple[int, ...]) -> None:
    column = Column("x", shape, dtype)
    rows = random_values(np.random.default_rng(0), column, 13)
    with tier.buffer(gear.Schema([gear.Column("x", shape, dtype)]), 64, page_steps=5) as buffer:
        with buffer.writer() as writer:
            writer.extend(x=rows)
        with buffer.writer() as writer:
            writer.extend(x=as_torch(rows, dtype))
        with buffer.writer() as writer:
            for row in rows:
                writer.append(x=row)
        with buffer.writer() as writer:
            for row in as_torch(rows, dtype):
                writer.append(x=row)
        for episode in buffer.episodes():
            out = buffer.collect(
                episode.ids, {"x": gear.Step(), "w": gear.Window(0, 2, "x")}, framework="numpy"
            )
            assert difference(out["x"], rows) is None
            assert difference(out["w"][:, 0], rows) is None
            out = buffer.collect(episode.ids, framework="torch")
            assert out["x"].dtype == TORCH_DTYPES[dtype]
            assert out["x"].is_contiguous()
            assert difference(as_numpy(out["x"]), rows) is None


def test_arrays_that_are_not_contiguous(tier) -> None:
    schema = gear.Schema([gear.Column("x", (4, 6), "float32")])
    rng = np.random.default_rng(0)
    base = rng.random((20, 12, 8), np.float32)
    rows = base[::2, ::2, ::2].transpose(0, 2, 1)
    reversed_rows = rows[::-1, ::-1]
    fortran = np.asfortranarray(rows)
    with tier.buffer(schema, 256) as buffer:
        for value in (rows, reversed_rows, fortran):
            with buffer.writer() as writer:
                writer.extend(x=value)
                for row in value:
                    writer.append(x=row)
            ids = buffer.episodes()[-1].ids
            out = buffer.collect(ids, framework="numpy")["x"]
            assert np.array_equal(out, np.concatenate([value, value]))
        tensor = torch.from_numpy(base)[::2, ::2, ::2].transpose(1, 2)
        grad = torch.from_numpy(np.ascontiguousarray(rows)).requires_grad_()
        expanded = torch.ones(1, 1).expand(4, 6)
        with buffer.writer() as writer:
            writer.extend(x=tensor)
            writer.extend(x=grad)
            writer.append(x=expanded)
        out = buffer.collect(buffer.episodes()[-1].ids, framework="numpy")["x"]
        assert np.array_equal(out, np.concatenate([rows, rows, np.ones((1, 4, 6), np.float32)]))


def test_input_is_copied_at_once(tier) -> None:
    with tier.buffer(gear.Schema([gear.Column("x", (2,), "float64")]), 64) as buffer:
        value = np.array([1.0, 2.0])
        with buffer.writer() as writer:
            writer.append(x=value)
            value[:] = 9
            writer.append(x=value)
        out = buffer.collect(buffer.episodes()[0].ids, framework="numpy")["x"]
        assert out.tolist() == [[1, 2], [9, 9]]


@pytest.mark.parametrize(
    ("dtype", "value", "stored"),
    [
        ("float32", 0.1, np.float32(0.1)),
        ("float32", 3, np.float32(3)),
        ("float32", np.float64(0.1), np.float32(0.1)),
        ("float64", 1e300, np.float64(1e300)),
        ("float16", 0.1, np.float16(0.1)),
        ("float16", 3, np.float16(3)),
        ("bfloat16", 1.0, np.uint16(0x3F80)),
        ("bfloat16", 3.14159, np.uint16(0x4049)),
        ("bfloat16", -0.0, np.uint16(0x8000)),
        ("bool", True, np.True_),
        ("bool", np.False_, np.False_),
        ("int8", -128, np.int8(-128)),
        ("uint8", 255, np.uint8(255)),
        ("int64", -(1 << 63), np.int64(-(1 << 63))),
        ("uint64", (1 << 64) - 1, np.uint64((1 << 64) - 1)),
        ("int64", np.int64(7), np.int64(7)),
        ("uint16", np.array(7, np.uint16), np.uint16(7)),
    ],
)
def test_python_scalars(tier, dtype: str, value: Any, stored: Any) -> None:
    with tier.buffer(gear.Schema([gear.Column("x", (), dtype)]), 64) as buffer:
        with buffer.writer() as writer:
            writer.append(x=value)
        out = buffer.collect(buffer.episodes()[0].ids, framework="numpy")["x"]
        assert difference(out, np.array([stored])) is None


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint8", 256),
        ("uint8", -1),
        ("int8", 128),
        ("int32", 1.0),
        ("int32", 1 << 31),
        ("uint64", -1),
        ("uint64", 1 << 64),
        ("int64", 1 << 63),
        ("bool", 1),
        ("bool", 0.0),
        ("float32", True),
        ("int8", [300]),
        ("uint8", torch.tensor(1.5)),
        ("float32", torch.tensor(1e300, dtype=torch.float64)),
        ("float32", torch.tensor(1.5).bfloat16()),
        ("float32", 1e300),
        ("float32", np.float64(-1e39)),
        ("float32", np.array(1e39)),
        ("float16", 65520.0),
        ("float16", -70000),
        ("float16", np.float32(65520)),
        ("bfloat16", 3.4e38),
        ("bfloat16", np.float32(3.4e38)),
        ("float32", 1j),
        ("float32", "1"),
        ("uint8", b"1"),
        ("float32", np.datetime64("2020-01-01")),
        ("float32", Ellipsis),
    ],
    ids=repr,
)
def test_values_that_do_not_fit(tier, dtype: str, value: Any) -> None:
    with tier.buffer(gear.Schema([gear.Column("x", (), dtype)]), 64) as buffer:
        with buffer.writer() as writer:
            with pytest.raises(gear.InvalidArgument, match=rf"'x' takes {dtype}"):
                writer.append(x=value)
            assert writer.episode is None
        assert len(buffer) == buffer.num_episodes == 0


# The least numbers that are rounded to infinity.
HEX = {"float16": "0x1.ffep15", "bfloat16": "0x1.feffffp127", "float32": "0x1.ffffffp127"}
LARGEST = {dtype: float.fromhex(text) for dtype, text in HEX.items()}


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        halves = torch.from_numpy(values.astype(np.float32)).bfloat16()
        bits = halves.view(torch.int16).numpy().view(np.uint16)
        return np.where(np.isnan(values), np.uint16(0x7FC0), bits)
    return values.astype(dtype)


@pytest.mark.parametrize("given", ["float16", "float32", "float64"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floats_of_another_width_are_rounded(tier, dtype: str, given: str) -> None:
    rng = np.random.default_rng(0)
    scales = np.exp2(rng.integers(-24, 15, 64))
    values = (rng.normal(size=(64, 2)) * scales[:, None]).astype(given)
    values[:4] = [[np.nan, np.inf], [-np.inf, -0.0], [0.1, 1e-7], [65504, -65504]]
    wanted = rounded(values, dtype)
    with tier.buffer(gear.Schema([gear.Column("x", (2,), dtype)]), 512) as buffer:
        with buffer.writer() as writer:
            writer.extend(x=values)
            writer.extend(x=np.asfortranarray(values))
            writer.extend(x=torch.from_numpy(values))
            for row in values:
                writer.append(x=row)
            writer.end_episode(final={"x": values[5]})
        (episode,) = buffer.episodes()
        batch = buffer.collect(episode.ids, {"x": gear.Window(0, 2)}, framework="numpy")
        assert difference(batch["x"][:, 0], np.concatenate([wanted] * 4)) is None
        assert difference(batch["x"][-1, 1], wanted[5]) is None


@pytest.mark.parametrize("dtype", LARGEST)
def test_a_finite_number_does_not_become_infinite(tier, dtype: str) -> None:
    largest = np.nextafter(LARGEST[dtype], 0)
    rows = np.full((9, 2), -largest)
    with tier.buffer(gear.Schema([gear.Column("x", (2,), dtype)]), 64) as buffer:
        with buffer.writer() as writer:
            writer.extend(x=rows)
            stored = buffer.collect(buffer.episodes()[0].ids, framework="numpy")["x"]
            assert difference(stored, rounded(rows, dtype)) is None
            rows[3, 1] = -LARGEST[dtype]
            said = rf"'x' takes {dtype} .*; given {-LARGEST[dtype]!r} in row 3, .* infinite"
            for wrong in (rows, torch.from_numpy(rows)):
                with pytest.raises(gear.InvalidArgument, match=said.replace("+", r"\+")):
                    writer.extend(x=wrong)
            with pytest.raises(gear.InvalidArgument, match="infinite"):
                writer.append(x=rows[3])
            with pytest.raises(gear.InvalidArgument, match="infinite"):
                writer.end_episode(final={"x": rows[3]})
        assert len(buffer) == 9


def test_a_batch_has_torch_tensors_of_these_shapes_and_dtypes(tier) -> None:
    schema = gear.Schema([gear.Column("x", (2,), "float32"), gear.Column("y", (), "int8")])
    with tier.buffer(schema, 64) as buffer:
        with buffer.writer() as writer:
            writer.extend(x=np.ones((9, 2), np.float32), y=np.arange(9, dtype=np.int8))
        ids = buffer.episodes()[0].ids
        outputs = {"y": gear.Step(1), "x": gear.Window(-2, 1), "again": gear.Step(0, "x")}
        batch = buffer.collect(ids, outputs)
        assert isinstance(batch["x"], torch.Tensor), "torch is the default where it is installed"
        assert list(batch) == ["y", "x", "again"]
        assert (len(batch), batch.size) == (3, 9)
        shapes = {name: tuple(batch[name].shape) for name in batch}
        assert shapes == {"y": (9,), "x": (9, 3, 2), "again": (9, 2)}
        assert batch.ids.dtype == torch.int64
        assert batch.probabilities.dtype == batch.weights.dtype == torch.float32
        assert {name: tuple(m.shape) for name, m in batch.masks.items()} == {
            "y": (9,),
            "x": (9, 3),
            "again": (9,),
        }
        assert all(mask.dtype == torch.bool for mask in batch.masks.values())
        assert all(length.dtype == torch.int32 for length in batch.lengths.values())
        assert batch.masks["y"].tolist() == [True] * 8 + [False]
        assert batch["y"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 0]
        assert "nothing" not in batch
        assert "nothing" not in batch.masks
        with pytest.raises(KeyError):
            batch["nothing"]
        packed = buffer.collect(ids, outputs, packed=True, framework="numpy")
        assert packed["x"].shape == (24, 2)
        assert packed["y"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
        assert packed.cu_seqlens["x"].tolist() == [0, 1, 3, 6, 9, 12, 15, 18, 21, 24]
        with pytest.raises(gear.InvalidArgument, match="packed"):
            packed.masks["x"]
        with pytest.raises(gear.InvalidArgument, match="packed"):
            batch.cu_seqlens["x"]


def test_dlpack_consumers_share_the_memory(tier) -> None:
    with tier.buffer(gear.Schema([gear.Column("x", (4,), "float32")]), 64) as buffer:
        with buffer.writer() as writer:
            writer.extend(x=np.ones((9, 4), np.float32))
        batch = buffer.collect(buffer.episodes()[0].ids, framework="torch")
        consumer = torch if tier.delivers_to_gpu else np
        view = consumer.from_dlpack(batch["x"])
        batch["x"][0, 0] = 5
        assert view[0, 0] == 5
        ids = torch.from_numpy(buffer.episodes()[0].ids)
        assert buffer.update(ids, torch.full((9,), 2.0, requires_grad=True)) == 9
        assert buffer.collect(ids)["x"].shape == (9, 4)

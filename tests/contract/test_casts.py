"""Outputs of another dtype than the column's: value times scale in float32, rounded to nearest."""

from __future__ import annotations

import numpy as np
import pytest
from reference import DTYPES, difference

import gear

SCALES = [1.0, 1 / 255, -2.5, 3e-8, 1e30]


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Bits of the nearest bfloat16, ties to even; a NaN stays one."""
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), bits >> 16 | 0x40, rounded).astype(np.uint16)


def expected(values: np.ndarray, dtype: str, scale: float) -> np.ndarray:
    with np.errstate(all="ignore"):
        scaled = values.astype(np.float32) * np.float32(scale)
        return to_bfloat16(scaled) if dtype == "bfloat16" else scaled.astype(DTYPES[dtype])


def is_nan(values: np.ndarray) -> np.ndarray:
    if values.dtype == np.uint16:
        return (values & 0x7FFF) > 0x7F80
    return np.isnan(values)


def check(got: np.ndarray, values: np.ndarray, dtype: str, scale: float) -> None:
    """To the bit, but for the payloads of NaNs."""
    wanted = expected(values, dtype, scale)
    assert np.array_equal(is_nan(got), is_nan(wanted))
    one, other = (
        np.where(is_nan(wanted), 0, array).astype(wanted.dtype) for array in (got, wanted)
    )
    assert difference(one, other) is None


def floats() -> np.ndarray:
    """Every kind of float32: any bits, and neighbours of halfway points of float16 and bfloat16."""
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0, 65519.9, 65520.0, 2.0**-24, 2.0**-25]
    special += [2.0**-14, 2.0**-14 - 2.0**-25, 1e-45, 3.4e38]
    halfway = []
    for keep in (13, 16):
        tops = rng.integers(0, 1 << 32, 700, np.uint32) >> keep << keep
        halfway += [
            tops | 1 << (keep - 1),
            tops | (1 << (keep - 1)) + 1,
            tops | (1 << keep - 1) - 1,
        ]
    bits = [rng.integers(0, 1 << 32, 3000, np.uint32), *halfway]
    drawn = np.concatenate(bits).astype(np.uint32).view(np.float32)
    return np.concatenate([np.array(special, np.float32), drawn])


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(), (3,), (4, 16), (84,)])
def test_pixels(tier, shape: tuple[int, ...], dtype: str, scale: float) -> None:
    schema = gear.Schema([gear.Column("x", shape, "uint8"), gear.Column("y", (5,), "uint8")])
    count = 256
    values = (np.arange(count * int(np.prod(shape, dtype=int))) * 7 % 256).astype(np.uint8)
    values = values.reshape(count, *shape)
    with tier.buffer(schema, 512, page_steps=9) as buffer:
        with buffer.writer() as writer:
            writer.extend(x=values, y=np.zeros((count, 5), np.uint8))
        ids = buffer.episodes()[0].ids
        outputs = {
            "x": gear.Step(dtype=dtype, scale=scale),
            "stack": gear.Window(-2, 1, "x", dtype=dtype, scale=scale),
            "plain": gear.Step(column="x"),
            "y": gear.Step(dtype="float32"),
        }
        batch = buffer.collect(ids, outputs, framework="numpy")
        check(batch["x"], values, dtype, scale)
        assert np.array_equal(batch["plain"], values)
        check(batch["stack"][:, 2], values, dtype, scale)
        check(batch["stack"][2:, 0], values[:-2], dtype, scale)
        assert not batch["stack"][0, :2].view(np.uint8).any(), "padding is zero, not scale * zero"
        packed = buffer.collect(ids, outputs, packed=True, framework="numpy")
        assert packed["stack"].shape == (3 * count - 3, *shape)
        check(packed["stack"][-1], values[-1], dtype, scale)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("width", [1, 11, 16])
def test_floats(tier, width: int, dtype: str, scale: float) -> None:
    values = floats()
    values = values[: len(values) // width * width].reshape(-1, width)
    with tier.buffer(gear.Schema([gear.Column("x", (width,), "float32")]), 1 << 14) as buffer:
        with buffer.writer() as writer:
            writer.extend(x=values)
        outputs = {"x": gear.Step(dtype=dtype, scale=scale)}
        batch = buffer.collect(buffer.episodes()[0].ids, outputs, framework="numpy")
        check(batch["x"], values, dtype, scale)
        with buffer.loader(
            len(values), sampler=gear.Fifo(), outputs=outputs, framework="numpy", prefetch=0
        ) as loader:
            check(next(loader)["x"], values, dtype, scale)


@pytest.mark.parametrize(
    ("column", "dtype", "scale"),
    [
        ("uint8", "uint8", 0.5),
        ("uint8", "float64", 1.0),
        ("uint8", "int32", 1.0),
        ("float32", "float64", 1.0),
        ("float32", "uint8", 1.0),
        ("float32", None, 0.5),
        ("float64", "float32", 1.0),
        ("float16", "float32", 1.0),
        ("int32", "float32", 1.0),
        ("bool", "float32", 1.0),
        ("uint8", "float32", float("nan")),
        ("uint8", "float32", float("inf")),
        ("uint8", "quaternion", 1.0),
    ],
)
def test_what_is_not_converted_is_refused(tier, column: str, dtype, scale: float) -> None:
    with tier.buffer(gear.Schema([gear.Column("x", (2,), column)]), 64) as buffer:
        outputs = {"x": gear.Step(dtype=dtype, scale=scale)}
        for make in (
            lambda: buffer.loader(4, outputs=outputs),
            lambda: buffer.collect(np.zeros(1, np.int64), outputs),
        ):
            with pytest.raises(gear.InvalidArgument, match=r"'x'|quaternion"):
                make()


@pytest.mark.parametrize(("column", "dtype"), [("uint8", "uint8"), ("float32", "float32")])
def test_the_columns_own_dtype_is_accepted(tier, column: str, dtype: str) -> None:
    with tier.buffer(gear.Schema([gear.Column("x", (2,), column)]), 64) as buffer:
        values = np.arange(8, dtype=column).reshape(4, 2)
        with buffer.writer() as writer:
            writer.extend(x=values)
        outputs = {"x": gear.Step(dtype=dtype)}
        batch = buffer.collect(buffer.episodes()[0].ids, outputs, framework="numpy")
        assert difference(batch["x"], values) is None


def test_resume_keeps_the_dtype(tier) -> None:
    """A state is of its dtype and scale: another's is refused."""
    with tier.buffer(gear.Schema([gear.Column("x", (3,), "uint8")]), 64) as buffer:
        with buffer.writer() as writer:
            writer.extend(x=np.arange(60, dtype=np.uint8).reshape(20, 3))

        def make(dtype: str | None, scale: float = 1.0) -> gear.Loader:
            outputs = {"x": gear.Step(dtype=dtype, scale=scale)}
            return buffer.loader(4, outputs=outputs, framework="numpy", seed=2)

        first = make("float16", 0.5)
        next(first)
        state = first.state_dict()
        expected_next = [next(first)["x"] for _ in range(3)]
        again = make("float16", 0.5)
        again.load_state_dict(state)
        assert all(np.array_equal(next(again)["x"], x) for x in expected_next)
        for other in (make(None), make("float32", 0.5), make("float16", 0.25)):
            with pytest.raises(gear.InvalidArgument, match="state"):
                other.load_state_dict(state)

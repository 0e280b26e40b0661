"""The files that examples/process_group/mnist.py reads: right ones, torn ones, and others."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from process_group.tests.programs import imported

digits = imported("digits")
Failed = imported("ranks").Failed

IMAGES = np.random.default_rng(1).integers(0, 256, (7, 28, 28), np.uint8)
LABELS = np.arange(7, dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def write(folder: Path, **changed: bytes) -> None:
    """MNIST's files, the first of each pair compressed. `changed`: images or labels of training."""
    (folder / "train-images-idx3-ubyte.gz").write_bytes(
        changed.get("images", gzip.compress(idx(IMAGES)))
    )
    (folder / "train-labels-idx1-ubyte").write_bytes(changed.get("labels", idx(LABELS)))
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(IMAGES[:3])))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(LABELS[:3]))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write(tmp_path)
    images, labels = digits.read(tmp_path, "train")
    assert images.shape == (7, 1, 28, 28)
    assert np.array_equal((images[:, 0] * 255).round().numpy(), IMAGES)
    assert labels.tolist() == LABELS.tolist()
    assert len(digits.read(tmp_path, "test")[0]) == 3


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"labels": idx(LABELS)[:-1]}, "is torn: it has 14 bytes, and 15 by what it says"),
        ({"labels": idx(LABELS) + b"x"}, "is torn: it has 16 bytes, and 15 by what it says"),
        ({"labels": b""}, "begins with the bytes , and an IDX file of 1 dimensions"),
        ({"labels": idx(LABELS)[:6]}, "is torn: it has 6 bytes"),
        ({"labels": idx(LABELS[:5])}, "has 7 images and .* 5 labels"),
        ({"labels": idx(LABELS + 4)}, "a label is 10, and 0 to 9 are digits"),
        ({"labels": idx(IMAGES)}, "bytes 00 00 08 03, and .* unsigned bytes with 00 00 08 01"),
        ({"images": gzip.compress(idx(IMAGES))[:-300]}, "cannot be read, or is torn"),
        ({"images": idx(IMAGES)}, "cannot be read, or is torn"),
        ({"images": gzip.compress(b"\0\0\x0d\3" + idx(IMAGES)[4:])}, "the bytes 00 00 0d 03, and"),
        ({"images": gzip.compress(idx(IMAGES[:, :20]))}, r"images of \(20, 28\), and 28 by 28"),
        (
            {"images": gzip.compress(b"\0\0\x08\3" + b"\xff" * 12)},
            "is torn: it has 16 bytes, and 7",
        ),
    ],
)
def test_what_is_no_such_file_is_refused(
    changed: dict[str, bytes], said: str, tmp_path: Path
) -> None:
    write(tmp_path, **changed)
    with pytest.raises(Failed, match=said):
        digits.read(tmp_path, "train")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"neither train-images-idx3-ubyte nor .*\.gz"):
        digits.read(tmp_path, "train")


def test_drawn_digits_are_the_same_each_time_and_differ_by_label() -> None:
    images, labels = digits.drawn(200, 3)
    again, _ = digits.drawn(200, 3)
    assert torch.equal(images, again)
    assert not torch.equal(images, digits.drawn(200, 4)[0])
    assert set(labels.tolist()) == set(range(10))
    ink = [images[labels == digit].mean().item() for digit in (1, 8)]
    assert ink[0] < ink[1]
    assert 0 <= images.min() <= images.max() <= 1

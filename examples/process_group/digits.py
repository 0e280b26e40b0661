"""Handwritten digits from files in the IDX format, as MNIST's are, or digits drawn here."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from ranks import Failed
from torch import Tensor

SIDE = 28  # pixels
KINDS = {"train": "train", "test": "t10k"}  # of digits -> how the names of their files begin
UNSIGNED_BYTES = 0x08

# Five columns, seven rows.
FONT = """
.###. ..#.. .###. .###. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... #.... ....# #...# #...#
#...# ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#...# ..#.. ...#. ..##. #..#. ....# ####. ..#.. .###. .####
#...# ..#.. ..#.. ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# ..#.. #...# ....#
.###. .###. ##### .###. ...#. .###. .###. ..#.. .###. .###.
"""


def drawn(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """As `read`: of the font above, three pixels a dot, at random places and with noise."""
    lines = [line.split() for line in FONT.split("\n") if line]
    dots = torch.tensor(
        [[[dot == "#" for dot in row[digit]] for row in lines] for digit in range(10)]
    )
    glyphs = dots.float().repeat_interleave(3, 1).repeat_interleave(3, 2)
    _, high, wide = glyphs.shape
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    images = torch.rand(count, 1, SIDE, SIDE, generator=generator) * 0.4
    tops = torch.randint(SIDE - high + 1, (count,), generator=generator).tolist()
    lefts = torch.randint(SIDE - wide + 1, (count,), generator=generator).tolist()
    inks = torch.rand(count, generator=generator) * 0.4 + 0.4
    for image, label, top, left, ink in zip(images, labels, tops, lefts, inks, strict=True):
        image[0, top : top + high, left : left + wide] += ink * glyphs[label]
    return images.clamp_(0, 1), labels


def read(folder: Path, kind: str) -> tuple[Tensor, Tensor]:
    """The digits of a folder of IDX files.

    Args:
        kind: "train" or "test".

    Returns:
        Images, float32 of 0 to 1 in shape [n, 1, 28, 28], and labels, int64 in shape [n].

    Raises:
        Failed: a file is not there, is torn, or holds something else; or the two do not fit.
    """
    begin = KINDS[kind]
    image_file = _find(folder, f"{begin}-images-idx3-ubyte")
    label_file = _find(folder, f"{begin}-labels-idx1-ubyte")
    images, labels = read_idx(image_file, 3), read_idx(label_file, 1)
    if images.shape[1:] != (SIDE, SIDE):
        raise Failed(f"{image_file}: images of {images.shape[1:]}, and {SIDE} by {SIDE} are read")
    if len(images) != len(labels) or not len(images):
        raise Failed(f"{image_file} has {len(images)} images and {label_file} {len(labels)} labels")
    if labels.max() > 9:
        raise Failed(f"{label_file}: a label is {labels.max()}, and 0 to 9 are digits")
    pixels = torch.from_numpy(images).unsqueeze(1).float() / 255
    return pixels, torch.from_numpy(labels).long()


def read_idx(file: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of unsigned bytes in an IDX file, which may be compressed by gzip.

    The format: two zero bytes, one for the type, one for the number of dimensions; each dimension
    as four bytes, the most significant first; the elements.

    Raises:
        Failed: the file begins otherwise, or has more or fewer bytes than it says.
    """
    try:
        content = file.read_bytes()
        if file.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise Failed(f"{file} cannot be read, or is torn: {error}") from error
    magic = bytes([0, 0, UNSIGNED_BYTES, dimensions])
    if content[:4] != magic:
        raise Failed(
            f"{file} begins with the bytes {content[:4].hex(' ')}, and an IDX file of {dimensions} "
            f"dimensions of unsigned bytes with {magic.hex(' ')}"
        )
    begin = 4 + 4 * dimensions
    sizes = content[4:begin].ljust(begin - 4, b"\0")
    shape = [int.from_bytes(sizes[at : at + 4], "big") for at in range(0, len(sizes), 4)]
    wanted = begin + math.prod(shape)
    if len(content) != wanted:
        raise Failed(
            f"{file} is torn: it has {len(content)} bytes, and {wanted} by what it says of itself"
        )
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape).copy()


def _find(folder: Path, name: str) -> Path:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    raise Failed(f"{folder} has neither {name} nor {name}.gz")

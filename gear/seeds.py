"""The seeds of a buffer's loaders that were made without one."""

from __future__ import annotations

import hashlib


def nth_seed(n: int) -> int:
    """The n-th seed, below 2^63: 0, then numbers that have nothing to do with each other.

    The same for every buffer, so that a program that is run again draws the same.
    """
    if n == 0:
        return 0
    digest = hashlib.blake2b(n.to_bytes(8, "little"), digest_size=8, person=b"gear-seed").digest()
    return int.from_bytes(digest, "little") >> 1

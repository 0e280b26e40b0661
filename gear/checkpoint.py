"""Checkpoints of a buffer on disk; docs/format.md is the format."""

from __future__ import annotations

import os
from typing import Any

from gear import _core


def save(shard: _core.Shard, path: str | os.PathLike[str]) -> None:
    """Writes the shard into the directory ``path``; see `ReplayBuffer.save`."""
    _core.save(shard, os.fspath(path))


def load(path: str | os.PathLike[str], *, tier: str, name: str, owner: int) -> _core.Shard:
    """The shard saved in the directory ``path``; see `ReplayBuffer.load`."""
    return _core.load(os.fspath(path), tier=tier, name=name, owner=owner)


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a checkpoint holds, and whether every checksum of it is right.

    Returns:
        ``format`` (version), ``columns`` (name, shape, dtype), ``schema_hash``, ``step_bytes``,
        ``page_steps``, ``pages``, ``pages_used``, ``steps``, ``episodes``, ``bytes`` (on disk),
        ``errors`` (a list of sentences; empty when all is well).

    Raises:
        CorruptData: not a checkpoint, or torn before the header's end.
        IoError: the files cannot be read.
    """
    return _core.inspect(os.fspath(path))

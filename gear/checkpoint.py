"""Checkpoints of a buffer on disk; docs/format.md is the format."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from gear import _core
from gear.distributed import Group
from gear.distributed.together import together
from gear.errors import InvalidArgument

_RANK = re.compile(r"rank-(\d{5})-of-(\d{5})")


def save(shard: _core.Shard, path: str | os.PathLike[str]) -> None:
    """Writes the shard into the directory ``path``; see `ReplayBuffer.save`."""
    _core.save(shard, os.fspath(path))


def load(path: str | os.PathLike[str], *, tier: str, name: str, owner: int) -> _core.Shard:
    """The shard saved in the directory ``path``; see `ReplayBuffer.load`."""
    return _core.load(os.fspath(path), tier=tier, name=name, owner=owner)


def save_rank(shard: _core.Shard, path: str | os.PathLike[str], group: Group) -> None:
    """Writes every rank's shard below ``path``, all of them or none; collective.

    The ranks write beside ``path``, and the first one puts that in its place when all are done.

    Raises:
        IoError: as `save`; on every rank, naming the one that failed.
        InvalidArgument: ``path`` holds something else, or is not on a file system of all ranks.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.saving")

    old = _replaced(target)

    def prepare() -> None:
        if group.rank == 0:
            _recover(target)
            _check_replaceable(target)
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)

    def write() -> None:
        if not beside.is_dir():
            raise InvalidArgument(
                f"[checkpoint] rank {group.rank} does not see {beside}, which rank 0 made: give a "
                "path on a file system that all ranks share"
            )
        save(shard, beside / _rank_folder(group))

    def publish() -> None:
        if group.rank == 0:
            shutil.rmtree(old, ignore_errors=True)
            if target.exists():
                target.rename(old)
            beside.rename(target)
            _sync_directory(target.parent)
            shutil.rmtree(old, ignore_errors=True)

    for step in (prepare, write, publish):
        together(group, step)


def load_rank(path: str | os.PathLike[str], group: Group, *, tier: str, name: str) -> _core.Shard:
    """This rank's shard of what as many ranks saved; collective.

    Raises:
        InvalidArgument: saved by another number of ranks.
        CorruptData: as `load`; on every rank, naming the one that failed.
    """
    folder = Path(path)

    def read() -> _core.Shard:
        saved_by = {
            int(match[2])
            for entry in folder.glob("rank-*")
            if (match := _RANK.fullmatch(entry.name))
        }
        if saved_by == {group.size} and group.size > 1:
            part = folder / _rank_folder(group)
            return load(part, tier=tier, name=name, owner=group.rank)
        if saved_by or (group.size > 1 and folder.exists()):
            ranks = " and ".join(str(size) for size in sorted(saved_by)) or "one"
            raise InvalidArgument(
                f"[checkpoint] {folder} was saved by {ranks} rank(s) and is to be loaded by "
                f"{group.size}: start as many as saved it"
            )
        return load(folder, tier=tier, name=name, owner=group.rank)

    def recover() -> None:
        if group.size > 1 and group.rank == 0:
            _recover(folder)

    together(group, recover)
    return together(group, read)


def _replaced(target: Path) -> Path:
    return target.with_name(f".{target.name}.replaced")


def _recover(target: Path) -> None:
    """Puts back what a save had moved away when it was killed before the new one took its place."""
    if not target.exists() and _replaced(target).is_dir():
        _replaced(target).rename(target)


def _rank_folder(group: Group) -> str:
    return f"rank-{group.rank:05d}-of-{group.size:05d}"


def _check_replaceable(target: Path) -> None:
    """Nothing is there, or ranks' checkpoints alone."""
    if not target.exists():
        return
    if not target.is_dir() or not all(_RANK.fullmatch(entry.name) for entry in target.iterdir()):
        raise InvalidArgument(
            f"[checkpoint] {target} is there and is no checkpoint of several ranks: give another "
            "path, or move it away"
        )


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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

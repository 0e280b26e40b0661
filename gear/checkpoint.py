"""Checkpoints of a buffer on disk; docs/format.md is the format."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gear import _core
from gear.arguments import check_path
from gear.distributed import Group
from gear.distributed.together import agreed, together
from gear.errors import CorruptData, GearError, InvalidArgument, IoError
from gear.whole import publish, recover, replaced, saving

SAVE = "ReplayBuffer.save"
PATH = "[checkpoint] path"
_RANK = re.compile(r"rank-(\d{5})-of-(\d{5})")


def save(shard: _core.Shard, path: str | os.PathLike[str]) -> None:
    """Writes the shard into the directory ``path``; see `ReplayBuffer.save`."""
    text = check_path(PATH, path)
    try:
        Path(text).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.ELOOP, errno.EEXIST):  # the core says more
            raise IoError(error.errno or 0, f"[io] {error}") from error
    _core.save(shard, text)


def save_rank(
    open_peers: Callable[[], _core.Peers],
    path: str | os.PathLike[str],
    group: Group,
) -> None:
    """Writes the shards of all ranks below ``path``, all of them or none; collective.

    The ranks write beside ``path``. When all are done, rank 0 replaces ``path``.

    Raises:
        IoError: as `save`; on every rank, naming the one that failed.
        InvalidArgument: ``path`` holds something else, or some rank does not see its file system;
            the buffer is closed on a rank.
    """

    def check() -> tuple[_core.Peers, str]:
        return open_peers(), check_path(PATH, path)

    peers, text = together(group, check, SAVE)
    target = Path(agreed(group, PATH, text, SAVE))
    beside = saving(target)

    def prepare() -> None:
        if group.rank == 0:
            recover(target)
            _check_replaceable(target)
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)

    def write() -> None:
        if not beside.is_dir():
            raise InvalidArgument(
                f"[checkpoint] rank {group.rank} does not see {beside}, which rank 0 made: give a "
                "path on a file system that all ranks share"
            )
        peers.save(os.fspath(beside / _rank_folder(group.rank, group.size)))

    def commit() -> None:
        if group.rank == 0:
            publish(target)

    for step in (prepare, write, commit):
        together(group, step, SAVE)


def load_rank(
    path: str | os.PathLike[str], group: Group, place: dict[str, str]
) -> tuple[_core.Shard, list[Any]]:
    """Loads this rank's shard, or its share of the shards that another number of ranks saved, onto
    the tier and name of `place`; collective, with one path.

    Beside it the ids and priorities, if any, that the rank had yet to tell the others.

    Raises:
        InvalidArgument: the folder has parts of several saves.
        CorruptData: as `ReplayBuffer.load`; on every rank, naming the one that failed.
    """
    folder = Path(os.fsdecode(path))

    def read() -> tuple[_core.Shard, list[Any]]:
        saved_by = _ranks_that_saved(folder)
        if len(saved_by) > 1:
            raise InvalidArgument(
                f"[checkpoint] {folder} has parts of {_several(saved_by)} ranks: those of several "
                "saves are mixed; remove those that do not belong there"
            )
        saved = max(saved_by, default=1)
        parts = [folder / _rank_folder(r, saved) for r in range(saved)] if saved_by else [folder]
        if saved == group.size:
            part = os.fspath(parts[group.rank])
            shard, ids, priorities = _core.load(part, owner=group.rank, **place)
            if len(ids) and group.size == 1:
                logging.getLogger("gear").warning(
                    "[checkpoint] %s is one rank's part of a checkpoint: the %d priorities that "
                    "this rank had yet to tell the others are left out; load the folder above it",
                    folder,
                    len(ids),
                )
            return shard, [ids, priorities]
        paths = [os.fspath(part) for part in parts]
        return _core.load_share(paths, rank=group.rank, size=group.size, **place), []

    what = "ReplayBuffer.load"
    together(group, lambda: recover(folder) if group.rank == 0 else None, what)
    return together(group, read, what)


def _rank_folder(rank: int, size: int) -> str:
    return f"rank-{rank:05d}-of-{size:05d}"


def _check_replaceable(target: Path) -> None:
    """Refuses a target that holds anything but checkpoints of ranks."""
    if not target.exists():
        return
    if not target.is_dir() or not all(_RANK.fullmatch(entry.name) for entry in target.iterdir()):
        raise InvalidArgument(
            f"[checkpoint] {target} exists and is not a checkpoint of several ranks: give another "
            "path, or move it away"
        )


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Describes a checkpoint of one rank or of several, and checks all of its checksums.

    Returns:
        ``format`` (version), ``columns`` (name, shape, dtype), ``schema_hash``, ``step_bytes``,
        ``page_steps``, ``ranks`` (how many saved it), ``errors`` (sentences; empty if there are
        none); and summed over all ranks ``pages``, ``pages_used``, ``steps``, ``episodes``,
        ``bytes`` (on disk).

    Raises:
        CorruptData: this is no checkpoint, or it ends inside the header. A checkpoint of several
            ranks raises it only if none of its parts can be read.
        IoError: the files cannot be read.
    """
    folder = Path(check_path(PATH, path))
    if not folder.exists() and replaced(folder).is_dir():
        raise CorruptData(
            f"[checkpoint] {folder} is missing, but {replaced(folder)} exists: a save by several "
            f"ranks was killed between its two renames; load {folder}, which puts it back"
        )
    sizes = _ranks_that_saved(folder)
    if not sizes:
        return {**_core.inspect(os.fspath(folder)), "ranks": 1}
    size = max(sizes)
    found: dict[str, Any] = {}
    errors = [] if len(sizes) == 1 else [f"{folder} has parts of {_several(sizes)} ranks"]
    for rank in range(size):
        name = _rank_folder(rank, size)
        try:
            part = _core.inspect(os.fspath(folder / name))
        except GearError as error:
            errors.append(f"{name}: {error}")
            continue
        errors += [f"{name}: {error}" for error in part["errors"]]
        if not found:
            found = part
            continue
        if part["schema_hash"] != found["schema_hash"]:
            errors.append(f"{name} has another schema than the ranks before it")
        for key in ("pages", "pages_used", "steps", "episodes", "bytes"):
            found[key] += part[key]
    if not found:
        raise CorruptData(f"[checkpoint] no part of {folder} can be read: {'; '.join(errors)}")
    return {**found, "ranks": size, "errors": errors}


def _ranks_that_saved(folder: Path) -> set[int]:
    """The numbers of ranks in the names of a folder's parts; empty if it has no such parts."""
    found = (_RANK.fullmatch(entry.name) for entry in folder.glob("rank-*"))
    return {int(match[2]) for match in found if match}


def _several(sizes: set[int]) -> str:
    return " and of ".join(str(size) for size in sorted(sizes))

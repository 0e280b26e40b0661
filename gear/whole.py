"""Replaces a folder as a whole: its name always means the old one or the new one.

Write the new ``x`` into ``.x.saving`` beside it. `publish` renames the old ``x`` to ``.x.replaced``
and ``.x.saving`` to ``x``; the second rename is the commit. After a kill between the two there is
no ``x``, and `recover` puts ``.x.replaced`` back.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def saving(target: Path) -> Path:
    """The folder to write the new `target` into."""
    return target.with_name(f".{target.name}.saving")


def replaced(target: Path) -> Path:
    """The folder that holds the old `target` during the replacement."""
    return target.with_name(f".{target.name}.replaced")


def publish(target: Path) -> None:
    """Replaces `target` by `saving(target)`, which is complete; raises OSError."""
    _sync(saving(target))
    shutil.rmtree(replaced(target), ignore_errors=True)
    if target.exists():
        target.rename(replaced(target))
    saving(target).rename(target)
    _sync(target.parent)
    shutil.rmtree(replaced(target), ignore_errors=True)


def recover(target: Path) -> None:
    """Puts the old folder back if a `publish` was killed between its renames."""
    if not target.exists() and replaced(target).is_dir():
        replaced(target).rename(target)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""A folder that is under its name whole, or not at all.

What is to become ``x`` is written into ``.x.saving`` beside it. `publish` moves a former ``x`` to
``.x.replaced`` and gives ``.x.saving`` the name; that rename is the commit. Killed between the two,
``.x.replaced`` is what there is, and `recover` puts it back.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def saving(target: Path) -> Path:
    """Where to write what is to become `target`."""
    return target.with_name(f".{target.name}.saving")


def replaced(target: Path) -> Path:
    """Where the former `target` is while it is replaced."""
    return target.with_name(f".{target.name}.replaced")


def publish(target: Path) -> None:
    """Puts `saving(target)`, which is complete, in the place of `target`; raises OSError."""
    _sync(saving(target))
    shutil.rmtree(replaced(target), ignore_errors=True)
    if target.exists():
        target.rename(replaced(target))
    saving(target).rename(target)
    _sync(target.parent)
    shutil.rmtree(replaced(target), ignore_errors=True)


def recover(target: Path) -> None:
    """Puts back what `publish` had moved away when it was killed."""
    if not target.exists() and replaced(target).is_dir():
        replaced(target).rename(target)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

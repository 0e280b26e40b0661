"""What tests do as an ordinary user: who owns nothing, and keeps to himself what he writes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from distribution.shells import start_up_folder

UID = 65534
ORDINARY = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
BARE = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def can_become_another() -> bool:
    if shutil.which("setpriv") is None:
        return False
    return subprocess.run([*ORDINARY, "true"], capture_output=True).returncode == 0


as_root = pytest.mark.skipif(not can_become_another(), reason="only root becomes another user")


def home_of(folder: Path) -> Path:
    """A home of that user, closed to others."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    os.chown(home, UID, UID)
    return home


def loaded(prefix: Path) -> list[str]:
    """The lines by which a user loads the module."""
    init = start_up_folder("modules")
    return [f". {init}/bash", f"module use {prefix}/modulefiles", "module load gear"]


def as_ordinary(home: Path, *script: str, **env: str) -> str:
    """What the lines print in a bash of that user; all of them succeed."""
    done = subprocess.run(
        [*ORDINARY, "bash", "-ec", "\n".join(["umask 077", *script])],
        env=BARE | {"HOME": str(home), "TMPDIR": str(home)} | env,
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

"""The libraries that a user would pick instead, each in a virtual environment of its own.

Made once under build/peers (or $GEAR_PEERS_DIR) and reused; about 9 GB for all. Every environment
names torch's version itself, because what the consumer touches is a torch tensor.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TORCH = "torch==2.13.0"
ADAPTERS = Path(__file__).parent / "peers"


@dataclass(frozen=True)
class Peer:
    """packages: exact versions, so that a result can be measured again."""

    name: str
    script: str
    packages: tuple[str, ...]


PEERS = [
    Peer("cpprb", "cpprb_peer.py", ("cpprb==11.0.0",)),
    Peer("tianshou", "tianshou_peer.py", ("tianshou==2.0.1",)),
    Peer("stable-baselines3", "sb3_peer.py", ("stable-baselines3==2.9.2",)),
    Peer("torchrl", "torchrl_peer.py", ("torchrl==0.14.1", "tensordict==0.14.3")),
    Peer("flashbax", "flashbax_peer.py", ("flashbax==0.1.3", "jax==0.10.2")),
    Peer("reverb", "reverb_peer.py", ("dm-reverb==0.14.0", "tensorflow==2.15.1")),
]


class InstallError(RuntimeError):
    """pip or venv failed; the message is its last line."""


def peers_dir() -> Path:
    """Where the environments lie."""
    default = Path(__file__).parents[1] / "build" / "peers"
    return Path(os.environ.get("GEAR_PEERS_DIR", default)).resolve()


def command(peer: Peer) -> list[str]:
    """The command that runs the peer's adapter; makes its environment first when there is none.

    Throws InstallError. An environment counts as made once pip has finished and left its stamp.
    """
    folder = peers_dir() / peer.name
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    wanted = " ".join((TORCH, *peer.packages))
    if not stamp.exists() or stamp.read_text() != wanted:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        constraints = str(ADAPTERS / "constraints.txt")
        _run(str(python), "-m", "pip", "install", "-q", "-c", constraints, TORCH, *peer.packages)
        stamp.write_text(wanted)
    return [str(python), str(ADAPTERS / peer.script)]


def _run(*arguments: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise InstallError(lines[-1] if lines else f"{arguments[0]} exited {done.returncode}")

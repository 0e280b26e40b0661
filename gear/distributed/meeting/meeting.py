"""How ranks found each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gear import _core
from gear.distributed.channels.base import Channel


@dataclass(frozen=True)
class Meeting:
    """Connected ranks that have told each other nothing yet; `Group` is made of one.

    Attributes:
        channel: between the ranks.
        launcher: as in `Group`.
        replicas: the ranks that are to train on the same batches; None: this one alone.
    """

    channel: Channel
    launcher: str
    replicas: Meeting | None = None


def given_to_all(transport: str, timeout_s: float) -> dict[str, Any]:
    """What the user must give alike on all ranks, before they can be connected."""
    version = _core.build_info()["version"]
    return {"transport": transport, "timeout_s": timeout_s, "GEAR": version}

"""How ranks found each other."""

from __future__ import annotations

from dataclasses import dataclass

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

"""Names of the memory that ranks of a node map."""

from __future__ import annotations

import secrets

from gear.distributed.group import Group


def name_of_rank(name: str | None, tier: str, group: Group) -> str | None:
    """The name of a rank's own region: memory with a name is what other ranks can map."""
    if group.size == 1:
        return name
    # Whatever each rank asks for: they are to stay in step.
    made_up = group.exchange(secrets.token_hex(8))[0]
    if tier not in ("shared", "pinned"):
        return name
    return f"{name or made_up}-rank{group.rank}"

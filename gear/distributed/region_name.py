"""Names of the memory that ranks of a node map."""

from __future__ import annotations

import secrets

from gear.distributed.group import Group


def name_of_rank(name: str | None, tier: str, group: Group) -> str | None:
    """The name of a rank's own region: memory with a name is what other ranks can map."""
    if group.size == 1 or tier not in ("shared", "pinned"):
        return name
    if name is None:
        name = group.exchange(secrets.token_hex(8))[0]
    return f"{name}-rank{group.rank}"

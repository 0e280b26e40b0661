"""Tier and name of the memory that ranks of a node map."""

from __future__ import annotations

from gear.arguments import check_text
from gear.distributed.group import Group


def checked_place(tier: str, name: str | None, group: Group, made_up: str) -> dict[str, str]:
    """Tier and name of a rank's own region: memory with a name is what other processes can map.

    A single process may have pinned memory without one (""), and no shared memory.
    """
    check_text("[buffer] tier", tier)
    if name is not None:
        check_text("[buffer] name", name)
    if group.size > 1 and tier in ("shared", "pinned"):
        return {"tier": tier, "name": f"{name or made_up}-rank{group.rank}"}
    if name is None and tier == "shared":
        return {"tier": tier, "name": made_up}
    return {"tier": tier, "name": name or ""}

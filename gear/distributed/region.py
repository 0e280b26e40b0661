"""Tier and name of the memory that ranks of a node map."""

from __future__ import annotations

from gear.arguments import check_text
from gear.distributed.group import Group


def checked_place(tier: str, name: str | None, group: Group, made_up: str) -> dict[str, str]:
    """Tier and name of a rank's own region: memory with a name is what other ranks can map."""
    check_text("[store] tier", tier)
    if name is not None:
        check_text("[store] name", name)
    if group.size == 1 or tier not in ("shared", "pinned"):
        return {"tier": tier, "name": name or ""}
    return {"tier": tier, "name": f"{name or made_up}-rank{group.rank}"}

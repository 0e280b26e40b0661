"""Which ranks share a buffer, and how their bytes travel."""

from gear.distributed.group import Group

__all__ = ["Group"]

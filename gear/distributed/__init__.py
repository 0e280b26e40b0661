"""Which ranks share a buffer."""

from gear.distributed.group import Group

__all__ = ["Group"]

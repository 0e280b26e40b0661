"""Which ranks share a buffer, and how their bytes travel."""

from gear.distributed.group import Group
from gear.distributed.shared_loader import SharedBatch, SharedLoader

__all__ = ["Group", "SharedBatch", "SharedLoader"]

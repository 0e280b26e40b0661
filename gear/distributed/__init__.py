"""The ranks that share a buffer, and the transports between them."""

from gear.distributed.group import Group
from gear.distributed.shared_loader import SharedBatch, SharedLoader

__all__ = ["Group", "SharedBatch", "SharedLoader"]

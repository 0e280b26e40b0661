"""The processes that train together: how they meet, what they do together, how they part."""

from gear.train.ranks.ranks import Ranks

__all__ = ["Ranks"]

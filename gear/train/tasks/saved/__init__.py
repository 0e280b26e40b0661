"""Saved experience as data to learn from: whole episodes, with the return still to come."""

from gear.train.tasks.saved.buffer import RETURN_TO_GO, open_saved
from gear.train.tasks.saved.episodes import find
from gear.train.tasks.saved.facts import Facts, is_held_out, look

__all__ = ["RETURN_TO_GO", "Facts", "find", "is_held_out", "look", "open_saved"]

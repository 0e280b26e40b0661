"""Which environments a file may name that may be a stranger's: those that are known anyway."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import yaml

from gear.train.config.groups import NAME
from gear.train.tasks.single import register_atari

_OPTIONS = Path(__file__).parents[1] / "conf" / "env"


def is_known(env: Mapping[str, Any]) -> bool:
    """Whether making what the group `env` says imports nothing that is not known here by its id,
    and hands on nothing but numbers and names."""
    return is_there(env) and is_plain(env.get("kwargs"))


def is_there(env: Mapping[str, Any]) -> bool:
    """Whether its id is in Gymnasium's registry, without importing, or one of GEAR's conf/env."""
    name = env.get("id")
    if env.get("api") != "gymnasium":
        return name in _own_modules()
    if not isinstance(name, str) or ":" in name:
        return False
    if env.get("frames"):
        with contextlib.suppress(ImportError):
            register_atari()
    return name in gymnasium.registry


def _own_modules() -> set[str]:
    options = (yaml.safe_load(path.read_text("utf-8"))["env"] for path in _OPTIONS.glob("*.yaml"))
    return {each["id"] for each in options if each["api"] == "pettingzoo"}


def is_plain(value: object) -> bool:
    """Whether these are numbers and names: no paths, and nothing that could be looked up."""
    if isinstance(value, str):
        return re.fullmatch(NAME, value) is not None
    if isinstance(value, Mapping):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (bool, int, float))

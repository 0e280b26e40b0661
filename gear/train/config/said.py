"""A configuration as words of a command line, for advice that can be followed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from gear.train.config.groups import Env
from gear.train.config.run import Config

_OPTIONS = Path(__file__).parents[1] / "conf" / "env"
_AS_IT_IS = re.compile(r"[A-Za-z_./][A-Za-z0-9_./:-]*")
_OTHER_THAN_TEXT = {"null", "true", "false", "inf", "nan"}


def command(*words: str) -> str:
    """To be pasted into a shell."""
    return shlex.join(words)


def value(of: object) -> str:
    """As Hydra reads it behind a `=`."""
    if of is None or isinstance(of, bool):
        return "null" if of is None else str(of).lower()
    if isinstance(of, Mapping):
        return "{" + ",".join(f"{value(k)}:{value(v)}" for k, v in of.items()) + "}"
    if isinstance(of, (list, tuple)):
        return "[" + ",".join(map(value, of)) + "]"
    text = str(of)
    is_number = isinstance(of, (int, float))
    if is_number or (_AS_IT_IS.fullmatch(text) and text.lower() not in _OTHER_THAN_TEXT):
        return text
    return "'" + text.replace("'", r"\'") + "'"


def env_words(env: Env) -> list[str]:
    """What makes the group `env`: an option of conf/env, and what differs from it."""
    option = _option(env)
    of_option, words = _read(option)["env"], [f"env={option}"]
    for each in fields(env):
        mine, its = getattr(env, each.name), of_option[each.name]
        if each.name == "kwargs":
            words += [f"+env.kwargs.{key}={value(item)}" for key, item in mine.items()]
        elif mine != its:
            words.append(f"env.{each.name}={value(mine)}")
    return words


def played_words(config: Config) -> list[str]:
    """The environment, and the algorithm and the model where they are not those that it sets."""
    chosen = {"algo": "sac", "model": "mlp"}
    for each in _read(_option(config.env)).get("defaults", ()):
        chosen |= {key.removeprefix("override /"): name for key, name in each.items()}
    mine = {"algo": config.algo.name, "model": config.model.name}
    differing = [f"{key}={name}" for key, name in mine.items() if name != chosen[key]]
    return [*env_words(config.env), *differing]


def _option(env: Env) -> str:
    """That of its name; for a name of the user's own, the first of its kind."""
    names: Sequence[str] = sorted(path.stem for path in _OPTIONS.glob("*.yaml"))
    if env.name in names:
        return env.name
    return next(name for name in names if _read(name)["env"]["api"] == env.api)


def _read(option: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((_OPTIONS / f"{option}.yaml").read_text("utf-8"))
    return found

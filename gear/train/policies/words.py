"""The words of a command line: `env=cartpole steps=1000`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

import gear
from gear.train.app import CONF


def parse(words: Sequence[str], allowed: Sequence[str], command: str) -> dict[str, Any]:
    """Key -> value, as YAML reads it; keys of the environment begin with `env`.

    Raises InvalidArgument for a word without `=`, and for a key that is not allowed.
    """
    found = {}
    for word in words:
        key, is_there, text = word.partition("=")
        key = key.lstrip("+")  # Hydra's sign for a key that an option does not have
        root = key.split(".")[0]
        if not is_there or not (key in allowed or (root == "env" and root in allowed)):
            raise gear.InvalidArgument(
                f"[{command}] {word} is not understood: give KEY=VALUE with one of "
                + ", ".join(allowed)
            )
        found[key] = OmegaConf.from_dotlist([f"value={text}"])["value"]
    return found


def whole(found: dict[str, Any], key: str, default: int, least: int = 1) -> int:
    """A whole number; raises InvalidArgument."""
    value = found.get(key, default)
    if type(value) is not int or value < least:
        raise gear.InvalidArgument(
            f"[train] {key}={value} is not possible: give a whole number of at least {least}"
        )
    return value


def flag(found: dict[str, Any], key: str) -> bool:
    """True or false, which it is by default; raises InvalidArgument."""
    value = found.get(key, False)
    if not isinstance(value, bool):
        raise gear.InvalidArgument(f"[train] {key}={value} is not possible: give true or false")
    return value


def of_env(words: Sequence[str]) -> set[str]:
    """The keys of the group `env` that these words give: `env`, `env.id` ..."""
    keys = {word.partition("=")[0].lstrip("+") for word in words}
    return {key for key in keys if key.split(".")[0] == "env"}


def environment(words: Sequence[str], otherwise: DictConfig | None = None) -> DictConfig:
    """The configuration with the group `env` that the words name.

    otherwise: has it where no word is `env=NAME`; `env.KEY=VALUE` changes it.
    """
    mine = [word for word in words if of_env([word])]
    if otherwise is None or "env" in of_env(mine):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose("train", mine)
    plain = [word.lstrip("+") for word in mine]
    changed = OmegaConf.merge(otherwise, OmegaConf.from_dotlist(plain))
    assert isinstance(changed, DictConfig)
    return changed

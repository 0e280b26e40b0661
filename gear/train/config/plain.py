"""A configuration that a run wrote down, read as what it is: the text of a file that may be a
stranger's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import gear

MISSING = "???"  # OmegaConf's word for a value that is still to come


def written(text: str, where: object) -> DictConfig:
    """The values as they stand there: nothing is looked up, neither variables nor other keys.

    where: the file, for errors.
    Raises CorruptData if these are no plain values by name, or if one refers to something.
    """
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError("it repeats a part by a mark of YAML's")
        values = yaml.safe_load(text)
        if not isinstance(values, dict):
            raise ValueError("it is no mapping of names to values")
        for key, value in _leaves(values, ""):
            if isinstance(value, str) and ("${" in value or value == MISSING):
                raise ValueError(f"{key}={value!r} is no value, and nothing is put in its place")
        config = OmegaConf.create(values)
    except (yaml.YAMLError, OmegaConfBaseException, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise gear.CorruptData(
            f"[train] {where} holds no configuration that gear train wrote: {reason}"
        ) from error
    return config


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}".strip("."))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{key}[{number}]")
    else:
        yield key, value

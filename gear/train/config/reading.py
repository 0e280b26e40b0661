"""From Hydra's configuration to a Config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf

import gear
from gear.train.config.checks import ConfigGroup, refuse
from gear.train.config.run import Config, Place

G = TypeVar("G", bound=ConfigGroup)
OF_A_RANK = frozenset({"rank", "world_size", "device"})  # may differ between the ranks of a run


def read_place(cfg: DictConfig) -> Place:
    """Of a whole configuration the part that is needed first; raises InvalidArgument."""
    return _read(Place, _values(cfg), "")


def read(cfg: DictConfig) -> Config:
    """Checks every value; raises InvalidArgument naming the key, the value and what is allowed.

    What a user added with `+key=value` stays in `yaml` and means nothing to the run.
    """
    kept = OmegaConf.create(_values(cfg))
    kept.rank, kept.world_size, kept.trust = None, None, False  # of this launch only
    return _read(Config, _values(cfg), "", yaml=OmegaConf.to_yaml(kept))


def of_the_run(cfg: DictConfig) -> dict[str, Any]:
    """Every key with its value, but for those that each rank has its own of."""
    return {k: v for k, v in _flat(_values(cfg), "") if k not in OF_A_RANK}


def _flat(values: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _values(cfg: DictConfig) -> dict[Any, Any]:
    values = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(values, dict)
    return values


def _read(kind: type[G], values: object, key: str, **more: Any) -> G:
    """An object of `kind` from the mapping `values`, which stands at `key`."""
    if not isinstance(values, Mapping):
        refuse(key.rstrip("."), values, "a group: its keys and values")
    given = dict(more)
    for each in fields(kind):
        if each.name in more:
            continue
        name = key + each.name
        if each.name not in values:
            check = each.metadata.get("check")
            allowed = check.allowed if check else f"{name}=OPTION, a file of conf/{each.name}"
            raise gear.InvalidArgument(f"[train] {name} is missing: add +{name}=..., {allowed}")
        value = values[each.name]
        if "kinds" in each.metadata:
            value = _read(_kind_of(each.metadata, value, name), value, f"{name}.")
        given[each.name] = value
    return kind(**given)


def _kind_of(metadata: Mapping[str, Any], values: object, name: str) -> type[ConfigGroup]:
    kinds: Mapping[str, type[ConfigGroup]] = metadata["kinds"]
    by: str = metadata["by"]
    if not by or not isinstance(values, Mapping):
        return next(iter(kinds.values()))
    chosen = values.get(by)
    if not isinstance(chosen, str) or chosen not in kinds:
        refuse(f"{name}.{by}", chosen, "one of " + ", ".join(kinds))
    return kinds[str(chosen)]

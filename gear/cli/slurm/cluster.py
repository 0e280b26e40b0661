"""What the partitions of a cluster have, as `sinfo` tells it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field

from gear.errors import InvalidArgument

# Partition, is it up, longest time, nodes of a job, number of alike nodes, CPUs, GPUs, their state.
_FORMAT = "%P|%a|%l|%s|%D|%c|%G|%T"
_AWAY = ("down", "drain", "fail", "maint", "power", "unknown", "reboot", "inval", "future")
_GPUS = re.compile(
    r"gpu(?::(?!no_consume)(?P<type>[A-Za-z][\w.-]*))?(?::no_consume)?:(?P<count>\d+)"
)


@dataclass(frozen=True)
class Nodes:
    """So many alike nodes, each with `cpus` CPUs and `gpus`, a number for each type."""

    count: int
    cpus: int
    gpus: dict[str, int]
    away: bool  # down, drained, ...: not now

    def num_gpus(self, kind: str) -> int:
        """GPUs of that type, "" for any."""
        return self.gpus.get(kind, 0) if kind else sum(self.gpus.values())


@dataclass
class Partition:
    """Times are in seconds, None without limit; `most_nodes` is of one job."""

    name: str
    is_default: bool
    is_up: bool
    limit_s: int | None
    most_nodes: int | None
    nodes: list[Nodes] = field(default_factory=list)


def partitions() -> dict[str, Partition]:
    """By name; raises InvalidArgument where no `sinfo` answers."""
    try:
        done = subprocess.run(
            ["sinfo", "--noheader", "--exact", f"--format={_FORMAT}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        why = "there is none" if isinstance(error, FileNotFoundError) else "no answer within 60 s"
        raise InvalidArgument(
            f"[slurm] sinfo tells what the cluster has, and here {why}: run this on a login node"
        ) from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split())
        raise InvalidArgument(
            f"[slurm] sinfo does not tell what the cluster has: {said}: run this on a login node"
        )
    return parse(done.stdout)


def parse(text: str) -> dict[str, Partition]:
    """What `sinfo` has printed."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        if line.count("|") != _FORMAT.count("|"):
            continue
        mark, up, limit, sizes, count, cpus, gres, state = line.split("|")
        name = mark.rstrip("*")
        most = sizes.rpartition("-")[2]
        partition = found.setdefault(
            name,
            Partition(
                name,
                mark.endswith("*"),
                up.strip() == "up",
                seconds(limit),
                int(most) if most.isdigit() else None,
            ),
        )
        # A node answers if its state has none of these marks: * it does not, - it is to be cut off.
        away = state.lower().startswith(_AWAY) or state.endswith("*")
        partition.nodes.append(Nodes(int(count), int(cpus.rstrip("+")), gpus(gres), away))
    return found


def gpus(text: str) -> dict[str, int]:
    """Type ("" where none is told) -> number, of `gpu:h100:4(S:0-1),gpu:2` and the like."""
    found: dict[str, int] = {}
    for each in re.split(r",(?![^(]*\))", text):
        if match := _GPUS.match(each):
            kind = match["type"] or ""
            found[kind] = found.get(kind, 0) + int(match["count"])
    return found


def seconds(text: str) -> int | None:
    """Of a time as Slurm writes it: minutes, min:s, h:min:s, days-h, days-h:min, days-h:min:s.

    None: no limit. Raises InvalidArgument if it is none of these.
    """
    text = text.strip()
    if text.lower() in ("infinite", "unlimited", "n/a", "-1"):
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if match is None:
        raise InvalidArgument(
            f"[slurm] time {text!r}: 90 (minutes), 1:30:00 or 2-12:00:00 (days first) is allowed"
        )
    days, first, second, third = (int(part) if part else None for part in match.groups())
    if days is not None:
        return days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    if third is not None:
        return (first or 0) * 3600 + (second or 0) * 60 + third
    return (first or 0) * 60 + (second or 0)

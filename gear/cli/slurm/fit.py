"""Whether a partition can give what a job asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gear.cli.slurm.cluster import Nodes, Partition, gpus, seconds
from gear.errors import InvalidArgument


@dataclass(frozen=True)
class Wish:
    """What one part of a job asks for; `nodes` at least, `cpus` and `gpus` on each of them."""

    nodes: int
    cpus: int
    gpus: dict[str, int]
    time: str

    @staticmethod
    def of(options: Mapping[str, str]) -> Wish:
        """Of long options of sbatch."""
        tasks = _count(options, "ntasks-per-node", 0)
        nodes = _count(options, "nodes", 1)
        if not tasks:
            tasks = -(-_count(options, "ntasks", 1) // nodes)
        wanted = gpus(",".join(_counted(each) for each in options.get("gres", "").split(",")))
        for option, times in (("gpus-per-node", 1), ("gpus-per-task", tasks)):
            if option in options:
                each = gpus(_counted(f"gpu:{options[option]}"))
                wanted = {kind: count * times for kind, count in each.items()}
        cpus = tasks * _count(options, "cpus-per-task", 1)
        return Wish(nodes, cpus, wanted, options.get("time", ""))


def check(options: Mapping[str, str], cluster: Mapping[str, Partition]) -> str:
    """Raises InvalidArgument if no partition that the job names, or the default one, can give what
    its options ask for. Returns a warning where nodes are away that it would have to wait for."""
    wish = Wish.of(options)
    names = _named(options, cluster)
    if not names:
        raise InvalidArgument(
            "[slurm] the cluster has no default partition: name one with --set partition=, of "
            f"{_listed(cluster)}"
        )
    refusals = []
    for name in names:
        if name not in cluster:
            raise InvalidArgument(
                f"[slurm] there is no partition {name}: name one with --set partition=, of "
                f"{_listed(cluster)}"
            )
        refusal = why_not(wish, cluster[name])
        if not refusal:
            return _waits(wish, cluster[name])
        refusals.append(refusal)
    others = [name for name in cluster if name not in names and not why_not(wish, cluster[name])]
    remedy = f", or --set partition={others[0]}, which has it" if others else ""
    raise InvalidArgument(f"[slurm] {refusals[0]}: ask for less{remedy}")


def num_away(options: Mapping[str, str], cluster: Mapping[str, Partition]) -> int:
    """How many nodes of the partitions that the job names are down, drained and the like."""
    found = [cluster[name] for name in _named(options, cluster) if name in cluster]
    return sum(nodes.count for each in found for nodes in each.nodes if nodes.away)


def why_not(wish: Wish, partition: Partition) -> str:
    """Empty if it fits."""
    name = f"partition {partition.name}"
    if not partition.is_up:
        return f"{name} is closed"
    asked_s = seconds(wish.time) if wish.time else 0
    if partition.limit_s is not None and (asked_s is None or asked_s > partition.limit_s):
        return f"{name} runs jobs for {_shown(partition.limit_s)} at most, and --time={wish.time}"
    if partition.most_nodes is not None and wish.nodes > partition.most_nodes:
        return f"{name} gives a job {partition.most_nodes} nodes at most, and --nodes={wish.nodes}"
    total = sum(nodes.count for nodes in partition.nodes)
    if wish.nodes > total:
        return f"{name} has {total} nodes, and --nodes={wish.nodes}"
    most = max((nodes.cpus for nodes in partition.nodes), default=0)
    if wish.cpus > most:
        return f"nodes of {name} have {most} CPUs at most, and the job's tasks {wish.cpus} on each"
    for kind, count in wish.gpus.items():
        of_type = f" of type {kind}" if kind else ""
        most = max((nodes.num_gpus(kind) for nodes in partition.nodes), default=0)
        if count > most:
            has = f"{most} GPUs{of_type} at most" if most else f"no GPUs{of_type}"
            return f"nodes of {name} have {has}, and the job {count} on each"
    fitting = sum(nodes.count for nodes in partition.nodes if _suits(wish, nodes))
    if wish.nodes > fitting:
        gpu = f" and {sum(wish.gpus.values())} GPUs" if wish.gpus else ""
        return f"{name} has {fitting} nodes with {wish.cpus} CPUs{gpu}, and --nodes={wish.nodes}"
    return ""


def _named(options: Mapping[str, str], cluster: Mapping[str, Partition]) -> list[str]:
    """The partitions that the job names, or the default one."""
    names = [name for name in options.get("partition", "").split(",") if name]
    return names or [each.name for each in cluster.values() if each.is_default]


def _suits(wish: Wish, nodes: Nodes) -> bool:
    enough = all(nodes.num_gpus(kind) >= count for kind, count in wish.gpus.items())
    return enough and nodes.cpus >= wish.cpus


def _waits(wish: Wish, partition: Partition) -> str:
    here = sum(n.count for n in partition.nodes if _suits(wish, n) and not n.away)
    if here >= wish.nodes:
        return ""
    return (
        f"[slurm] of the nodes of partition {partition.name} that suit the job {here} are up and "
        f"it needs {wish.nodes}: it waits until more are"
    )


def _count(options: Mapping[str, str], option: str, default: int) -> int:
    """The least of `2` or `2-4`."""
    text = options.get(option, "")
    if not text:
        return default
    match = re.fullmatch(r"(\d+)(?:-\d+)?", text)
    if match is None or not int(match[1]):
        raise InvalidArgument(f"[slurm] --{option}={text}: a whole number, 1 or more, is allowed")
    return int(match[1])


def _counted(text: str) -> str:
    """`gpu` is one GPU, `gpu:h100` one of that type."""
    return text if re.search(r":\d+$", text) else f"{text}:1"


def _listed(cluster: Mapping[str, Partition]) -> str:
    described = []
    for partition in cluster.values():
        total = sum(nodes.count for nodes in partition.nodes)
        described.append(f"{partition.name} ({_shown(partition.limit_s)}, {total} nodes)")
    return ", ".join(described)


def _shown(time_s: int | None) -> str:
    if time_s is None:
        return "no time limit"
    days, rest = divmod(time_s, 86400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock

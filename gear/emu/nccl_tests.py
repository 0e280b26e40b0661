"""What the logs of nccl-tests (NVIDIA/nccl-tests) say that operations take."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from gear.emu.models.curve import Point
from gear.emu.models.links import Measured
from gear.emu.models.shape import Shape
from gear.errors import InvalidArgument, IoError

# Of the tests, as their programs are called; a size is in all of them what OPERATIONS counts.
OPERATION_OF = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
_TEST = rf"(?<![a-z])({'|'.join(OPERATION_OF)})(?![a-z])"
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device")
_BY_MPIRUN = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:\s?")  # --tag-output


def read_logs(paths: Iterable[str | os.PathLike[str]]) -> tuple[Measured, ...]:
    """What the tests took, of each operation, shape and size once, by size.

    The median of all times of a size, in place and not, in one log or several; their least and
    largest are its interval.

    Raises:
        InvalidArgument: for a log that does not say which test it is of, or of which ranks, one of
            several tests, of several groups, or without a time.
        IoError: where one cannot be read.
    """
    times: dict[tuple[str, Shape], dict[int, list[float]]] = {}
    names: dict[tuple[str, Shape], list[str]] = {}
    for path in map(Path, paths):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise IoError(error.errno, f"[emu] the log {path} cannot be read: {error}") from None
        lines = [_BY_MPIRUN.sub("", line) for line in lines]
        key = _operation(path, lines), _shape(path, lines)
        rows = list(_rows(lines))
        if not rows:
            raise InvalidArgument(
                f"[emu] the log {path} has no line of a size and its times, as nccl-tests prints"
                " them: give what it has printed, from '# nThread' on"
            )
        names.setdefault(key, []).append(path.name)
        for size, seconds in rows:
            times.setdefault(key, {}).setdefault(size, []).extend(seconds)
    return tuple(
        Measured(
            operation,
            shape,
            Point(
                size,
                median(found),
                low=min(found),
                high=max(found),
                basis="measured",
                source=f"nccl-tests: {', '.join(names[operation, shape])}",
            ),
        )
        for (operation, shape), by_size in times.items()
        for size, found in sorted(by_size.items())
    )


def _operation(path: Path, lines: Sequence[str]) -> str:
    """By the name of the program in the log, which newer ones print, or in the name of the file."""
    found = {name for line in lines for name in re.findall(rf"{_TEST}_perf", line)}
    found = found or set(re.findall(_TEST, path.name))
    if len(found) != 1:
        what = f"is of {', '.join(sorted(found))}" if found else "does not say which test it is of"
        raise InvalidArgument(
            f"[emu] the log {path} {what}: give a log of one test, with its name in that of the"
            f" file, as all_reduce.log: {', '.join(OPERATION_OF)}"
        )
    return OPERATION_OF[found.pop()]


def _shape(path: Path, lines: Sequence[str]) -> Shape:
    found = [match.groups() for line in lines if (match := _RANK.match(line))]
    ranks = [int(rank) for rank, _, _ in found]
    hosts = Counter(host for _, _, host in found)
    wrong = ""
    if not found:
        wrong = "does not say of which ranks it is, by lines '# Rank 0 ... on HOST device 0'"
    elif len({group for _, group, _ in found}) > 1:
        wrong = "is of several groups at once"
    elif sorted(ranks) != list(range(len(ranks))):
        wrong = (
            f"has the ranks {', '.join(map(str, ranks[:8]))}: several runs, or processes that know"
            " nothing of each other, as nccl-tests without MPI=1"
        )
    elif len(set(hosts.values())) > 1:
        counts = ", ".join(f"{host} {count}" for host, count in hosts.items())
        wrong = f"has hosts with different numbers of ranks: {counts}"
    if wrong:
        raise InvalidArgument(f"[emu] the log {path} {wrong}: give one of as many ranks a node")
    return Shape(len(ranks) // len(hosts), len(hosts))


def _rows(lines: Sequence[str]) -> Iterator[tuple[int, list[float]]]:
    """Bytes, and seconds out of place and in place, where they were measured."""
    columns: list[str] = []
    for line in lines:
        words = line.split()
        if words[:3] == ["#", "size", "count"]:
            columns = words[1:]
        elif columns and len(words) == len(columns) and words[0].isdigit() and int(words[0]) > 0:
            at = (word for name, word in zip(columns, words, strict=True) if name == "time")
            if seconds := [float(word) * 1e-6 for word in at if _is_time(word)]:
                yield int(words[0]), seconds


def _is_time(word: str) -> bool:
    return re.fullmatch(r"[0-9.]+", word) is not None and float(word) > 0

"""One rank of four or of two: `worker.py FOLDER`, started by mpirun or srun. Plays every case on
groups of one to all ranks, and writes what went wrong, by case and group, to FOLDER/RANK.json. With
a second argument, "sizes", it ends with tensors of different sizes, and writes what it was told."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).parents[2]))

import gear_mpi
from gear_mpi.groups import backend_of
from process_group.tests.cases import CASES, SHARED, STAGED, Pair, of_random_groups, overlapping
from process_group.tests.rehearsal import rehearse

# Ranks of the world, by rank of the group: also one rank, and some that are not in order.
GROUPS = {4: [(0, 1, 2, 3), (2,), (0, 1), (3, 1), (1, 2, 3)], 2: [(1, 0), (1,)]}
STAGED_RANKS = (1, 2, 3)
# What schedulers and programs stop or save by; libraries beneath MPI have taken some.
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2]

LIMIT = timedelta(seconds=300)  # four ranks that compute share their cores with other tests


def pairs() -> list[Pair]:
    made = []
    for ranks in GROUPS[dist.get_world_size()]:
        mpi = dist.new_group(ranks, backend=gear_mpi.NAME, timeout=LIMIT)
        gloo = dist.new_group(ranks, backend="gloo", timeout=LIMIT)
        made.append(Pair(mpi, gloo, tuple(sorted(ranks))))
    return made


def staged(plain: Pair, shares_memory: bool) -> Pair:
    """Of the same ranks, with tensors that go as those of a GPU do, in many pieces."""
    options = gear_mpi.Options(segment_bytes=(4 if shares_memory else 64) << 10)
    mpi = dist.new_group(STAGED_RANKS, backend=gear_mpi.NAME, pg_options=options)
    if dist.get_rank() in STAGED_RANKS:
        rehearse(mpi, shares_memory=shares_memory)
        assert backend_of(mpi).shares_memory == shares_memory
    return Pair(mpi, plain.gloo, STAGED_RANKS)


def play(made: list[Pair]) -> Iterator[tuple[str, str | None]]:
    rank = dist.get_rank()

    def attempt(name: str, call: Callable[[], None]) -> tuple[str, str | None]:
        try:
            call()
        except Exception:  # noqa: BLE001  # pytest says what it is
            print(traceback.format_exc(), file=sys.stderr, flush=True)
            return name, traceback.format_exc()
        return name, None

    for name, case in CASES.items():
        for pair in made:
            if rank in pair.ranks:
                yield attempt(f"{name}-{len(pair.ranks)}", lambda c=case, p=pair: c(p))  # type: ignore[misc]
    for plain in made:
        if plain.ranks != STAGED_RANKS:
            continue
        by_messages, by_memory = staged(plain, False), staged(plain, True)
        if rank not in STAGED_RANKS:
            continue
        for way, pair, names in [
            ("staged", by_messages, STAGED),
            ("shared", by_memory, SHARED),
        ]:
            for name in names:
                yield attempt(f"{name}-{way}", lambda c=CASES[name], p=pair: c(p))  # type: ignore[misc]
        both = [by_messages, by_memory]
        yield attempt("overlapping-staged", lambda p=both: overlapping(p, 300))  # type: ignore[misc]
    yield attempt("overlapping", lambda: overlapping(made, 1000))
    yield attempt("random_groups", lambda: of_random_groups(20))


def sizes() -> str:
    """The words; the group fails, so that MPI is not finalised."""
    group = dist.new_group(backend=gear_mpi.NAME)
    try:
        dist.all_reduce(torch.ones(10 + dist.get_rank()), group=group)
    except RuntimeError as error:
        return str(error)
    return ""


def main() -> None:
    torch.set_num_threads(1)
    come: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda got, _: come.append(got))
    dist.init_process_group(gear_mpi.NAME, timeout=LIMIT)
    rank = dist.get_rank()
    said: dict[str, str] = {}
    for name, error in play(pairs()):
        said.setdefault(name, "")
        said[name] += error or ""
    for number in SIGNALS:
        os.kill(os.getpid(), number)
    said["signals"] = "" if come == SIGNALS else f"of {SIGNALS}, the program got {come}"
    if "sizes" in sys.argv[2:]:
        said["sizes"] = sizes()
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(said))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Starts the real ranks of a job here, or the one that a launcher has started this process for."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from gear.emu.job import Job, said_in
from gear.emu.launched import numbered, place
from gear.emu.processes import Processes
from gear.errors import InvalidArgument, IoError

HOOK = Path(__file__).with_name("hook")
FILE = "job.toml"


def start(job: Job, command: Sequence[str], out: str | os.PathLike[str] | None = None) -> int:
    """Runs `command`, a program that ends in Python, once for each real rank of `job`.

    No edit of it: all groups of torch.distributed that it makes are emulated, whatever backend it
    asks for. RANK and WORLD_SIZE are those of the job; LOCAL_RANK and LOCAL_WORLD_SIZE those of
    the processes, by which it may choose a device. What this process has in its environment stays.

    A process that a launcher has started for one of the real ranks (``torchrun``, ``srun``,
    ``mpirun``, DeepSpeed's) runs it for that one.

    Args:
        out: a folder, made if need be, for the file of the job and each rank's report; None: none
            are kept.

    SIGTERM, SIGUSR1 and Ctrl-C go to the ranks, which end as they do without this; a second one
    ends them.

    Returns:
        The exit code of the first rank that failed, and 0 if none did. Of one that a signal ended,
        128 and its number. The others are ended then, unless a signal has told all to end.

    Raises:
        InvalidArgument: for a command that is not there, and a launcher that has started more or
            fewer processes than there are real ranks.
        IoError: where `out` cannot be made or written to.
    """
    with processes(job, command, out) as ranks:
        return ranks.follow()


@contextlib.contextmanager
def processes(
    job: Job, command: Sequence[str], out: str | os.PathLike[str] | None
) -> Iterator[Processes]:
    """The ranks that `start` starts, before they are; what they need is there inside of this.

    Raises:
        InvalidArgument, IoError: as `start`.
    """
    if not command or shutil.which(command[0]) is None:
        raise InvalidArgument(
            f"[emu] command {' '.join(command)!r}: a program that is on PATH is allowed"
        )
    placed = place(job, os.environ)
    if not placed and (outer := os.environ.get("GEAR_EMU_RANK")):
        raise InvalidArgument(
            f"[emu] this process is rank {outer} of an emulated job: start another one from outside"
            " of it"
        )
    folder = None if out is None else kept_in(out)
    if folder is not None:
        if placed.get("RANK", str(job.real[0])) == str(job.real[0]):
            job.save(folder / FILE)
        clear(folder, placed.get("RANK", "*"))
    with TemporaryDirectory(prefix="gear-emu-") as own:
        job.save(Path(own, FILE))
        common = inherited(bool(placed)) | variables(Path(own, FILE), folder)
        if placed:
            each = [placed]
        else:
            met = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
            each = [met | of_rank(job, index) for index in range(len(job.real))]
        yield Processes(command, [common | one for one in each])


def inherited(is_started: bool) -> dict[str, str]:
    """What this process's environment gives the ranks: not where an outer job's reports go, and
    not, unless a launcher has started it as a rank, what torchrun says of its own store."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != "GEAR_EMU_LOG" and (is_started or not name.startswith("TORCHELASTIC_"))
    }


def kept_in(out: str | os.PathLike[str]) -> Path:
    """That folder, which is made if need be.

    Raises:
        IoError: where it cannot be.
    """
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise IoError(error.errno, f"[emu] out {out} cannot be made: {error}") from None
    return Path(out).resolve()


def clear(folder: Path, rank: str = "*") -> None:
    """Removes what ranks of an earlier run have left in `folder`.

    Raises:
        IoError: where that cannot be done.
    """
    for kind in ("json", "csv"):
        for earlier in folder.glob(f"rank-{rank}.{kind}"):
            try:
                earlier.unlink(missing_ok=True)
            except OSError as error:
                raise IoError(
                    error.errno, f"[emu] {earlier}, of an earlier run, cannot be removed: {error}"
                ) from None


def ranks_of(folder: Path) -> tuple[int, list[int]]:
    """How many ranks the job of a run has, and the real ones; its links and its model, which may be
    elsewhere, are not looked at.

    Raises:
        InvalidArgument: for the folder of no run.
        CorruptData, IoError: where the job cannot be read.
    """
    if not (folder / FILE).is_file():
        raise InvalidArgument(
            f"[emu] {folder} has no {FILE}: give the folder of a gear emu run --out"
        )
    said = said_in(folder / FILE)
    return int(said.get("ranks", 0)), [int(rank) for rank in said.get("real", [0])]


def variables(file: Path, reports: Path | None) -> dict[str, str]:
    """By which a process that starts with them is of the job of that file; its report goes into
    the folder `reports`."""
    path = os.pathsep.join([str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])])
    found = {"PYTHONPATH": path, "GEAR_EMU": str(file.resolve())}
    if reports is not None:
        found["GEAR_EMU_LOG"] = str(reports)
    return found


def of_rank(job: Job, index: int) -> dict[str, str]:
    """What the real rank of that number has of its own."""
    return {
        **numbered(job, job.real[index], os.environ),
        "LOCAL_RANK": str(index),
        "LOCAL_WORLD_SIZE": str(len(job.real)),
    }


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])

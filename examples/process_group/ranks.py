"""The ranks of a program: by mpirun, srun or torchrun, or one process alone."""

from __future__ import annotations

import hashlib
import os
import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore

T = TypeVar("T")

BY_MPI = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")  # as Open MPI, MPICH and srun set them
BY_TORCHRUN = "RANK"


class Failed(Exception):
    """What a program says before it ends with exit code 1."""


@dataclass(frozen=True)
class Ranks:
    """A process among those of its program, and the group by which they talk.

    Attributes:
        program: its name, with which every line that it prints begins.
        group: of torch.distributed; every collective of a program goes by it.
        device: where its tensors are.
    """

    program: str
    group: Any
    device: torch.device

    @property
    def rank(self) -> int:
        return dist.get_rank(self.group)

    @property
    def size(self) -> int:
        return dist.get_world_size(self.group)

    def say(self, text: str) -> None:
        """Prints a line, on rank 0."""
        if self.rank == 0:
            print(f"{self.program}: {text}", flush=True)

    def mean(self, value: Tensor) -> float:
        """Of all ranks' numbers. Collective."""
        total = value.detach().to(torch.float64, copy=True)
        dist.all_reduce(total, group=self.group)
        return float(total) / self.size

    def share(self, batch_size: int) -> int:
        """How many items of each batch are this rank's.

        Raises:
            Failed: the ranks cannot have equally many, so that their mean would not be that of all.
        """
        if batch_size < 1 or batch_size % self.size:
            raise Failed(
                f"--batch-size {batch_size}: {self.size} ranks share it equally: give a multiple "
                f"of {self.size}"
            )
        return batch_size // self.size

    def together(self, make: Callable[[], T]) -> T:
        """What `make` returns. Where it fails on some ranks, all of them fail: none waits for
        another that is gone. Collective.

        Raises:
            Failed: with the words of the first rank that has failed.
        """
        made, said = None, ""
        try:
            made = make()
        except Failed as error:
            said = str(error)
        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, said, group=self.group)
        for rank, why in enumerate(told):
            if why:
                raise Failed(why if self.size == 1 else f"rank {rank}: {why}")
        assert made is not None
        return made

    def check_equal_weights(self, model: nn.Module) -> None:
        """All ranks have the same parameters, to the bit. Collective.

        Raises:
            Failed: some have others than rank 0.
        """
        digest = hashlib.sha256()
        for parameter in model.parameters():
            digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, digest.hexdigest(), group=self.group)
        others = [rank for rank, one in enumerate(told) if one != told[0]]
        if others:
            raise Failed(f"ranks {others} have ended with other weights than rank 0")


def parser_of(summary: str) -> ArgumentParser:
    """With the options that all programs have."""
    parser = ArgumentParser(description=summary, formatter_class=ArgumentDefaultsHelpFormatter)
    ranks = parser.add_argument_group("ranks")
    ranks.add_argument(
        "--backend", default="gear_mpi", help="of torch.distributed: gear_mpi, gloo or nccl"
    )
    ranks.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        help="where tensors are (default: cuda with nccl, else cpu)",
    )
    ranks.add_argument(
        "--threads", type=int, help="of each rank (default: 1; one process alone takes all cores)"
    )
    return parser


def run(program: str, parser: ArgumentParser, train: Callable[[Namespace, Ranks], object]) -> int:
    """Joins the ranks and trains; returns the exit code."""
    options = parser.parse_args()
    try:
        with _joined(program, options) as ranks:
            try:
                train(options, ranks)
            except Failed as error:
                if ranks.rank == 0:
                    print(f"{program}: FAILED: {error}", file=sys.stderr, flush=True)
                return 1
    except Failed as error:
        print(f"{program}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


@contextmanager
def _joined(program: str, options: Namespace) -> Iterator[Ranks]:
    by_mpi = any(name in os.environ for name in BY_MPI)
    alone = not by_mpi and BY_TORCHRUN not in os.environ
    if options.threads or not alone:
        torch.set_num_threads(options.threads or 1)
    device = _device(options)
    try:
        if options.backend == "gear_mpi" or (by_mpi and BY_TORCHRUN not in os.environ):
            import gear_mpi

            gear_mpi.register()  # which torch 2.5 and later do by themselves
        if not alone:
            dist.init_process_group(options.backend)
        elif options.backend == "gear_mpi":
            dist.init_process_group(options.backend, init_method="mpi://")
        else:
            dist.init_process_group(options.backend, store=HashStore(), rank=0, world_size=1)
    except (ImportError, RuntimeError, ValueError) as error:
        hint = "" if options.backend == "gloo" else "; --backend gloo needs torch alone"
        raise Failed(f"no ranks by {options.backend}: {error}{hint}") from error
    ranks = Ranks(program, dist.group.WORLD, device)
    number = "1 rank" if ranks.size == 1 else f"{ranks.size} ranks"
    ranks.say(f"{number} of {options.backend} on {device.type}")
    if alone:
        ranks.say(f"this process is alone; several: {_how_several(options.backend)}")
    try:
        yield ranks
    finally:
        dist.destroy_process_group()


def _device(options: Namespace) -> torch.device:
    kind = options.device or ("cuda" if options.backend == "nccl" else "cpu")
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Failed("--device cuda: torch sees no GPU here: give --device cpu")
    named = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
    own = next((os.environ[name] for name in named if name in os.environ), "0")
    device = torch.device("cuda", int(own) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _how_several(backend: str) -> str:
    script = Path(sys.argv[0])
    if backend == "gear_mpi":
        return f"mpirun -n 2 python {script}, or gear run -n 2 {script}"
    return f"torchrun --nproc-per-node=2 {script} --backend {backend}"

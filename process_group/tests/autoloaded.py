"""A rank of a program that imports torch alone: started by mpirun."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist


def main() -> None:
    assert "gear" not in sys.modules
    dist.init_process_group("gear_mpi")
    total = torch.ones(3)
    dist.all_reduce(total)
    assert total.tolist() == [dist.get_world_size()] * 3

    import gear_mpi  # beside what torch's import has made known

    assert gear_mpi.get_compression() == "none"
    half = dist.new_group(backend="gear_mpi", pg_options=gear_mpi.Options(compression="bf16"))
    assert gear_mpi.get_compression(half) == "bf16"
    dist.destroy_process_group()
    print("autoloaded", flush=True)


if __name__ == "__main__":
    main()

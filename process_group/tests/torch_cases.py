"""One rank of three that plays PyTorch's own cases of torch.distributed, those that it has for gloo
on CPUs: `torch_cases.py FOLDER [BACKEND [CASE...]]`, started by mpirun. Writes to FOLDER/RANK.json
what became of each: "passed", "skipped: WHY", or what was raised.

torch's cases start processes of their own, which MPI would not know: here each is called in the
ranks that there are, one after the other, in a group of its own. Ranks meet by files between them,
so that one that has failed does not hold up the next.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
import unittest
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

import gear_mpi

# The base class of torch's cases; what it adds to unittest's, texts that a program updates, they do
# not use.
sys.modules.setdefault("expecttest", ModuleType("expecttest"))
if not hasattr(sys.modules["expecttest"], "TestCase"):
    sys.modules["expecttest"].TestCase = unittest.TestCase  # type: ignore[attr-defined]

from torch.testing._internal import common_distributed  # noqa: E402

SIZE = 3
LIMIT_S = 60.0  # of a group, unless torch gives a case another limit
MEET_S = 240.0  # until a rank that is still in a case is taken for lost


class AsGloo(str):
    """A backend's name that torch's cases take for gloo's: they ask for a name where they mean what
    a backend can do, or tensors of the host. torch itself sees the text."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other == "gloo"

    def __ne__(self, other: object) -> bool:
        return other != "gloo"

    def __hash__(self) -> int:
        return hash("gloo")


def torch_module(backend: str, folder: Path) -> ModuleType:
    """torch's cases, as they are for gloo."""
    again = f"file://{folder}/again"  # for a group in place of that which a case begins with
    os.environ |= {"BACKEND": backend, "WORLD_SIZE": str(SIZE), "TEMP_DIR": str(folder)}
    os.environ["INIT_METHOD"] = again
    common_distributed.DistTestCases.backend_feature["plugin"].add(gear_mpi.NAME)
    kept = os.environ
    try:
        os.environ = {**kept, "BACKEND": AsGloo(backend)}  # type: ignore[assignment]  # noqa: B003
        name = "torch.testing._internal.distributed.distributed_test"
        module = importlib.import_module(name)
    finally:
        os.environ = kept  # noqa: B003
    return module


def names_of(case_class: type) -> list[str]:
    return unittest.defaultTestLoader.getTestCaseNames(case_class)  # type: ignore[arg-type]


def play(module: ModuleType, case: Any, name: str, rank: int, folder: Path) -> str:
    """What becomes of one case on this rank."""
    for part in ("barrier", "test_dir", "init_dir"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    os.environ["TEMP_DIR"] = str(folder)
    module.Barrier.barrier_id = 0
    case.rank, case.file_name = rank, str(folder / "store")
    limit_s = module.CUSTOM_PG_TIMEOUT.get(name, LIMIT_S)
    torch.manual_seed(0)
    try:
        dist.init_process_group(
            module.BACKEND,
            init_method=case.init_method,
            world_size=SIZE,
            rank=rank,
            timeout=timedelta(seconds=limit_s),
        )
        meet(folder, rank, "before")
        getattr(case, name)()
    except unittest.SkipTest as skip:
        return f"skipped: {skip}"
    except SystemExit as left:
        skips = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}
        return f"skipped: {skips[left.code]}" if left.code in skips else f"exit({left.code})"
    except Exception:  # noqa: BLE001  # it is told
        return traceback.format_exc()[-3000:]
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return "passed"


def meet(folder: Path, rank: int, where: str) -> None:
    """Returns when all ranks have come here."""
    (folder / f"{where}-{rank}").touch()
    end = time.monotonic() + MEET_S
    while not all((folder / f"{where}-{one}").exists() for one in range(SIZE)):
        if time.monotonic() > end:
            raise TimeoutError(f"not all ranks have left {folder.name}")
        time.sleep(0.01)


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1]).resolve()
    backend = sys.argv[2] if len(sys.argv) > 2 else gear_mpi.NAME
    rank = int(next(os.environ[n] for n in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if n in os.environ))
    module = torch_module(backend, folder)
    case_class = type(
        "Cases", (module.DistributedTest._DistTestBase, module.TestDistBackend), {"rank": rank}
    )
    said = {}
    for name in sys.argv[3:] or names_of(case_class):
        begin = time.monotonic()
        method = getattr(case_class, name)
        if getattr(method, "__unittest_skip__", False):
            said[name] = f"skipped: {method.__unittest_skip_why__}"
            continue
        said[name] = play(module, case_class(name), name, rank, folder / name)
        last = said[name].strip().splitlines()[-1][:200]
        print(f"{rank} {name} {time.monotonic() - begin:.1f} s: {last}", flush=True)
        meet(folder / name, rank, "after")
    (folder / f"{rank}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()

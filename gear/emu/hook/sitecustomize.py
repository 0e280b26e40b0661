"""Python runs this as it starts where gear.emu.start has put this folder on PYTHONPATH: a process
that a launcher has counted gets its rank of the job, groups of torch.distributed become gear_emu's,
whatever backend the program asks for, and Horovod is refused. The user's own sitecustomize runs as
well."""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any


def _run_next() -> None:
    own = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


class _Hook:
    """Sees to one module whenever that is imported."""

    def __init__(self, name: str, loader: type["_Over"]) -> None:
        self._name = name
        self._loader = loader
        self._is_looking = False

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_looking = False
        if spec is None or spec.loader is None:
            return spec
        spec.loader = self._loader(spec.loader)
        return spec


class _Over(importlib.abc.Loader):
    """Another loader, and something more."""

    def __init__(self, under: importlib.abc.Loader) -> None:
        self._under = under

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._under.create_module(spec)

    def __getattr__(self, name: str) -> Any:  # get_source and its like
        return getattr(self._under, name)


class _Opening(_Over):
    """Opens the door of torch.distributed."""

    def exec_module(self, module: ModuleType) -> None:
        self._under.exec_module(module)
        from gear.emu.door import open_door

        open_door(module)


class _Refusing(_Over):
    """Of what goes round the groups of torch.distributed."""

    def exec_module(self, module: ModuleType) -> None:
        raise ImportError(
            f"[emu] {module.__name__} goes round the groups of torch.distributed, which are what is"
            " emulated: train by DistributedDataParallel, or run it without gear emu"
        )


def _take_place() -> None:
    """Launchers count the processes that they start; here they are ranks of the job."""
    from gear.emu.job import Job
    from gear.emu.launched import place

    os.environ.update(place(Job.load(os.environ["GEAR_EMU"]), os.environ))


_COUNTED = {
    *("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"),
    "PMIX_RANK",
}

try:
    if os.environ.get("GEAR_EMU"):
        sys.meta_path.insert(0, _Hook("torch.distributed.distributed_c10d", _Opening))
        sys.meta_path.insert(0, _Hook("horovod", _Refusing))
        if "GEAR_EMU_RANK" not in os.environ and _COUNTED & os.environ.keys():
            # What is wrong, the first group says, if there is one: this may be a launcher itself.
            with contextlib.suppress(Exception):
                _take_place()
    else:
        sys.stderr.write(
            "[emu] gear.emu's hook is on PYTHONPATH and GEAR_EMU is not set: nothing is emulated."
            " Have the launcher pass both on, or neither\n"
        )
finally:
    _run_next()

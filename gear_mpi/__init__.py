"""Makes the process group `gear_mpi` known to torch, without GEAR and without MPI.

`import torch` calls `autoload`, by the entry point of the group torch.backends that GEAR's wheel
has. So `init_process_group("gear_mpi")` needs no import of GEAR, which comes with the first group,
and MPI with it. TORCH_DEVICE_BACKEND_AUTOLOAD=0 has torch do without; `import gear.mpi` does it
then. See docs/process-group.md.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["NAME", "autoload", "register"]

NAME = "gear_mpi"
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # by which torch's ranks meet

Meet = Callable[..., Iterator[Any]]


def autoload() -> None:
    """`register`, for torch's import: raises nothing. What goes wrong is logged as a warning."""
    try:
        register()
    except Exception as error:  # noqa: BLE001, whatever it is: `import torch` must not fail
        _log().warning("torch.distributed does not know gear_mpi: %r", error)


def register() -> None:
    """Makes the backend, and the ways in which its ranks meet, known to torch.distributed; once a
    process. A torch without torch.distributed stays as it is."""
    import torch.distributed as dist

    if not dist.is_available() or hasattr(dist.Backend, NAME.upper()):
        return
    rendezvous = importlib.import_module("torch.distributed.rendezvous")  # a function hides it
    handlers = rendezvous._rendezvous_handlers
    by_environment = handlers["env"]
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    rendezvous.register_rendezvous_handler("mpi", _by_mpi)
    handlers["env"] = _or_by_mpi(by_environment)


def _create(given: Any, pg_options: Any) -> Any:
    """The backend of one group; torch calls it on the ranks of the group."""
    from gear.mpi.backend import create

    return create(given, pg_options)


def _by_mpi(url: str, **words: Any) -> Iterator[Any]:
    """For ``init_method="mpi://"``."""
    from gear.mpi.place import by_mpi

    yield from by_mpi(url, **words)


def _or_by_mpi(by_environment: Meet) -> Meet:
    """torch's ``env://``; where the environment lacks some of what it goes by, GEAR is asked."""

    def meet(url: str, **words: Any) -> Iterator[Any]:
        found = by_environment
        if not all(name in os.environ for name in VARIABLES) and "rank=" not in url:
            try:
                from gear.mpi.place import by_mpi_or

                found = by_mpi_or(by_environment)
            except Exception as error:  # noqa: BLE001, of a GEAR that cannot be imported: torch goes on
                _log().warning("ranks cannot meet by MPI, as GEAR does not load: %r", error)
        yield from found(url, **words)

    return meet


def _log() -> logging.Logger:
    return logging.getLogger(NAME)

"""`gear_mpi`: torch.distributed over MPI, for the PyTorch that pip installs.

    torch.distributed.init_process_group("gear_mpi")  # under mpirun or srun, nothing else

`import torch` calls `autoload`, by the entry point of the group torch.backends that the wheel has,
so no program needs an import of this package to use the backend. An import of it loads neither
torch nor MPI; what programs set (options, compression, routes) comes when it is first named, and
MPI with the first group. TORCH_DEVICE_BACKEND_AUTOLOAD=0 has torch do without; `register` makes
the backend known then.

See docs/process-group.md. It needs the extension `gear_mpi._c10d`, which is compiled for one torch
and one MPI; without it, making a process group raises, and nothing before does.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gear_mpi.backend import Options, monitored_barrier
    from gear_mpi.compression import get_compression, set_compression
    from gear_mpi.errors import InvalidArgument, TransportError
    from gear_mpi.library import available
    from gear_mpi.place import set_environment
    from gear_mpi.routing import get_route, set_route

__all__ = [
    "NAME",
    "InvalidArgument",
    "Options",
    "TransportError",
    "autoload",
    "available",
    "get_compression",
    "get_route",
    "monitored_barrier",
    "register",
    "set_compression",
    "set_environment",
    "set_route",
]

NAME = "gear_mpi"
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # by which torch's ranks meet

_HOMES = {
    "InvalidArgument": "errors",
    "Options": "backend",
    "TransportError": "errors",
    "available": "library",
    "get_compression": "compression",
    "get_route": "routing",
    "monitored_barrier": "backend",
    "set_compression": "compression",
    "set_environment": "place",
    "set_route": "routing",
}

Meet = Callable[..., Iterator[Any]]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"gear_mpi.{_HOMES[name]}"), name)


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
    from gear_mpi.backend import create

    return create(given, pg_options)


def _by_mpi(url: str, **words: Any) -> Iterator[Any]:
    """For ``init_method="mpi://"``."""
    from gear_mpi.place import by_mpi

    yield from by_mpi(url, **words)


def _or_by_mpi(by_environment: Meet) -> Meet:
    """torch's ``env://``; where the environment lacks some of what it goes by, MPI is asked."""

    def meet(url: str, **words: Any) -> Iterator[Any]:
        found = by_environment
        if not all(name in os.environ for name in VARIABLES) and "rank=" not in url:
            try:
                from gear_mpi.place import by_mpi_or

                found = by_mpi_or(by_environment)
            except Exception as error:  # noqa: BLE001, of a torch that lacks something: it goes on
                _log().warning("ranks cannot meet by MPI, as gear_mpi does not load: %r", error)
        yield from found(url, **words)

    return meet


def _log() -> logging.Logger:
    return logging.getLogger(NAME)

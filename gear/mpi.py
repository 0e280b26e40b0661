"""`gear_mpi` by its former name, which the next release leaves out: `import gear_mpi`."""

import warnings

from gear_mpi import (
    NAME,
    Options,
    available,
    get_compression,
    get_route,
    monitored_barrier,
    register,
    set_compression,
    set_environment,
    set_route,
)

__all__ = [
    "NAME",
    "Options",
    "available",
    "get_compression",
    "get_route",
    "monitored_barrier",
    "set_compression",
    "set_environment",
    "set_route",
]

warnings.warn(
    "gear.mpi is the package gear_mpi: import gear_mpi (python -m gear_mpi.trace); the next "
    "release has no gear.mpi",
    DeprecationWarning,
    stacklevel=2,
)
register()

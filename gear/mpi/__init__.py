"""`gear_mpi`: torch.distributed over MPI, for the PyTorch that pip installs.

    torch.distributed.init_process_group("gear_mpi")  # under mpirun or srun, nothing else

torch's import makes the backend known (the package gear_mpi beside this one), and so does that of
this module, which has what programs set: options, compression, routes.

See docs/process-group.md. It needs the extension `gear._c10d`, which `tools/c10d.sh` builds for one
torch and one MPI; importing this module without it raises nothing, making a process group does.
"""

from gear.mpi.backend import NAME, Options, monitored_barrier, register
from gear.mpi.compression import get_compression, set_compression
from gear.mpi.library import available
from gear.mpi.place import set_environment
from gear.mpi.routing import get_route, set_route

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

register()

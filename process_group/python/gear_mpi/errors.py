"""The exceptions of gear_mpi's own calls; operations of torch.distributed raise what torch's do.

Every message reads ``[mpi] what failed: given, allowed, what to do``.
"""


class InvalidArgument(ValueError):
    """A value, name or combination that the caller can correct."""


class TransportError(RuntimeError):
    """Ranks did not come in time, or moving bytes between them failed."""

"""The exceptions of GEAR, one class per cause.

Every message reads ``[area] what failed: given, allowed, what to do``.
"""

from gear import _core


class GearError(Exception):
    """Base of every error of GEAR."""


class InvalidArgument(GearError, ValueError):
    """A value, name or combination that the caller can correct."""


class OutOfMemory(GearError, MemoryError):
    """Memory of some tier is exhausted or was refused."""


class CudaError(GearError, RuntimeError):
    """A CUDA call failed."""


class TransportError(GearError, RuntimeError):
    """Moving bytes between processes or nodes failed."""


class CorruptData(GearError, RuntimeError):
    """Stored bytes are torn, truncated, foreign or of a newer format."""


class IoError(GearError, OSError):
    """The operating system refused an operation on a file; ``errno`` says why."""


_core.raise_as(
    InvalidArgument=InvalidArgument,
    OutOfMemory=OutOfMemory,
    CudaError=CudaError,
    TransportError=TransportError,
    CorruptData=CorruptData,
    IoError=IoError,
)

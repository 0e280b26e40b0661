"""The exceptions of GEAR, one class per cause.

Every message reads ``[area] what failed: given, allowed, what to do``.
"""

from gear._core import (
    CorruptData,
    CudaError,
    GearError,
    InvalidArgument,
    IoError,
    OutOfMemory,
    TransportError,
)

__all__ = [
    "CorruptData",
    "CudaError",
    "GearError",
    "InvalidArgument",
    "IoError",
    "OutOfMemory",
    "TransportError",
]

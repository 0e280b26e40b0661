"""GEAR: GPU-centric experience replay for reinforcement learning on HPC clusters."""

import warnings as _warnings
from importlib.util import find_spec as _find_spec

from gear import namesake as _namesake

# Python puts the folder that it is started in first, and a clone has a folder gear.
if _find_spec("gear._core") is None:
    raise ImportError(
        f"[import] gear in {__path__[0]} is source code without its compiled core: start Python in "
        "another folder, where gear is the installed one, or build it here with 'make setup'"
    )

if _mixed := _namesake.mixed_folder(__path__):
    _warnings.warn(_namesake.mixture(_mixed), stacklevel=2)

from gear._core import version as _version
from gear.batch import Batch
from gear.buffer import ReplayBuffer
from gear.device import check_visible_device
from gear.distributed import Group
from gear.episode import Episode
from gear.errors import (
    CorruptData,
    CudaError,
    GearError,
    InvalidArgument,
    IoError,
    OutOfMemory,
    TransportError,
)
from gear.loader import Loader
from gear.rate_limit import RateLimit
from gear.samplers import Fifo, Lifo, Sampler, Sequential, TopK, Uniform, Weighted
from gear.schema import Column, Schema
from gear.statistics import BufferStats, LoaderStats
from gear.vector_writer import VectorWriter
from gear.window import Derived, IsLast, Step, StepIndex, Terminated, Window
from gear.writer import Writer

__version__ = _version()

__all__ = [
    "Batch",
    "BufferStats",
    "Column",
    "CorruptData",
    "CudaError",
    "Derived",
    "Episode",
    "Fifo",
    "GearError",
    "Group",
    "InvalidArgument",
    "IoError",
    "IsLast",
    "Lifo",
    "Loader",
    "LoaderStats",
    "OutOfMemory",
    "RateLimit",
    "ReplayBuffer",
    "Sampler",
    "Schema",
    "Sequential",
    "Step",
    "StepIndex",
    "Terminated",
    "TopK",
    "TransportError",
    "Uniform",
    "VectorWriter",
    "Weighted",
    "Window",
    "Writer",
    "check_visible_device",
]

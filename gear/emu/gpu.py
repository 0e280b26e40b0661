"""What emulated groups need for tensors on GPUs: kernels that hold a stream, and NCCL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gear.emu.events import Event, Jitter, Slow
from gear.errors import InvalidArgument

if TYPE_CHECKING:
    from gear.emu.models.links import Links

# %globaltimer counts ns, in steps of 32 on an H200. A kernel takes what NCCL's takes (its blocks,
# their threads and memory) so long as NCCL's would, and leaves by itself.
SOURCE = r"""
__device__ unsigned long long now() {
  unsigned long long time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

// times: when the operation began, and when its values were there.
extern "C" __global__ void gear_emu_mark(unsigned long long* times, int place) {
  times[place] = now();
}

// From there on, what counts is when this block came to its place: NCCL's channels each carry their
// own part from then. Below this much, no other kernel was in the way: it is part of the time.
#define LAUNCH_NS 4000.0
// What the launches around a hold take by themselves: the median of operations on an H200.
#define OWN_NS 2300.0

extern "C" __global__ void gear_emu_hold(const unsigned long long* times, double for_ns,
                                         unsigned int links, unsigned int* in_flight) {
  if (threadIdx.x == 0) {
    unsigned long long last = now();
    const double between = (double)(last - times[1]);
    double left = for_ns - OWN_NS - (double)(times[1] - times[0]);
    left -= between < LAUNCH_NS ? between : LAUNCH_NS;
    if (blockIdx.x == 0) {
      for (int i = 0; i < 32; ++i) {
        if (links >> i & 1) atomicAdd(&in_flight[i], 1u);
      }
    }
    while (left > 0) {
      unsigned int most = 1;
      for (int i = 0; i < 32; ++i) {
        if (links >> i & 1) {
          const unsigned int others = *(volatile unsigned int*)&in_flight[i];
          if (others > most) most = others;
        }
      }
      __nanosleep(50);
      const unsigned long long time = now();
      left -= (double)(time - last) / most;
      last = time;
    }
    if (blockIdx.x == 0) {
      for (int i = 0; i < 32; ++i) {
        if (links >> i & 1) atomicSub(&in_flight[i], 1u);
      }
    }
  }
  __syncthreads();
}
"""

_kept: list[Any] = []  # for ever, as what the library has of them
_without_footprints = False
_group_bytes: int | None = None


def kernels() -> tuple[int, int]:
    """The kernels `mark` and `hold` for the current GPU, as its driver calls them (CUfunction).

    Raises:
        InvalidArgument: of a torch that compiles none.
    """
    import torch

    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
    if compile_kernel is None:
        raise InvalidArgument(
            f"[emu] torch {torch.__version__} compiles no kernels: tensors on GPUs need torch 2.9"
            " or newer; or give those of the host"
        )
    with _no_toolkit_needed():
        found = [compile_kernel(SOURCE, f"gear_emu_{name}") for name in ("mark", "hold")]
    _kept.extend(found)
    mark, hold = (int(kernel.func.value) for kernel in found)
    return mark, hold


@contextmanager
def _no_toolkit_needed() -> Iterator[None]:
    """torch gives the compiler the toolkit's headers, and raises where there is none: these kernels
    include nothing, so that any folder does."""
    from torch.utils import cpp_extension

    home = cpp_extension.CUDA_HOME
    if home is None:
        cpp_extension.CUDA_HOME = str(Path(cpp_extension.__file__).parent)
    try:
        yield
    finally:
        cpp_extension.CUDA_HOME = home


def connected(store: Any, index: int, size: int, timeout: timedelta) -> Any:
    """NCCL's group of the real members.

    Raises:
        InvalidArgument: of a torch without NCCL.
    """
    import torch
    import torch.distributed as dist

    if not dist.is_nccl_available():
        raise InvalidArgument(
            f"[emu] torch {torch.__version__} has no NCCL, by which several real ranks exchange"
            " tensors on GPUs: make one rank real, or give tensors of the host"
        )
    from torch.distributed import PrefixStore, ProcessGroupNCCL  # type: ignore[attr-defined]

    options = ProcessGroupNCCL.Options()
    options._timeout = timeout
    return ProcessGroupNCCL(PrefixStore("nccl", store), index, size, options)


def refused(events: Sequence[Event], *, has_others: bool) -> str:
    """Why tensors on GPUs cannot be taken with these events of the job; empty: they can.

    has_others: several ranks are real. All of them have the same events, and so refuse alike.
    """
    if any(isinstance(event, Slow | Jitter) for event in events):
        return (
            "events 'slow' and 'jitter' are for tensors of the host: how long a GPU has computed is"
            " not known; leave them out"
        )
    if has_others and events:
        return (
            "events with several real ranks are for tensors of the host: those on GPUs would not"
            " agree when they come; make one rank real, or leave them out"
        )
    return ""


def takes_no_room() -> bool:
    """The links of a group of this process do not say what NCCL's kernels take."""
    return _without_footprints


def group_bytes() -> int | None:
    """Bytes of a GPU that NCCL would hold for each group; None: the links do not say it."""
    return _group_bytes


def footprints(links: Links) -> dict[str, list[tuple[int, int, int, int]]]:
    """What NCCL's kernels take of a GPU, by operation: (bytes from which on, blocks, threads of a
    block, bytes of its shared memory)."""
    global _without_footprints, _group_bytes
    _without_footprints = _without_footprints or not links.footprints
    _group_bytes = links.beside.group_bytes if links.beside else None
    found: dict[str, list[tuple[int, int, int, int]]] = {}
    for one in sorted(links.footprints, key=lambda each: (each.operation, each.bytes)):
        row = (one.bytes, one.blocks, one.threads, one.shared)
        found.setdefault(one.operation, []).append(row)
    return found

"""The backend's name in what DistributedDataParallel says of itself."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


@functools.cache
def name_backend(name: str) -> None:
    """Lets ``_get_ddp_logging_data`` tell groups with the backend `name` as
    ``torch.distributed.get_backend`` does; once a process.

    torch asks the process group, which knows torch's own backends: it says "custom" of others, and
    "undefined" where there are several.
    """
    original: Any = DistributedDataParallel._get_ddp_logging_data

    @functools.wraps(original)
    def with_name(self: Any) -> dict[str, Any]:
        told: dict[str, Any] = original(self)
        of_group = dist.get_backend(self.process_group)
        if name in of_group:
            told["backend_name"] = of_group
        return told

    DistributedDataParallel._get_ddp_logging_data = with_name  # type: ignore[method-assign]

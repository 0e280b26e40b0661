"""What lives in one process: it is neither pickled nor copied."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex

from gear.errors import InvalidArgument


class InProcess:
    """Base of what holds memory, threads or connections of its process.

    pickle, copy, ``torch.save`` and a spawned process raise InvalidArgument, which says what to do.
    """

    __slots__ = ()
    _instead: ClassVar[str]  # what to do, for the message

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise InvalidArgument(
            f"[pickle] a {type(self).__name__} is of the process that made it and can be neither "
            f"pickled nor copied: {self._instead}"
        )

"""How a message between two ranks begins: with what its sender says of the call that it is in."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gear.errors import TransportError

# The first part of a message: FIRST_BYTES that begin with the frame, then what they have ROOM for.
FIRST_BYTES = 512
# "gear", version, kind, longer, number of the call, length, label
_FRAME = struct.Struct("<4sHBBIQ44s")
ROOM = FIRST_BYTES - _FRAME.size
VERSION = 2
KINDS = ("", "barrier", "exchange", "allgather")
NUMBERS = 1 << 32  # of calls, which then begin anew


@dataclass(frozen=True)
class Frame:
    """What a rank says of the call that it is in.

    Attributes:
        kind: one of KINDS.
        number: of the channel's calls, this one counted.
        doing: what the user called, "ReplayBuffer.save".
        longer: some of its messages of this call are longer than a first part.
    """

    kind: str
    number: int
    doing: str
    longer: bool = False

    def first_part(self, message: memoryview) -> memoryview:
        """FIRST_BYTES: this frame with the message's length, and the first bytes of it."""
        kind, label = KINDS.index(self.kind), self.doing.encode()[:44]
        frame = _FRAME.pack(b"gear", VERSION, kind, self.longer, self.number, message.nbytes, label)
        return memoryview((frame + bytes(message[:ROOM])).ljust(FIRST_BYTES, b"\0"))

    @staticmethod
    def of_first_part(first: memoryview) -> tuple[Frame, int]:
        """(frame, length of the message)."""
        mark, version, kind, longer, number, length, label = _FRAME.unpack_from(first)
        if mark != b"gear" or version != VERSION or kind >= len(KINDS):
            raise TransportError(
                "[transport] a rank speaks another protocol: ranks of one group must run the same "
                "version of GEAR"
            )
        doing = label.rstrip(b"\0").decode(errors="replace")
        return Frame(KINDS[kind], number, doing, bool(longer)), length

    def __str__(self) -> str:
        doing = "" if self.doing in (self.kind, f"Group.{self.kind}") else f" of {self.doing}"
        return f"{self.kind}{doing} (call {self.number})"


def room() -> memoryview:
    """Where a first part is received."""
    return memoryview(bytearray(FIRST_BYTES))


def copy_beginning(first: memoryview, message: memoryview) -> None:
    """Fills `message`, which is as long as `first` says, with those of its bytes that are there."""
    head = min(message.nbytes, ROOM)
    message[:head] = first[_FRAME.size : _FRAME.size + head]

"""Where another process says that its bytes begin, they are read, beyond its memory, too."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/transport/shared/shared_memory.cpp",
    old=" || entry.bytes > kOutboxDataBytes ||\n"
    "      entry.offset > kOutboxDataBytes - entry.bytes) {",
    new=" || entry.bytes > kOutboxDataBytes) {",
    native=[
        "an entry of shared_memory that points beyond its outbox is refused",
    ],
)

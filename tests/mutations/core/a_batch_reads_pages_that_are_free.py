"""A batch says that it reads its pages only after those that it has spent may be written again."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/deliver/source.cpp",
    old=(
        "  const uint64_t ticket = shard.begin_read();  // before pages go that this "
        "batch reads\n"
        "  shard.index().release_spent();\n"
    ),
    new="  shard.index().release_spent();\n  const uint64_t ticket = shard.begin_read();\n",
    native=[
        "a page that a batch has spent is written again only when the batch is copied",
    ],
)

"""Whether a rank needs another round is said of the last receiver alone."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/transport/shared/shared_memory.cpp",
    old="own.more |= sent_[r] < to[r].size();",
    new="own.more = sent_[r] < to[r].size();",
    native=[
        "transport: exchange moves entries of any size, none and large ones too",
    ],
)

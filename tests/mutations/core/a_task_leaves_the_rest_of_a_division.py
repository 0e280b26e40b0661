"""Where the runs of a large batch are divided among threads, the rest of the division is not
copied."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/gather/gather_cpu.cpp",
    old="const size_t to = runs.size() * (t + 1) / tasks;",
    new="const size_t to = from + runs.size() / tasks;",
    native=[
        "gather: plans for the thread pool move what plans for one thread do",
    ],
)

"""A process counts as living as long as any process has its number."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/memory/shared/process_identity.cpp",
    old=(
        "return !exited && stat->start_time == process.start_time ? Liveness::kAlive "
        ": Liveness::kEnded;"
    ),
    new="return !exited ? Liveness::kAlive : Liveness::kEnded;",
    native=[
        "a reused pid does not keep a stale region alive",
    ],
)

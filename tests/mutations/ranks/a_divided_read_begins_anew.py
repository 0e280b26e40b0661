"""Every part of a read that is divided comes from where the read begins."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/transport/one_sided/run_reader.cpp",
    old="(*shards_)[rest.owner].from(read.from + rest.done);",
    new="(*shards_)[rest.owner].from(read.from);",
    native=[
        "one-sided reads: what others expose is read as it is, through chunks and "
        "queues of any size",
    ],
)

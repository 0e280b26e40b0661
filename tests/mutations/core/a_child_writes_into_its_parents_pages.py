"""A forked child may change what lies in memory that its parent goes on using."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/writing/writer.cpp",
    old='  shard_->check_process("writer");\n',
    new="",
    tests=["tests/contract/test_forked_child.py::test_every_method_reads_or_is_refused[exit-host]"],
)

"""Ranks that give gear_mpi tensors of other dtypes are told nothing, and get made-up numbers."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="process_group/src/torch/operations.cpp",
    old="  signature.dtype = short_name<sizeof signature.dtype>(c10::toString(tensor.scalar_type()",
    new="  static_cast<void>(c10::toString(tensor.scalar_type()",
    tests=["process_group/tests/test_disagreeing.py::test_every_rank_is_told_what_ranks_give"],
)

"""A rank does not hear of the largest priority that the others have, which new steps are to
take."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/group/agreement.cpp",
    old="shard_.index().raise_largest(one.largest, one.largest_weight);",
    new="static_cast<void>(one.largest);",
    tests=[
        "tests/distributed/test_largest_priority.py::test_of_all_ranks_since_the_last_draw",
    ],
    found_a_gap=True,
)

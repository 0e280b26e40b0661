"""A rank does not hear of the largest priority that the others have, which new steps are to
take."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/group/agreement.cpp",
    old="shard_.index().raise_max_priority(one.largest);",
    new="static_cast<void>(one.largest);",
    tests=[
        "tests/distributed/test_random_groups.py::test_random_groups",
    ],
    missed=True,
)

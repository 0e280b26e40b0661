"""Of ranks beyond a power of two, the neighbour that is given another's array sends it no
result."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/c10d/schedule/collectives.cpp",
    old="    add_round(place.rank - 1, false);",
    new="    add_round(place.rank - 1, true);",
    tests=[
        "tests/process_group/test_collectives.py::test_as_gloo",
    ],
    missed=True,
)

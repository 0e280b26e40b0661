"""A rule for those above a number of bytes takes those of just as many, too."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="process_group/python/gear_mpi/routing.py",
    old='return (0, limit + 1) if low == "gloo" else (limit + 1, NO_LIMIT)',
    new='return (0, limit + 1) if low == "gloo" else (limit, NO_LIMIT)',
    tests=[
        "process_group/tests/test_routing.py::test_ranges_of_rules",
    ],
)

"""A wheel that was compiled by another compiler is taken from the cache."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="recipes/wheels.sh",
    old='for tool in python compiler mpi cuda; do tool_version "$tool"; done',
    new='for tool in python mpi cuda; do tool_version "$tool"; done',
    tests=[
        "tests/distribution/test_stack_wheels.py::test_another_determinant_makes_another",
        "tests/distribution/test_build_layers.py::test_values_of_the_site_go_into",
    ],
)

"""A wheel that is damaged in the cache is never replaced, and compiled by every build."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="recipes/wheels.sh",
    old='    whole "$2" || rm -rf "$2"\n',
    new="",
    tests=[
        "tests/distribution/test_stack_wheels.py::test_a_damaged_one_is_made_again",
    ],
)

"""Observations of the episodes that are held out count in the scales of what is learned from."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/tasks/saved/facts.py",
    old="        if held_out[-1]:\n            continue\n",
    new="",
    tests=[
        "tests/train/test_bc.py::test_what_is_held_out_is_not_learned_from",
    ],
)

"""Rank 0 gives a checkpoint its name as soon as it has written its own part."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/checkpoint.py",
    old="    for step in (prepare, write, commit):\n        together(group, step, SAVE)\n",
    new=(
        "    together(group, prepare, SAVE)\n"
        "    together(group, lambda: (write(), commit()), SAVE)\n"
    ),
    tests=[
        "tests/distributed/test_saving_changes_nothing.py::test_it_gets_its_name_when_all_have_written",
    ],
)

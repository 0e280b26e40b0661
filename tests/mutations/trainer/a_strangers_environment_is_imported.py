"""A policy file that names an environment of its own has it imported."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/tasks/known.py",
    old='    if not isinstance(name, str) or ":" in name:\n        return False\n',
    new='    if ":" in str(name):\n        return True\n',
    tests=["tests/train/test_strangers.py::test_an_environment_that_is_not_known_is_not_made"],
)

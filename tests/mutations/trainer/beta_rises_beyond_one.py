"""The exponent of importance weights goes on rising after it has reached 1."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/tasks/replay.py",
    old="(1.0 - replay.beta) * min(1.0, step / replay.beta_steps)",
    new="(1.0 - replay.beta) * (step / replay.beta_steps)",
    tests=[
        "tests/train/test_keys.py::test_beta_rises_over_beta_steps",
    ],
)

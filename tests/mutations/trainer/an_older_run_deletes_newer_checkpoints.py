"""A run that goes on from an older checkpoint deletes newer ones that are not its own."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/record/checkpoint.py",
    old="[found for found in checkpoints(run_dir) if found.step <= step][:-keep]:",
    new="checkpoints(run_dir)[:-keep]:",
    tests=[
        "tests/train/test_survival.py::test_older_checkpoint_does_not_delete_newer_ones",
    ],
)

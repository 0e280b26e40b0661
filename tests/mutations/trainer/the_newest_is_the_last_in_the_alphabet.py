"""Of several checkpoints, the newest is taken to be the one whose name comes last in the
alphabet."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/record/checkpoint.py",
    old="return sorted(found.values(), key=lambda checkpoint: checkpoint.step)",
    new="return sorted(found.values(), key=lambda checkpoint: checkpoint.path.name)",
    tests=[
        "tests/train/test_resume.py::test_newest_is_found_by_number",
    ],
)

"""A step at which an episode was truncated is stored as one at which it terminated."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/tasks/playing.py",
    old='"terminated": terminated}',
    new='"terminated": terminated or truncated}',
    tests=[
        "tests/train/test_team.py::test_columns_hold_what_happened",
    ],
)

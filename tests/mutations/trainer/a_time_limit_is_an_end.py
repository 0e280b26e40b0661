"""A step at which an episode was truncated is stored as one at which it terminated."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/tasks/playing.py",
    old='row = {"action": action, "reward": learned, "terminated": terminated}',
    new=('row = {"action": action, "reward": learned, "terminated": terminated or truncated}'),
    tests=[
        "tests/train/test_acting.py::test_episodes_are_stored_apart",
        "tests/train/test_policies.py::test_collected_data_is_whole_episodes_to_learn_from",
        "tests/train/test_resume.py::test_simulator_that_does_not_reproduce",
        "tests/train/test_learning.py::test_view_is_the_stored_window",
    ],
)

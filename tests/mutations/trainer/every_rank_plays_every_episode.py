"""Every rank plays all episodes of an evaluation, so that each counts several times."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/tasks/evaluation.py",
    old="range(self._ranks.rank, self._config.eval_episodes, self._ranks.size)",
    new="range(self._config.eval_episodes)",
    tests=[
        "tests/train/test_evaluation.py::test_over_ranks_the_same_episodes_are_divided",
    ],
)

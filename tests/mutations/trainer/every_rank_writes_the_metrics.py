"""Every rank writes the rows of evaluations into the one file of metrics."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/record/metrics.py",
    old="        if learner.ranks.rank == 0:\n            self._writers",
    new="        if learner.ranks.rank >= 0:\n            self._writers",
    tests=[
        "tests/train/test_ddp.py::test_two_ranks_by_hand",
    ],
    found_a_gap=True,
)

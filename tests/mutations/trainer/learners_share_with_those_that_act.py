"""The mean of the learners' gradients is taken over the ranks that only act, too."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/strategies/ddp.py",
    old="torch._foreach_mul_(self._gradients(), self._ranks.times_of_first(self._learners))",
    new="torch._foreach_mul_(self._gradients(), 1.0)",
    tests=[
        "tests/train/test_learners.py::test_the_gradient_is_the_learners_mean",
    ],
)

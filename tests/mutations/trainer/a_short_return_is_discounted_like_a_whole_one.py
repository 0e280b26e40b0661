"""Where an episode ends after fewer than n steps, its bootstrap value is discounted by n."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/tasks/nstep.py",
    old="discount=torch.where(terminated.any(1), 0.0, powers[steps]),",
    new="discount=torch.where(terminated.any(1), 0.0, powers[n_step]),",
    tests=[
        "tests/train/test_nstep.py::test_equals_slow_reference",
    ],
)

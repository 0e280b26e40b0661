"""The target network of DQN stays as it was at the start."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/algo/dqn.py",
    old="torch._foreach_copy_(self._target_values, self._online_values)",
    new="self._target.requires_grad_(False)",
    tests=[
        "tests/train/test_losses.py::test_dqn_target_is_copied_every_so_many_updates",
    ],
)

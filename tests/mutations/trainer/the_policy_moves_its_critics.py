"""The gradient of SAC's policy reaches the weights of the critics that judge it."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/algo/sac.py",
    old="self._critic(t.obs, action, frozen=True)",
    new="self._critic(t.obs, action, frozen=False)",
    tests=[
        "tests/train/test_losses.py::test_sac_critics",
    ],
)

"""An evaluation leaves the random numbers of the training where it has brought them."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/train/tasks/evaluation.py",
    old="            restore_rng(generators)\n",
    new="            pass\n",
    tests=[
        "tests/train/test_evaluation.py::test_training_is_bit_equal_with_and_without",
    ],
)

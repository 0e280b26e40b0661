"""Weights keep the scale of the largest priority that was seen when their tree was made."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/drawable/weight_trees.h",
    old="weight_scale(largest, tree->scale.alpha, tree->scale.bits)",
    new="weight_scale(largest * 0 + 1, tree->scale.alpha, tree->scale.bits)",
    native=[
        "an index agrees with a slow model through thousands of short histories",
    ],
)

"""Weights that are set as a run change no sum of the leaves behind it in the same group."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/drawable/sum_tree.cpp",
    old="    for (; k < kFanout; ++k) {\n      sums[k] += delta;\n    }\n    if (delta",
    new="    if (delta",
    native=[
        "sum tree: runs of every length at every place equal single updates",
    ],
)

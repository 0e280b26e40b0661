"""A search through another rank's masses takes the child before, where it falls on a boundary."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/group/pull/published_masses.cpp",
    old="while (child + 1 < kFanout && rest >= group[child]) {",
    new="while (child + 1 < kFanout && rest > group[child]) {",
    native=[
        "pulled rows: every step offered has one chance, and comes as its owner has it",
        "pulled rows: masses of several levels lead to the steps that are there",
    ],
)

"""A step's new priority changes the mean of its episode twice as much as it should."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/index/index.cpp",
    old="episode.priority_sum += in_sum(priority, state_.sum_shift) -",
    new="episode.priority_sum += 2 * in_sum(priority, state_.sum_shift) -",
    native=[
        "an episode's priority is its weight, or the mean of its stored steps",
    ],
)

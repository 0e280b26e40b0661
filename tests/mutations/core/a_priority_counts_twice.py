"""A step's new priority changes the mean of its episode twice as much as it should."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/index/index.cpp",
    old="episode.priority_sum += weight(priority) - weight(stored);",
    new="episode.priority_sum += 2 * (weight(priority) - weight(stored));",
    native=[
        "an episode's priority is its weight, or the mean of its stored steps",
    ],
)

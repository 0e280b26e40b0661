"""The importance weights are inverted: what is drawn more often has the larger one."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/select/importance.cpp",
    old="-beta, offset,",
    new="beta, offset,",
    native=[
        "importance weights are (P / least P of the batch)^-beta",
    ],
)

"""With drop_last, an epoch ends before its last batch though that one is whole."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/select/chance.cpp",
    old="if (left == 0 || (drops_last_ && left < count)) {",
    new="if (left == 0 || (drops_last_ && left <= count)) {",
    native=[
        "a sequential epoch gives every step once, in an order of its own",
    ],
    found_a_gap=True,
)

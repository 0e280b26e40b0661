"""A step of priority 0 keeps a small chance."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/drawable/fixed_point.h",
    old="return lost ? 1 : weight;",
    new="return weight > 0 ? weight : 1;",
    native=[
        "weights of the plain cases are exact",
    ],
)

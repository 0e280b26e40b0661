"""Priorities that were kept for other ranks are not told to them before the draw that they are to
count in."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/group/agreement.cpp",
    old="    peers_.outbox().exchange(control_);\n",
    new="",
    native=[
        "agreement: kept updates reach their owners before the offers that count",
    ],
)

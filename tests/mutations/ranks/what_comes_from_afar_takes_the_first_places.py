"""Draws that leave their node take the places of those that stayed on the consumer's node."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/group/assignment.cpp",
    old="         part.kept + part.lack.size - part.left_lack.size);",
    new="         part.kept);",
    native=[
        "assignment: runs say what dealing out draw by draw does",
    ],
)

"""A checkpoint's manifest is written under its own name, not beside it and then renamed."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/checkpoint/manifest.cpp",
    old="const std::string temporary = path_in(directory, kTemporary);",
    new="const std::string temporary = path_in(directory, kName);",
    native=[
        "a write that fails anywhere leaves the previous checkpoint and no file of its own",
    ],
    found_a_gap=True,
)

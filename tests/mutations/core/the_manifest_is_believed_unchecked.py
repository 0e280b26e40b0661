"""A manifest whose checksum is wrong is taken for what it says."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/checkpoint/manifest.cpp",
    old=" || text != text_of(manifest)) {",
    new=") {",
    native=[
        "a flipped bit anywhere is refused",
        "a file that ends early or goes on too long is refused",
    ],
)

"""A mask keeps out the step that is written where one lay that it kept out."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/drawable/drawables.cpp",
    old="    mask->out_.clear_page(p);\n",
    new="    static_cast<void>(mask);\n",
    native=[
        "a mask lets in what is marked again and what is appended, of that look-ahead alone",
        "an index agrees with a recount through a random history",
    ],
    found_a_gap=False,
)

"""When a page is evicted, it stays on its episode's list of pages with a step to draw."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/drawable/drawable.cpp",
    old="  bits_.clear_page(p);\n  set_count(p, 0);",
    new="  bits_.clear_page(p);\n  counts_.set(p, 0);",
    native=[
        "an episode that loses a page with spent steps lives until its last step is spent",
        "an index agrees with a recount through a random history",
    ],
    found_a_gap=False,
)

"""When a page is evicted, its spent steps are taken off the steps left of its episode once more."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/index/unspent_steps.cpp",
    old="steps.count -= static_cast<uint64_t>(page.anchors - page.spent);",
    new="steps.count -= page.anchors;",
    native=[
        "an episode that loses a page with spent steps lives until its last step is spent",
    ],
    found_a_gap=True,
)

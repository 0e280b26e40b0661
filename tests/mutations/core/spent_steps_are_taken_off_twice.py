"""When a page is evicted, its spent steps are taken off the steps left of its episode once more."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/index/unspent_steps.cpp",
    old="episodes_[page.episode].count -= static_cast<uint64_t>(page.anchors - page.spent);",
    new="episodes_[page.episode].count -= page.anchors;",
    native=[
        "an episode whose last unspent step is evicted is freed",
        "an index agrees with a recount through a random history",
    ],
    missed=True,
)

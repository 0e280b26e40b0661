"""A writer never fills the only page of its open episode anew, though it is full."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/index/page_chains.cpp",
    old="return state_.pages[state_.episodes[e].head].rows == options_.page_steps;",
    new="return false;",
    native=[
        "pages that open episodes write to cannot be evicted",
    ],
)

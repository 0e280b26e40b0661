"""A writer never fills the only page of its open episode anew, though it is full."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/index/page_chains.cpp",
    old="state_.pages[episode.head].rows == options_.page_steps;",
    new="false;",
    native=[
        "pages that open episodes write to cannot be evicted",
    ],
)

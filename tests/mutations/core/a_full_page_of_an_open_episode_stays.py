"""The only page of an open episode is never given up, though it is full."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/index/page_chains.cpp",
    old="(episode.ended() || episode.head != episode.tail || !has_room(e));",
    new="(episode.ended() || episode.head != episode.tail);",
    native=[
        "pages that open episodes write to cannot be evicted",
    ],
)

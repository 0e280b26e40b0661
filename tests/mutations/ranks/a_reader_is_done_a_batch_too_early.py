"""A rank counts as done with a page of another one when it is done with the batch before."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/group/peers/read_board.cpp",
    old="board_->has_passed(rank, number_ + 1); });",
    new="board_->has_passed(rank, number_); });",
    native=[
        "a reader is done with a batch once it has passed it, not when it comes to it",
    ],
    found_a_gap=True,
)

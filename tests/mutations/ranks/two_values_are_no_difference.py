"""What two ranks give differently is not refused: it takes three values."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/distributed/same.py",
    old="        if len(ranks) > 1:\n",
    new="        if len(ranks) > 2:\n",
    tests=[
        "tests/distributed/test_ranks_differ.py::test_different_time_outs_are_refused_on_all_ranks",
    ],
)

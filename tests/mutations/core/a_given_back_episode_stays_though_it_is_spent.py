"""An episode that is given back as a whole stays, though its steps were all drawn meanwhile."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/index/index.cpp",
    old="      free_exhausted(anchor);  // an episode whose",
    new="      // an episode whose",
    native=[
        "an episode that comes back whole, with every step spent meanwhile, is freed",
        "an index agrees with a recount through a random history",
    ],
    found_a_gap=True,
)

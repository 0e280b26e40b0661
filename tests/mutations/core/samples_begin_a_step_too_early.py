"""With min_steps, samples may be taken one step before so many are in."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/writing/rate_limiter.cpp",
    old="  if (inserted_ < min_steps_) {",
    new="  if (inserted_ + 1 < min_steps_) {",
    native=[
        "without a limit everything is allowed; min_steps alone holds up samples only",
    ],
)

"""An NCCL that is older than torch needs is taken where its version comes later in the alphabet."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="recipes/nccl.sh",
    old='"$needs" "$has" | sort -V | head -n 1)" = "$needs" ] ||',
    new='"$needs" "$has" | sort | head -n 1)" = "$needs" ] ||',
    tests=[
        "tests/distribution/test_stack_nccl.py::test_one_older_than_torch_needs_is_refused",
    ],
)

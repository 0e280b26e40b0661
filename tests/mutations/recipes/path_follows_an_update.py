"""PATH leads through the link that an update moves, so that running jobs change builds."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="modulefiles/gear.module",
    old="prepend-path  PATH              @BUILD@/bin",
    new="prepend-path  PATH              @HOME@/bin",
    tests=[
        "tests/distribution/test_modules_render.py::test_what_is_loaded_stays_in_one_build",
    ],
)

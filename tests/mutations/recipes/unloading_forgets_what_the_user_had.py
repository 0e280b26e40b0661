"""A variable that the user had set before the module was loaded is gone after it is unloaded."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="modulefiles/render.py",
    old="        unsetenv $name $::env($kept)\n",
    new="        setenv $name {}\n",
    tests=[
        "tests/distribution/test_modules_rules.py::test_swap_keeps_what_the_user_had",
    ],
)

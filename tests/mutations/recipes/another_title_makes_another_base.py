"""A correction of the site's title makes another base, and all that stands on it anew."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="recipes/site.sh",
    old="      name | mpirun | mpirun_options) continue ;;",
    new="      mpirun | mpirun_options) continue ;;",
    tests=[
        "tests/distribution/test_build_layers.py::test_values_of_the_site_go_into",
    ],
)

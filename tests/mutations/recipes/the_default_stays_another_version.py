"""An installation that is there already does not become the default module again."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="recipes/build.sh",
    old='if site_is default_module on && [ "$(default_name)" != "$NAME" ]; then',
    new='if site_is default_module on && [ -z "$(default_name)" ]; then',
    tests=[
        "tests/distribution/test_build_versions.py::test_the_default_is_set_though_nothing_is_to_be_built",
    ],
)

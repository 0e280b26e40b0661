"""A build is removed under processes that have it on their PATH, and run none of its programs."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="recipes/users.sh",
    old="/proc/[0-9]*/{maps,environ} 2>/dev/null |",
    new="/proc/[0-9]*/maps 2>/dev/null |",
    tests=[
        "tests/distribution/test_build_versions.py::test_uninstalled_under_a_process_its_files_stay",
    ],
)

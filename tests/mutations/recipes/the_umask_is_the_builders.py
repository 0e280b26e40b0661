"""What is installed has the permissions that the umask of whoever installs it leaves."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="recipes/build.sh",
    old="umask 022\nSTEP=prefix\n",
    new="STEP=prefix\n",
    tests=[
        "tests/distribution/test_build_versions.py::test_files_are_for_everyone_whatever_the_umask",
    ],
)

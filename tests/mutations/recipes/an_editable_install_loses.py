"""Of a package that is installed editable in a venv, the module's version is imported."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="extend-venv-activate",
    old="sys.meta_path.sort(key=",
    new="sorted(sys.meta_path, key=",
    tests=[
        "tests/distribution/test_extend_venv_pip.py::test_an_editable_install_wins",
    ],
)

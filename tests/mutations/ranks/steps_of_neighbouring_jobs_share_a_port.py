"""The ranks of neighbouring steps and jobs meet at the same port."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="gear/distributed/meeting/launch.py",
    old="return FIRST_PORT + (job * 101 + step) % NUM_PORTS",
    new="return FIRST_PORT + (job + step) % NUM_PORTS",
    tests=[
        "tests/distributed/test_group_launch.py::test_ports_of_steps",
    ],
)

"""Whether a step is the last of its episode is told before the next one has come."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/plan/output.h",
    old="return kind == Derived::kStepIndex ? window.stop - 1 : window.stop;",
    new="return kind == Derived::kTerminated ? window.stop : window.stop - 1;",
    tests=[
        "tests/contract/test_derived.py::test_a_newest_step_is_offered_once_it_is_known_whether_it_is_the_last",
    ],
    native=[
        "the lookahead of outputs is how far the furthest reaches past its anchor",
    ],
)

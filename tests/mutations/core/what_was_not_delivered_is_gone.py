"""A loader that ends keeps what it drew and did not deliver."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/deliver/pipeline.cpp",
    old="  for (const auto& job : in_->pending) {\n    job->taken.give_back();\n  }\n",
    new="",
    tests=["tests/contract/test_undelivered.py::test_however_a_loader_ends[host-by_close]"],
)

"""Reads that have ended keep their tickets as long as no page is evicted."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/store/read_tickets.cpp",
    old="    poll_ended(gone);\n    ending_.emplace_back(",
    new="    ending_.emplace_back(",
    native=["no more ends of reads are kept than reads are under way"],
)

"""Two ranks find each other and exchange experience."""

from __future__ import annotations

import reframe as rfm
import reframe.utility.sanity as sn
from installed import Check
from reframe.core.builtins import parameter, run_after, sanity_function


@rfm.simple_test
class RanksExchange(Check):
    """By the partition's launcher, on one node, and on two where it has the feature `nodes`."""

    num_nodes = parameter([1, 2])
    num_tasks = 2
    executable = "python"
    executable_opts = ["exchange.py"]

    @run_after("init")
    def on_nodes(self):
        self.num_tasks_per_node = 2 // self.num_nodes
        if self.num_nodes > 1:
            self.valid_systems = self.of_features("nodes")

    @sanity_function
    def both_have_all(self):
        said = rf"^rank (\d) of 2, nodes: {self.num_nodes}: rows of ranks 0, 1$"
        ranks = sn.sorted(sn.extractall(said, self.stdout, 1, int))
        have_both = sn.assert_eq(ranks, [0, 1], "ranks that have rows of both: {0}, not {1}")
        return sn.all([self.ended_well(), have_both])

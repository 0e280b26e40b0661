"""The job scripts of the installation, submitted as its users do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from installed import Check
from reframe.core.builtins import parameter, run_after, run_before, sanity_function

STEPS = 800
WORDS = (
    f"env=pendulum seed=1 total_steps={STEPS} algo.learning_starts=400 algo.batch_size=32 "
    "'model.hidden=[32]' logger=csv"
)


class Template(Check):
    """`sbatch --wait` from where ReFrame runs, with the options of the partition's `access`."""

    local = True
    executable = "sbatch"
    nodes = 1
    ranks = 2  # of a node

    def submit(self, template: str, *words: str, options: Sequence[str] = ()) -> None:
        self.executable_opts = [
            *("--wait", *self.current_partition.access, *options),
            *(f"--nodes={self.nodes}", f"--ntasks-per-node={self.ranks}"),
            *(f'"$GEAR_HOME/slurm/{template}.sbatch"', WORDS, *words),
        ]

    @sanity_function
    def trains_to_the_end(self):
        logs = sorted(Path(self.stagedir).glob("gear-*.out"))
        said = "\n".join(log.read_text(errors="replace") for log in logs)
        summaries = Path(self.stagedir).glob("outputs/*/*/summary.json")
        steps = [json.loads(summary.read_text())["env_steps"] for summary in summaries]
        lines = [line for line in said.splitlines() if line and not line.startswith("srun: ")]
        told = lines[-1] if lines else "it wrote nothing"
        return sn.all(
            [
                sn.assert_found(r"^exit code 0$", self.stdout, f"the job said last: {told}"),
                sn.assert_in(f"ranks: {self.ranks * self.nodes}, nodes: {self.nodes},", said),
                sn.assert_eq(steps, [STEPS], "runs that trained to their last step: {0}, not {1}"),
            ]
        )


@rfm.simple_test
class TemplateRuns(Template):
    """One script for one node, and one for several where the partition has them."""

    template = parameter(["1node", "multinode-srun"])

    @run_after("init")
    def on_nodes(self):
        several = self.template != "1node"
        self.nodes = 2 if several else 1
        self.valid_systems = self.of_features("slurm", *(["nodes"] if several else []))

    @run_before("run")
    def name_the_template(self):
        self.submit(self.template)

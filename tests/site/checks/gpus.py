"""Partitions of the feature `gpu`, whose `devices` say how many a node has, with a module of that
feature."""

from __future__ import annotations

import reframe as rfm
import reframe.utility.sanity as sn
from installed import Check
from reframe.core.builtins import run_after, run_before, sanity_function
from templates import Template


def num_gpus(check: Check) -> int:
    """Of a node, as the settings say."""
    found = [each.num_devices for each in check.current_partition.devices if each.type == "gpu"]
    if not found:
        raise ValueError(
            f"{check.current_partition.fullname} has the feature gpu, and its settings do not say "
            'how many a node has: give it "devices": [{"type": "gpu", "num_devices": N}]'
        )
    return found[0]


@rfm.simple_test
class GpusAnswer(Check):
    """A process sees all GPUs of its node, and torch computes on each."""

    valid_systems = ["+gpu"]
    valid_prog_environs = ["+gear +gpu"]
    tags = {"site", "gpu"}
    executable = "python"
    executable_opts = ["gpus.py"]

    @run_after("setup")
    def ask_for_all(self):
        self.num_gpus_per_node = num_gpus(self)

    @sanity_function
    def all_compute(self):
        seen = sn.extractsingle(r"^CHECK visible_device_count\.+(\d+)\.$", self.stdout, 1, int)
        computed = sn.count(sn.findall(r"^GPU \d+: .*: the sum is right$", self.stdout))
        expected = self.num_gpus_per_node
        return sn.all(
            [
                self.ended_well(),
                sn.assert_eq(seen, expected, "GEAR sees {0} GPUs, the settings say {1}"),
                sn.assert_eq(computed, expected, "torch computes on {0} GPUs, not on {1}"),
            ]
        )


@rfm.simple_test
class GpuTemplateRuns(Template):
    """The script for one node, a rank for each of its GPUs."""

    valid_systems = ["+slurm +gpu"]
    valid_prog_environs = ["+gear +gpu"]
    tags = {"site", "gpu"}

    @run_before("run")
    def name_the_template(self):
        self.ranks = num_gpus(self)
        asked = self.current_partition.get_resource("_rfm_gpu", num_gpus_per_node=self.ranks)
        self.submit("1node", "device=cuda", options=asked)

"""The module loads, and so does a venv that extends it."""

from __future__ import annotations

import reframe as rfm
import reframe.utility.sanity as sn
from installed import Check
from reframe.core.builtins import sanity_function

# The packages are those of the installation, whatever else the user has.
IS_INSTALLED = """
import os, sys, gear
home = os.path.realpath(os.environ["GEAR_HOME"])
place = os.path.realpath(gear.__file__)
print("gear of the module" if place.startswith(home) else f"gear of {place}, not of {home}")
print("python in", sys.prefix)
"""


@rfm.simple_test
class ModuleLoads(Check):
    """One process stores experience and reads it back; the packages are those of the module."""

    executable = "python"
    executable_opts = ['"$GEAR_HOME/share/gear/smoke/check_gear.py"']
    postrun_cmds = [f"python -c '{IS_INSTALLED}'"]

    @sanity_function
    def stores_and_reads(self):
        return sn.all(
            [
                self.ended_well(),
                sn.assert_found(r"^gear \S+: 100 steps went through a buffer", self.stdout),
                sn.assert_found(r"^gear of the module$", self.stdout),
            ]
        )


@rfm.simple_test
class VenvExtends(Check):
    """What extend-venv-activate has made of a venv: to activate it is all that a job has to do."""

    prerun_cmds = [
        "python -m venv --without-pip my-venv",
        "extend-venv-activate my-venv",
        "module unload gear",
        "source my-venv/bin/activate",
    ]
    executable = "python"
    executable_opts = [f"-c '{IS_INSTALLED}'"]

    @sanity_function
    def uses_the_module(self):
        return sn.all(
            [
                self.ended_well(),
                sn.assert_found(r"^gear of the module$", self.stdout),
                sn.assert_found(r"^python in .*/my-venv$", self.stdout),
            ]
        )

"""What all checks share: they run what is installed, and wherever the site's settings have it."""

from __future__ import annotations

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before

# A script of ReFrame goes on where a line has failed, and another GEAR may be on the user's path.
IS_LOADED = """case ":$LOADEDMODULES:" in
  *":{0}:"*) ;;
  *) echo "the module {0} did not load" >&2; exit 1 ;;
esac"""


class Check(rfm.RunOnlyRegressionTest):
    """Runs in an environment of the feature `gear`, whose module every job of it loads.

    Its sanity function begins with `ended_well`.
    """

    valid_prog_environs = ["+gear"]
    valid_systems = ["*"]
    tags = {"site"}
    time_limit = "10m"

    @run_before("run")
    def watch(self):
        names = [str(module["name"]) for module in self.current_environ.modules_detailed]
        self.prerun_cmds = [*map(IS_LOADED.format, names), *self.prerun_cmds]
        self.postrun_cmds = ['echo "exit code $?"', *self.postrun_cmds]

    def ended_well(self):
        """Slurm without accounting does not tell the exit code of what ran."""
        return sn.assert_found(
            r"^exit code 0$",
            self.stdout,
            "it failed or never ran; its last lines are below",
        )

    def of_features(self, *features: str) -> list[str]:
        """For valid_systems: partitions that have all of these."""
        return [" ".join(f"+{feature}" for feature in features) or "*"]

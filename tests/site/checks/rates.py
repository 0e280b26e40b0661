"""How fast rows come from another rank, beside what the site has kept: `gear bench links`.

The partition's settings name the file, `"extras": {"reference": FILE}`. With `-S
LinksReach.keep=yes` the rates that are measured are written there, and nothing is compared.
"""

from __future__ import annotations

import json
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from installed import Check
from reframe.core.builtins import parameter, run_after, run_before, sanity_function, variable

SMALL, LARGE = 64, 65536  # bytes of a row: for the row rate, and for the bandwidth


def unit(name: str) -> str:
    """Of a rate's name."""
    return f"{name.rsplit('_')[-1]}/s"


@rfm.simple_test
class LinksReach(Check):
    """Every carrier that the reference knows carries rows, at `least` of the rates there: NAME_rows
    of small ones and NAME_bytes of large ones."""

    num_nodes = parameter([1, 2])
    num_tasks = 2
    keep = variable(bool, value=False)
    least = variable(float, value=0.7)
    seconds = variable(float, value=1.0)  # of each measurement
    tags = {"site", "rates"}
    executable = "gear"
    exclusive_access = True  # what runs beside it would be measured, too

    @run_after("init")
    def on_nodes(self):
        self.num_tasks_per_node = 2 // self.num_nodes
        if self.num_nodes > 1:
            self.valid_systems = self.of_features("nodes")

    @run_before("run")
    def measure(self):
        self.file = self.reference_file()
        self.kept = {} if self.keep else self.read()
        self.executable_opts = ["bench", "links", "--json", f"--seconds={self.seconds}"]
        self.executable_opts += [f"--row-bytes={size}" for size in (SMALL, LARGE)]

    def reference_file(self) -> Path:
        if "reference" not in self.current_partition.extras:
            raise ValueError(
                f"the settings of {self.current_partition.fullname} name no file of rates: give "
                'the partition "extras": {"reference": FILE}'
            )
        return Path(self.current_partition.extras["reference"])

    def read(self) -> dict[str, float]:
        """The kept rates of this partition and so many nodes."""
        all_ = json.loads(self.file.read_text()) if self.file.exists() else {}
        kept = all_.get(self.current_partition.fullname, {}).get(f"nodes: {self.num_nodes}")
        if not kept:
            raise ValueError(
                f"{self.file} has no rates of {self.current_partition.fullname}, nodes: "
                f"{self.num_nodes}: on a day when all is well, write them by the option "
                "-S LinksReach.keep=yes"
            )
        return kept

    @sanity_function
    def all_carry(self):
        """On that many nodes, and nothing that carried rows for the reference is gone."""
        self.ended_well().evaluate()
        text = (Path(self.stagedir) / str(self.stdout)).read_text()
        report, _ = json.JSONDecoder().raw_decode(text[text.index("{\n") :])
        self.rates = {}
        for row in report["measured"]:
            kind = row["kind"].replace(" ", "_")
            if row["row_bytes"] == SMALL:
                self.rates[f"{kind}_rows"] = round(row["rows_per_s"])
            else:
                self.rates[f"{kind}_bytes"] = round(row["rows_per_s"] * LARGE)
        gone = sorted(set(self.kept) - set(self.rates))
        reasons = "; ".join(f"{kind}: {why}" for kind, why in report["told"].items())
        return sn.all(
            [
                sn.assert_true(self.rates, "nothing carried rows: " + reasons),
                sn.assert_false(gone, f"in {self.file}, and not measured: {gone}: {reasons}"),
            ]
        )

    @run_before("performance")
    def compare(self):
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), unit(name))
            for name, value in self.rates.items()
        }
        self.reference = {
            self.current_partition.fullname: {
                name: (value, self.least - 1, None, unit(name)) for name, value in self.kept.items()
            }
        }

    @run_after("performance")
    def write(self):
        if self.keep:
            all_ = json.loads(self.file.read_text()) if self.file.exists() else {}
            mine = all_.setdefault(self.current_partition.fullname, {})
            mine[f"nodes: {self.num_nodes}"] = self.rates
            self.file.write_text(json.dumps(all_, indent=2, sort_keys=True) + "\n")

"""tests/site on the installation and a Slurm of two nodes: all checks pass, by the commands of
INSTALL; and each fails where what it guards is broken."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from docs.documents import blocks, lines_of
from docs.ran import ran

from distribution.project import NAME, REPOSITORY, VERSION

if TYPE_CHECKING:
    from distribution.conftest import Installation
    from distribution.slurm_cluster import Cluster

pytest_plugins = ["distribution.slurm_cluster"]
pytestmark = [pytest.mark.slurm, pytest.mark.modules]

SITE = REPOSITORY / "tests" / "site"
RUN = SITE / "run.sh"

BY_RANKS = {"RanksExchange", "LinksReach", "TemplateRuns"}
ALL = {*BY_RANKS, "ModuleLoads", "VenvExtends"}
KEEP = ("-n", "LinksReach", "-S", "LinksReach.keep=yes")
QUICK = ("-S", "LinksReach.seconds=0.2")
ANY_RATE = ("-S", "LinksReach.least=0.02")  # two moments of a busy machine differ more than sites

# mpirun is careful with root and with few cores.
OF_MPIRUN = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMP_NUM_THREADS": "1",
}

# Kills the second of two ranks when it imports GEAR.
KILLER = """
import os, signal, sys

def kill(event, words):
    if event == "import" and words[0] == "gear._core":
        if "1" in (os.environ.get("SLURM_PROCID"), os.environ.get("OMPI_COMM_WORLD_RANK")):
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
"""


@dataclass(frozen=True)
class Checked:
    """A run of ReFrame: its exit code, and why a check failed, for each (check, partition, variant)
    that ran; empty where it passed."""

    code: int
    why: dict[tuple[str, str, str], str]

    def ran(self) -> set[str]:
        return {check for check, *_ in self.why}

    def failed(self) -> set[str]:
        """Checks that failed wherever they ran."""
        return self.ran() - {check for (check, *_), why in self.why.items() if not why}

    def passed(self) -> set[str]:
        """Checks that passed wherever they ran."""
        return self.ran() - {check for (check, *_), why in self.why.items() if why}


@dataclass(frozen=True)
class Checks:
    """tests/site/run.sh with settings.py of `folder`, as an administrator calls it."""

    cluster: Cluster
    folder: Path

    @property
    def settings(self) -> Path:
        return self.folder / "settings.py"

    @property
    def reference(self) -> Path:
        return self.folder / "reference.json"

    def change(self, *pairs: tuple[str, str]) -> None:
        """Of the settings."""
        text = self.settings.read_text()
        for was, now in pairs:
            assert was in text, was
            text = text.replace(was, now)
        self.settings.write_text(text)

    def run(self, *words: str) -> Checked:
        done = self.cluster.run(RUN, self.settings, "--run", *words, env=OF_MPIRUN, timeout_s=900)
        return self.read(done)

    def read(self, done: subprocess.CompletedProcess[str]) -> Checked:
        report = self.folder / "report.json"
        assert report.exists(), done.stdout + done.stderr
        [session] = json.loads(report.read_text())["runs"]
        report.unlink()
        why = {}
        for case in session["testcases"]:
            check, _, variant = case["display_name"].partition(" ")
            reason = case["fail_reason"] or "it failed" if case["result"] != "pass" else ""
            why[check, case["partition"], variant] = reason
        return Checked(done.returncode, why)


@pytest.fixture(scope="module")
def reframe() -> None:
    """Where pip finds packages is a matter of the machine, and users of the cluster do not know."""
    done = subprocess.run(
        [RUN, SITE / "settings.py", "--version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def checks(cluster: Cluster, installation: Installation, reframe: None, tmp_path: Path) -> Checks:
    home = tmp_path / "home"
    (home / "my-site").mkdir(parents=True)
    cluster = replace(cluster, home=home)
    cluster.use_modules("modules")
    checks = Checks(cluster, home / "my-site")
    shutil.copy(SITE / "settings.py", checks.settings)
    checks.change(("/opt/gear/modulefiles", str(installation.modulefiles)))
    return checks


@pytest.mark.subject("site")
def test_all_pass_by_the_commands_of_install(checks: Checks) -> None:
    (block,) = (each for each in blocks("bash") if "tests/site/run.sh" in each.code)
    mine = checks.settings.read_text()
    shutil.rmtree(checks.folder)
    for line in lines_of(block):
        command = line.replace("~", str(checks.cluster.home))
        if "run.sh" in line:
            checks.settings.write_text(mine)  # the administrator has said what the site has
            command = shlex.join([*shlex.split(command), *QUICK, *ANY_RATE])
        script = f"cd {shlex.quote(str(REPOSITORY))}; {command}"
        done = checks.cluster.run("bash", "-ec", script, env=OF_MPIRUN, timeout_s=900)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        ran(line, command)
    checked = checks.read(done)
    assert checked.passed() == ALL
    assert len(checked.why) == 12, checked.why
    kept = json.loads(checks.reference.read_text())
    assert {(where, nodes) for where, all_ in kept.items() for nodes in all_} == {
        ("my-cluster:login", "nodes: 1"),
        ("my-cluster:cpu", "nodes: 1"),
        ("my-cluster:cpu", "nodes: 2"),
    }
    assert set(kept["my-cluster:cpu"]["nodes: 2"]) >= {"group_rows", "group_bytes"}


@pytest.mark.nightly
@pytest.mark.lmod
def test_module_and_venv_under_lmod(checks: Checks) -> None:
    checks.cluster.use_modules("lmod")
    checks.change(("envmod", "lmod"))
    checked = checks.run("-n", "ModuleLoads|VenvExtends")
    assert checked.passed() == {"ModuleLoads", "VenvExtends"}, checked.why


@pytest.mark.nightly
def test_all_fail_without_the_module(
    checks: Checks, installation: Installation, tmp_path: Path
) -> None:
    """It is there when the settings are written, and is removed then."""
    modulefiles = tmp_path / "modulefiles"
    shutil.copytree(installation.modulefiles, modulefiles)
    checks.change((str(installation.modulefiles), str(modulefiles)))
    assert checks.run("-n", "ModuleLoads").passed() == {"ModuleLoads"}
    shutil.rmtree(modulefiles / "gear")
    checked = checks.run("-S", "LinksReach.keep=yes")
    assert (checked.code, checked.failed()) == (1, ALL), checked.why
    assert not checks.reference.exists()


@pytest.mark.nightly
def test_those_of_ranks_fail_if_a_rank_is_killed(checks: Checks, tmp_path: Path) -> None:
    folder = tmp_path / "killer"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(KILLER)
    variables = {"PYTHONPATH": str(folder), "GEAR_TIMEOUT_S": "30"}
    given = f'"env_vars": {[list(pair) for pair in variables.items()]},\n            '
    checks.change(('"features": ["gear"]', f'{given}"features": ["gear"]'))
    checked = checks.run("-S", "LinksReach.keep=yes")
    assert (checked.code, checked.failed()) == (1, BY_RANKS), checked.why
    assert checked.passed() == ALL - BY_RANKS, checked.why


@pytest.mark.nightly
def test_a_venv_that_was_not_extended_fails(checks: Checks, tmp_path: Path) -> None:
    """extend-venv-activate does nothing, and says that all is well."""
    command = tmp_path / "bin" / "extend-venv-activate"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    given = f'"env_vars": [["PATH", "{command.parent}:$PATH"]],\n            '
    checks.change(('"features": ["gear"]', f'{given}"features": ["gear"]'))
    checked = checks.run("-n", "ModuleLoads|VenvExtends")
    assert checked.failed() == {"VenvExtends"}, checked.why
    assert checked.passed() == {"ModuleLoads"}, checked.why


@pytest.mark.nightly
def test_rates_fail_without_a_reference_over_a_tripled_one_and_where_a_carrier_is_gone(
    checks: Checks,
) -> None:
    checked = checks.run("-n", "LinksReach", *QUICK)
    assert checked.failed() == {"LinksReach"}
    for why in checked.why.values():
        assert f"{checks.reference} has no rates of my-cluster:" in why
        assert "-S LinksReach.keep=yes" in why

    assert checks.run(*KEEP, *QUICK).passed() == {"LinksReach"}
    kept = json.loads(checks.reference.read_text())
    measured = [rates for all_ in kept.values() for rates in all_.values()]
    for rates in measured:
        rates.update({name: 3 * rate for name, rate in rates.items()})
    checks.reference.write_text(json.dumps(kept))
    checked = checks.run("-n", "LinksReach", *QUICK)
    assert (checked.code, checked.failed()) == (1, {"LinksReach"}), checked.why
    for why in checked.why.values():
        assert re.match(r"performance error:\s+failed to meet reference", why)

    for rates in measured:
        rates.clear()
        rates["pigeons_rows"] = 1
    checks.reference.write_text(json.dumps(kept))
    checked = checks.run("-n", "LinksReach", *QUICK)
    assert checked.failed() == {"LinksReach"}
    for why in checked.why.values():
        assert "not measured: ['pigeons_rows']" in why


@pytest.mark.nightly
def test_those_of_gpus_run_where_they_are_declared_and_fail_where_none_answers(
    checks: Checks,
) -> None:
    """The two GPUs of a virtual node compute nothing."""
    checks.settings.write_text(
        re.sub(r"^( *)# ((?: *[\]{}\"]).*)$", r"\1\2", checks.settings.read_text(), flags=re.M)
    )
    checks.change(
        (f"gear/{VERSION}-gpu", f"gear/{NAME}"),
        ("--partition=gpu", "--partition=standard"),
        ('"num_devices": 4', '"num_devices": 2'),
    )
    checked = checks.run("--tag=gpu")
    assert {(check, partition) for check, partition, _ in checked.why} == {
        ("GpusAnswer", "gpu"),
        ("GpuTemplateRuns", "gpu"),
    }
    assert checked.failed() == {"GpusAnswer", "GpuTemplateRuns"}
    [script] = checks.folder.glob("stage/my-cluster/gpu/*/GpusAnswer/rfm_job.sh")
    assert "#SBATCH --gres=gpu:2" in script.read_text()
    assert "GEAR sees 0 GPUs, the settings say 2" in checked.why["GpusAnswer", "gpu", ""]
    assert "CUDA" in checked.why["GpuTemplateRuns", "gpu", ""]

#!/usr/bin/env python3
"""Each command of the documents is run as it stands, or listed as not run, with the reason.

    tools/documented.py run                          runs those that need a clone with .venv alone
    tools/documented.py of BY                        prints the commands that BY has to run
    tools/documented.py ran BY COMMAND [INSTEAD]     BY, a script, has run COMMAND to a good end
    tools/documented.py left-out BY COMMAND REASON   BY has not run it this time
    tools/documented.py check [REPORT...]            compares, and prints the list: CI's last step

The tables here say who runs what; the record (tests/docs/ran.py) says what was run. `check` exits
with 1 if a command is neither run by whom the tables name nor listed, or listed and run all the
same. Of a test that pytest skipped, as a REPORT of --junitxml says, the reason is that of its
commands.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from docs.documents import ROOT, Command, commands
from docs.ran import Record, keep, ran, records
from skips import reason as reason_of_skip

SELF = "tools/documented.py"
TESTS = "tests/distribution/test"

# Who runs the blocks whose fence has this word.
RUNNER_OF_PLACE = {
    "module": f"{TESTS}_install_document.py",
    "cluster": f"{TESTS}_slurm_guide.py",
    "played": "tests/train/test_policies.py",
    "mpe": "tests/train/test_team.py",
    "ssh": f"{TESTS}_ssh_nodes.py",
}

# Who runs the other commands: expressions that match from begin to end.
RUNS = {
    ".ci/run": [r"make test-(all|nightly)"],
    "tools/check_fresh_machine.sh": [r"make (demo|clean)"],
    "tools/site_build.sh": [r"recipes/build\.sh \S+ --prefix /opt/gear"],
    "tools/check_install.sh": [
        r"python3 -m venv ~/gear-venv",
        r"(CMAKE_ARGS=.* )?~/gear-venv/bin/pip install '?\..*",
    ],
    f"{TESTS}_wheels.py": [
        r"make dist",
        r"~/gear-venv/bin/pip install (numpy|--no-index .*)",
        r"sha256sum --check SHA256SUMS",
    ],
    f"{TESTS}_tarball.py": [r"tools/stamp_recipes\.py dist/.*"],
    "tools/test.sh": [r"make lint", r"tools/native\.sh .*"],
    SELF: [
        r"make (setup|stubs|docs)",
        r"tools/setup\.sh train",
        r"tools/c10d\.sh",
        r"\.venv/bin/(gear|python -m pytest) .*",
    ],
    "tests/emu/test_replay.py": [r"gear emu replay .*"],
    "tests/emu/test_train.py": [r"gear emu .*"],
    "tests/docs/test_commands.py": [r"gear .*", r"python3? (-|benchmarks/).*"],
    "tests/docs/test_results.py": [r"\.venv/bin/python tools/draw_results\.py"],
    "tests/train/test_ddp.py": [r"(torchrun|mpirun) .* gear train dist=ddp"],
    "tests/emu/test_calibrate.py": [r"torchrun .* gear emu calibrate .*"],
    "tests/emu/test_published.py": [r"python benchmarks/emulator/published\.py"],
    "tests/emu/test_simgrid.py": [r"python3 examples/emulation/simgrid_curves\.py .*"],
    "tests/emu/test_torch_jobs.py": [
        r"tools/c10d\.sh --emulator",
        r"python examples/emulation/.*",
    ],
    "process_group/tests/test_programs.py": [r"mpirun -n 4 python train\.py"],
    "process_group/tests/test_examples.py": [
        r"pip install .* requirements/imagenet\.txt",
        r"(python|mpirun .*|torchrun .*) examples/process_group/\w+\.py.*",
        r"examples/process_group/run_\w+\.sh .*",
    ],
    "tests/rdma/test_in_vm.py": [r"tests/rdma/run\.sh"],
    f"{TESTS}_install_document.py": [r"module load gear", r"extend-venv-activate my-venv"],
    f"{TESTS}_stack_jobs.py": [r"deepspeed .*"],
    f"{TESTS}_site_checks.py": [r"mkdir ~/my-site", r"cp tests/site/.*", r"tests/site/run\.sh .*"],
    f"{TESTS}_slurm_guide.py": [r"sbatch .*"],
    f"{TESTS}_build_versions.py": [r"recipes/build\.sh my-site\.conf .* --uninstall"],
    f"{TESTS}_spack_recipes.py": [r"sha=.*", r"install -D .*"],
    f"{TESTS}_easybuild.py": [r"eb --sourcepath=dist recipes/.*"],
    f"{TESTS}_build_faults.py": [r"python3 recipes/wheelhouse\.py .*"],
    f"{TESTS}_container_image.py": [r"podman build .*"],
}

# What nobody runs, and why; these come before the tables above.
NOT_RUN = {
    r"(\w+=\S+( \S+)? )?tests/gpu/run\.sh.*": "needs a GPU, which CI does not have",
    r"make test": "make test-all runs the same script with more tests",
    r"make bench": "measures for minutes; tests/test_benchmarks.py runs it with --quick",
    r"spack .*": "Spack is in no package index; docs/results/spack.txt tells of a run by hand",
    r"eb .*--robot .*": "builds compilers and PyTorch for hours; a test has EasyBuild resolve it",
    r"conda .*": "needs conda and its channels; tests check the form",
    r"(git tag|gpg) .*": "needs the key of who makes a release",
    r"pip install mpe2": "the tests' environment has it by the extra [dev]",
    r"podman run .*": f"takes more rights than a build; {TESTS}_container_image.py has it done",
    r"(apptainer|GEAR_CONTAINER=.* sbatch) .*": "Debian 12 has no Apptainer; tests have a stand-in",
}


def reason_of(command: Command) -> str:
    """Why nobody runs it; empty if somebody has to."""
    return next((why for what, why in NOT_RUN.items() if re.fullmatch(what, command.text)), "")


def runner_of(command: Command) -> str:
    """Who has to run it; empty if the tables name nobody."""
    if command.place:
        return RUNNER_OF_PLACE.get(command.place, "")
    return next(
        (by for by, all_ in RUNS.items() if any(re.fullmatch(what, command.text) for what in all_)),
        "",
    )


def faults_of_tables(shown: list[Command]) -> list[str]:
    """Commands that no table names, and entries that are for nothing."""
    found = [
        f"{each.where}: no test or script runs this, and no reason is given in {SELF}: {each.text}"
        for each in shown
        if not reason_of(each) and not runner_of(each)
    ]
    for what in [*NOT_RUN, *(what for all_ in RUNS.values() for what in all_)]:
        if not any(re.fullmatch(what, each.text) for each in shown):
            found.append(f"{SELF}: no document has a command like {what}")
    for place in RUNNER_OF_PLACE:
        if not any(each.place == place for each in shown):
            found.append(f"{SELF}: no document has a block for {place}")
    for by in {*RUNS, *RUNNER_OF_PLACE.values()}:
        if not (ROOT / by).is_file():
            found.append(f"{SELF}: {by} is not there")
        if Path(by).name == "conftest.py":
            found.append(f"{SELF}: pytest skips tests, not {by}: name a file of them")
    return found


def skipped(reports: list[Path]) -> dict[str, str]:
    """Test files of which pytest skipped something -> why."""
    found = {}
    for report in filter(Path.exists, reports):
        for case in ElementTree.parse(report).iter("testcase"):
            for skip in case.iter("skipped"):
                name = (case.get("classname") or case.get("name") or "").split(".")
                files = ["/".join(name[:end]) + ".py" for end in range(1, len(name) + 1)]
                found |= dict.fromkeys(files, reason_of_skip(skip))
    return found


def compare(
    shown: list[Command], kept: list[Record], skips: dict[str, str]
) -> tuple[dict[str, str], list[str]]:
    """What was not run, with its reason, and what is wrong with that."""
    done = {(each.command, each.by) for each in kept if not each.because}
    excused = {(each.command, each.by): each.because for each in kept if each.because}
    listed, faults = {}, faults_of_tables(shown)
    for (text, by), each in {(each.text, runner_of(each)): each for each in shown}.items():
        if reason := reason_of(each):
            listed[text] = reason
            faults += [
                f"{SELF}: NOT_RUN lists what {who} has run: {text}"
                for what, who in done
                if what == text
            ]
        elif by and (text, by) not in done:
            if why := excused.get((text, by)) or skips.get(by):
                listed[text] = why
            else:
                faults.append(f"{each.where}: {by} did not run this: {text}")
    return listed, faults


def check(reports: list[Path]) -> int:
    shown = commands()
    kept = records()
    listed, faults = compare(shown, kept, skipped(reports))
    done = {each.command for each in kept if not each.because}
    print(f"documented: {len(done)} of {len({each.text for each in shown})} commands were run")
    print("documented, and not run here:")
    for text, reason in listed.items():
        print(f"  {textwrap.shorten(text, 80)}: {reason}")
    for fault in faults:
        print(f"documented: {fault}", file=sys.stderr)
    return 1 if faults else 0


def changes() -> str:
    """The tracked files as they differ from the commit."""
    command = ["git", "diff", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


NOT_HERE = 3  # exit code of scripts for which this machine lacks something


def commands_of(by: str) -> list[str]:
    """Those that it has to run, in the order of the documents."""
    mine = [each for each in commands() if runner_of(each) == by and not reason_of(each)]
    return list(dict.fromkeys(each.text for each in mine))


def run() -> int:
    """Runs its own, one after the other; none may change a tracked file."""
    status = 0
    for text in commands_of(SELF):
        before, began = changes(), time.monotonic()
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = f"exit code {done.returncode}" if done.returncode else "ok"
        if done.returncode == NOT_HERE:
            keep(Record(text, SELF, text, "this machine lacks what it needs"))
        elif done.returncode == 0 and changes() != before:
            said = "FAILED: it changed tracked files"
            status = 1
        elif done.returncode == 0:
            ran(text, by=SELF)
        else:
            said += f"\n{done.stdout}"
            status = 1
        print(f"documented: {time.monotonic() - began:3.0f} s  {text}: {said}", flush=True)
    return status


def main(words: list[str]) -> int:
    verb, *rest = words or [""]
    if verb == "run" and not rest:
        return run()
    elif verb == "of" and len(rest) == 1:
        print("\n".join(commands_of(*rest)))
    elif verb == "ran" and len(rest) in (2, 3):
        by, command, *instead = rest
        ran(command, *instead, by=by)
    elif verb == "left-out" and len(rest) == 3:
        by, command, reason = rest
        keep(Record(command, by, command, reason))
    elif verb == "check":
        return check([Path(report) for report in rest])
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

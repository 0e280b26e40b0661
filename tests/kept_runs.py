"""Runs on other machines or other days: kept in tests/kept, and told at the end of `make test`.

    python tests/kept_runs.py show                     a line for each kept run
    python tests/kept_runs.py unchanged SUBJECT [nightly]
                                                       exit code 0 if its tests are not due, else 1;
                                                       says since when
    python tests/kept_runs.py begin-nightly            before a `make test-nightly`
    python tests/kept_runs.py keep-nightly RESULT [SUBJECT...]
                                                       after one without a failure, and without
                                                       these subjects
    python tests/kept_runs.py keep-subject SUBJECT RESULT [nightly]
                                                       after all tests of one subject without one
    python tests/kept_runs.py keep-gpu RESULT DEVICE   after a tests/gpu/run.sh, whatever its result

DEVICE is the number and the name of the GPUs. A subject is what its tests need minutes for:
virtual machines, a second MPI, a Slurm, sites, the core once more by other compilers, groups of
processes, a rehearsal of every benchmark. Its tests are due if its files are not those that they
last passed on, at a commit (`make test-all`) as in the nightly run; there too if that is more than
a week ago, since not all that they rest on is in files, and those that are marked nightly if they
were not among what passed (the word nightly above: they were). The core's
tests are `tools/native.sh --sanitizers=all --nightly`, those of tidy `make lint`.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / "kept"
BEGUN = ROOT / "build" / "nightly.json"
NIGHTLY_DAYS = 7
NOT_SOURCE = {".pyc", ".so"}
TARBALL = re.compile(rb"(?<=^checksums = \[['\"])[0-9a-f]{64}", re.M)  # in *.eb: of all sources
RUNS = {
    "gpu": "tests/gpu/run.sh on one GPU",
    "gpus": "tests/gpu/run.sh on several GPUs",
    "nightly": "make test-nightly",
}

GEAR_MPI = [  # and not the emulator beside it
    *(f"process_group/src/{room}" for room in ("schedule", "ranks", "engine", "over_mpi", "torch")),
    *("process_group/CMakeLists.txt", "process_group/setup.py", "process_group/pyproject.toml"),
    *("process_group/python", "process_group/tests/*.py", "process_group/tests/programs"),
    "process_group/tests/rehearsal",
]

SUBJECTS = {
    "core": [  # under the sanitizers
        *("csrc", "cmake", "CMakeLists.txt", "tests/native", "benchmarks/group_draws.cpp"),
        *("process_group/src/schedule", "process_group/src/ranks", "process_group/src/engine"),
        *("process_group/tests/native", "tools/native.sh"),
    ],
    "library": [  # what its tests show by many examples, by kept hashes and by processes
        *("csrc", "cmake", "CMakeLists.txt", "gear/*.py", "gear/distributed"),
        *("tests/contract", "tests/golden", "tests/distributed"),
        *(
            f"tests/{name}.py"
            for name in ("filled", "places", "rank_processes", "reference", "script")
        ),
    ],
    "trainer": [  # what needs many processes, or ends and goes on
        *("csrc", "cmake", "CMakeLists.txt", "gear/*.py", "gear/distributed", "gear/train"),
        *("tests/train", "tests/nodes", "tests/distribution/*ssh_nodes.py"),
    ],
    "benchmarks": [  # but the emulator's
        *("benchmarks/[!e]*", "benchmarks/experience.py", "tests/test_*benchmark*.py"),
    ],
    "tidy": [
        *("csrc", "cmake", "CMakeLists.txt", ".clang-tidy", "tools/clang_tidy.sh"),
    ],
    "cuda": [  # whether GPU code compiles
        *("csrc", "cmake", "CMakeLists.txt", "requirements/cuda.txt", "tools/find_nvcc.sh"),
    ],
    "rdma": ["csrc/transport", "csrc/group", "tests/rdma", "tests/native/transport"],
    "mpich": [
        *(*GEAR_MPI, "csrc/mpi", "csrc/transport/mpi"),
        *("examples/process_group", "tools/c10d.sh", "tools/unpack_mpich.sh"),
    ],
    "process_group": [
        *(*GEAR_MPI, "csrc/base", "csrc/memory", "csrc/mpi", "csrc/transport/mpi"),
        *("examples/process_group", "tools/c10d.sh"),
    ],
    "emulator": [
        *("process_group/src/emu", "process_group/src/emu_torch", "process_group/src/ranks"),
        *("process_group/CMakeLists.txt", "csrc/base", "gear/emu", "gear/cli/emu"),
        *("gear/train/ranks", "tests/emu", "examples/emulation", "tools/c10d.sh"),
        *("benchmarks/emu_*.py", "benchmarks/emulator"),
    ],
    "recipes": [  # builds of toys and by a user; README's own site build runs at each commit
        *("recipes/*.sh", "recipes/*.py", "recipes/patches", "recipes/sites", "recipes/smoke"),
        *("recipes/sources", "recipes/steps", "modulefiles", "extend-venv-activate"),
        *("pyproject.toml", "requirements/constraints.txt", "tools/fresh_machine.sh"),
        *("tests/distribution/recipe*.py", "tests/distribution/test_build_*.py"),
        *("tests/distribution/ordinary_user.py", "tests/distribution/test_site_by_a_user.py"),
        "tests/distribution/test_admin_day.py",
    ],
    "slurm": [
        *("slurm", "modulefiles", "gear/distributed", "gear/train", "gear/cli/*.py"),
        *("gear/cli/bench", "gear/cli/slurm", "gear/cli/launch"),
        *("gear/cli/emu/job.py", "gear/cli/emu/run.py"),
        *("tests/slurm", "tests/nodes/virtual.sh"),
        *("tests/distribution/slurm_*.py", "tests/distribution/test_slurm_*.py"),
    ],
    "site": [
        *("tests/site", "tests/distribution/test_site_checks.py", "extend-venv-activate"),
        *("modulefiles", "slurm", "gear/cli/bench", "recipes/steps/modulefiles.sh"),
        *("tests/slurm", "tests/nodes/virtual.sh", "tests/distribution/slurm_cluster.py"),
    ],
    "easybuild": [
        *("recipes/easybuild", "pyproject.toml", "CMakeLists.txt", "cmake", "csrc/CMakeLists.txt"),
        *("requirements/constraints.txt", "tools/easybuild.sh"),
        "tests/distribution/test_easybuild.py",
    ],
    "wheels": [
        *("pyproject.toml", "CMakeLists.txt", "cmake", "csrc/CMakeLists.txt", "csrc/bindings"),
        *("tools/check_install.sh", "tools/dist.sh", "tools/find_python.sh"),
        *("requirements/dist.txt", "tools/unpack_aarch64_python.sh"),
        "tests/distribution/test_wheels.py",
    ],
}


def digest(subject: str) -> str:
    """Of the names and contents of its files, without the tarball's checksum in an easyconfig."""
    found = hashlib.sha256()
    for pattern in SUBJECTS[subject]:
        places = sorted(ROOT.glob(pattern))
        if not places:
            raise SystemExit(
                f"kept_runs: {subject} is about {pattern}, which is not there: correct SUBJECTS"
            )
        for path in places:
            files = [path] if path.is_file() else sorted(path.rglob("*"))
            for file in files:
                if file.is_file() and file.suffix not in NOT_SOURCE:
                    found.update(f"{file.relative_to(ROOT)}\n".encode())
                    content = file.read_bytes()
                    found.update(TARBALL.sub(b"", content) if file.suffix == ".eb" else content)
    return found.hexdigest()[:16]


def read(name: str) -> dict[str, str]:
    """A kept run; empty if there was none."""
    path = KEPT / f"{name}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


@functools.cache
def unchanged_since(subject: str, *, nightly: bool = False) -> str:
    """When and on which commit its tests ran with the files of today; empty: they are due.

    nightly: those that are marked so.
    """
    kept = read(subject)
    if kept.get(subject) != digest(subject):
        return ""
    if nightly and (kept.get("form") != "nightly" or _age(kept["date"]).days > NIGHTLY_DAYS):
        return ""
    return f"{kept['date']}, commit {kept['commit']}"


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.timezone.utc).date()


def _age(date: str) -> datetime.timedelta:
    return _today() - datetime.date.fromisoformat(date)


def commit() -> str:
    """Of these sources; GEAR_COMMIT says it where they are a copy."""
    if told := os.environ.get("GEAR_COMMIT"):
        return told
    command = ["git", "rev-parse", "--short=10", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def keep(name: str, facts: dict[str, str]) -> Path:
    KEPT.mkdir(exist_ok=True)
    today = _today().isoformat()
    path = KEPT / f"{name}.json"
    path.write_text(json.dumps({"date": today, "commit": commit(), **facts}, indent=2) + "\n")
    return path


def begin_nightly() -> None:
    """Notes which subjects are due, with the files that they are about."""
    due = {name: digest(name) for name in SUBJECTS if not unchanged_since(name, nightly=True)}
    BEGUN.parent.mkdir(exist_ok=True)
    BEGUN.write_text(json.dumps(due))


def keep_nightly(result: str, left_out: list[str]) -> None:
    """Of the subjects, keeps those that were due, on files that are still the same, and of which no
    test was skipped for want of something; of the run, which ones it went without."""
    due = dict(json.loads(BEGUN.read_text()))
    lacking = _lacking()
    for name, before in due.items():
        if name not in (*left_out, *lacking) and digest(name) == before:
            keep(name, {"result": "nightly", "form": "nightly", name: before})
    unchanged_since.cache_clear()
    went_without = [
        f"{name} of {read(name)['date']}" if unchanged_since(name, nightly=True) else f"{name}: due"
        for name in SUBJECTS
        if name not in due or not unchanged_since(name, nightly=True)
    ]
    words = {"without": ", ".join(went_without)} if went_without else {}
    keep("nightly", {"result": result, **words})


def _lacking() -> set[str]:
    """Subjects of which the run that wrote the reports has skipped a test: conftest.py says so."""
    texts = (report.read_text() for report in BEGUN.parent.glob("pytest*.xml"))
    return {found for text in texts for found in re.findall(r"\(a test of ([a-z_]+)\)", text)}


def show() -> None:
    for name, run in RUNS.items():
        kept = read(name)
        if not kept:
            print(f"test: {run}: no run is kept")
            continue
        on = f", {kept['device']}" if "device" in kept else ""
        without = f"; without: {kept['without']}" if "without" in kept else ""
        print(
            f"test: {run} last ran on {kept['date']}{on}, commit {kept['commit']}: "
            f"{kept['result']}{without}"
        )


def main(words: list[str]) -> int:
    match words:
        case ["show"]:
            show()
        case ["unchanged", subject, *form] if subject in SUBJECTS and form in ([], ["nightly"]):
            since = unchanged_since(subject, nightly=bool(form))
            print(f"has not changed since its tests ran on {since}" if since else "is due")
            return 0 if since else 1
        case ["begin-nightly"]:
            begin_nightly()
        case ["keep-nightly", result, *left_out] if set(left_out) <= set(SUBJECTS):
            keep_nightly(result.strip(), left_out)
        case ["keep-subject", subject, result, *form] if subject in SUBJECTS and form in (
            [],
            ["nightly"],
        ):
            words = {"form": "nightly"} if form else {}
            keep(subject, {"result": result, **words, subject: digest(subject)})
        case ["keep-gpu", result, device]:
            name = "gpu" if device.startswith("1 ") else "gpus"
            print(keep(name, {"device": device, "result": result}))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

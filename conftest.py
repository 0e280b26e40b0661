"""What all tests share: resource markers, `--require`, what runs side by side, hypothesis."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent / "tests"))  # reference.py and script.py, for all
# process_group.tests; at the end, since an installed gear is not the one in this folder.
sys.path.append(str(Path(__file__).parent))

import kept_runs
import slowness


def num_gpus() -> int:
    """GPUs that this build of GEAR can use: the driver shows them and CUDA is in the build."""
    import gear

    return gear.device.visible_device_count() if gear._core.build_info()["cuda"] else 0


def has_mpi() -> bool:
    """MPI's launcher is here, and the transport mpi is in this build of GEAR."""
    import gear

    return shutil.which("mpirun") is not None and bool(gear._core.build_info()["mpi"])


def has_gear_mpi() -> bool:
    """MPI's launcher is here, and the extension that tools/c10d.sh builds for this torch."""
    if shutil.which("mpirun") is None or find_spec("torch") is None:
        return False
    import gear_mpi

    return gear_mpi.available()


def has_mpich() -> bool:
    """Debian's MPICH where tools/unpack_mpich.sh puts it, and the extension for it."""
    from gear_mpi.extension import libraries, mpi_of, torch_version
    from process_group.tests.launch import MPICH

    found = libraries(torch_version())
    return Path(MPICH).exists() and any(mpi_of(one).startswith("mpich-") for one in found)


def has_slurm() -> bool:
    """What tests/slurm/cluster.sh makes a cluster of, and the right to do so."""
    parts = ["slurmctld", "slurmd", "sbatch", "munged", "ip"]
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    return os.geteuid() == 0 and all(shutil.which(part, path=path) for part in parts)


def has_ssh() -> bool:
    """What tests/nodes/ssh.sh makes two nodes of, and the right to do so."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    parts = ["sshd", "ssh", "pdsh", "ip", "nsenter"]
    return os.geteuid() == 0 and all(shutil.which(part, path=path) for part in parts)


def has_podman() -> bool:
    """What tests/distribution/test_container_image.py builds with, and the right to do so."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    parts = ["podman", "debootstrap"]
    return os.geteuid() == 0 and all(shutil.which(part, path=path) for part in parts)


def has_rdma() -> bool:
    """What tests/rdma/run.sh boots a virtual machine with an RDMA device of."""
    script = Path(__file__).parent / "tests" / "rdma" / "vm.sh"
    done = subprocess.run([script, "--missing"], capture_output=True, check=False)
    return done.returncode == 0 and not done.stdout


def has_shell(name: str) -> bool:
    from distribution import shells

    return shells.has_shell(name)


def has_module_tool(name: str) -> bool:
    from distribution import shells

    return shells.start_up_folder(name) is not None


# What tests import of the extras [train] and [dev]; they are skipped without it.
PACKAGES = (
    *("torch", "click", "pynvml", "rich", "hydra", "gymnasium", "mujoco", "cv2", "ale_py"),
    *("tensorboard", "matplotlib", "torchmetrics", "wandb", "pettingzoo", "mpe2"),
    *("jax", "mpi4py", "pdoc", "virtualenv"),
)


def missing(packages: Iterable[str]) -> str:
    """Those that cannot be imported, for a message; empty where all can be."""
    return ", ".join(name for name in packages if find_spec(name) is None)


# Marker -> is it here. A test that needs what is absent is skipped; with --require it fails.
RESOURCES = {
    "packages": lambda: not missing(PACKAGES),
    "frameworks": lambda: not missing(("deepspeed", "horovod")),
    "gpu": lambda: num_gpus() > 0,
    "jax": lambda: find_spec("jax") is not None,
    "rdma": has_rdma,
    "mpi": has_mpi,
    "gear_mpi": has_gear_mpi,
    "mpich": has_mpich,
    "slurm": has_slurm,
    "ssh": has_ssh,
    "podman": has_podman,
    "installation": lambda: all(map(shutil.which, ("g++", "mpicc", "mpirun", "patch"))),
    "modules": lambda: has_module_tool("modules"),
    "lmod": lambda: has_module_tool("lmod"),
    "zsh": lambda: has_shell("zsh"),
    "tcsh": lambda: has_shell("tcsh"),
    "fish": lambda: has_shell("fish"),
}

# Why a test is skipped, where "this machine has no MARKER" is not what helps.
REASONS = {
    "frameworks": "no DeepSpeed and Horovod here: tests/distribution/test_frameworks_installed.py "
    "runs this in a site's installation"
}

# `ci` is what runs unless --hypothesis-profile says otherwise: the same cases every time, and no
# database, so that a failure on one machine is a failure on all. `search` looks for fresh ones.
_COMMON = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("ci", derandomize=True, database=None, **_COMMON)
settings.register_profile("search", **_COMMON)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        default="",
        help="comma-separated resources whose absence is a failure: " + ", ".join(RESOURCES),
    )
    parser.addoption(
        "--rehearse-gpu",
        action="store_true",
        help="run tests that need a GPU in host memory: shows mistakes in the tests, not in GEAR",
    )
    parser.addoption(
        "--changed-subjects",
        action="store_true",
        help="leave out the subjects whose files are those that they last passed on (kept_runs.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        # pytest-xdist has its processes ignore Ctrl-C, and what they start inherits that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(slowness)
    unknown = _required(config) - set(RESOURCES)
    if unknown:
        raise pytest.UsageError(f"--require: unknown {sorted(unknown)}, known {list(RESOURCES)}")
    # pytest-xdist 3.8 groups tests by this name inside pytest, which pytest 9.2 no longer has.
    if getattr(config.option, "dist", "no") == "loadgroup" and not hasattr(pytest.Item, "_nodeid"):
        raise pytest.UsageError(
            f"--dist loadgroup: under pytest {pytest.__version__}, pytest-xdist groups no tests: "
            "install the versions of requirements/constraints.txt, or run without -n"
        )
    # Without these whole files are skipped, before a marker is seen.
    if "packages" in _required(config) and (absent := missing(PACKAGES)):
        raise pytest.UsageError(f"--require=packages, but {absent} cannot be imported")


def pytest_runtest_setup(item: pytest.Item) -> None:
    _forget_closed_streams()
    subject = item.get_closest_marker("subject")
    if subject and item.config.getoption("--changed-subjects"):
        marked = item.get_closest_marker("nightly") is not None
        since = kept_runs.unchanged_since(subject.args[0], nightly=marked)
        if since:
            pytest.skip(f"{subject.args[0]} has not changed since its tests ran on {since}")
    needed = {mark.name for mark in item.iter_markers()} & set(RESOURCES)
    gpus = item.get_closest_marker("gpus")
    if gpus and num_gpus() < gpus.args[0]:
        _absent(item, "gpu", f"this machine has no {gpus.args[0]} GPUs for this build of GEAR")
    if item.config.getoption("--rehearse-gpu"):
        needed.discard("gpu")
    for name in sorted(needed):
        if not RESOURCES[name]():
            _absent(item, name, REASONS.get(name, f"this machine has no {name}"))
    for mark in item.iter_markers("needs"):
        if absent := missing(mark.args):
            _absent(item, "packages", f"no {absent} here")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_importorskip(report, collector.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_importorskip(report, item.config)
    return report


def _refuse_importorskip(
    report: pytest.CollectReport | pytest.TestReport, config: pytest.Config
) -> None:
    """With --require=packages, a file or a test that `pytest.importorskip` skips has failed."""
    if report.skipped and "packages" in _required(config) and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason.startswith("could not import "):
            report.outcome = "failed"
            report.longrepr = f"--require=packages, but {reason}"


def _forget_closed_streams() -> None:
    """Hydra logs to the stdout that a test had, and leaves that to later ones of the process."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        stream = getattr(handler, "stream", None)
        if stream is not None and stream.closed:
            root.removeHandler(handler)


def _required(config: pytest.Config) -> set[str]:
    return {name for name in config.getoption("--require").split(",") if name}


def _absent(item: pytest.Item, resource: str, reason: str) -> None:
    if resource in _required(item.config):
        pytest.fail(f"--require={resource}, but {reason}", pytrace=False)
    subject = item.get_closest_marker("subject")
    if subject and resource not in ("gpu", "frameworks"):  # which have runs of their own
        reason += f" (a test of {subject.args[0]})"  # for kept_runs.py: it has not passed
    pytest.skip(reason)


# ---- tests side by side (pytest -n 2 --dist loadgroup) ----


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What shares something runs in one process: the tests of a file, and what says so by a mark
    (`xdist_group`): an installation, a cluster, ranks that are started once."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            file = item.path.relative_to(Path(__file__).parent).with_suffix("")
            item.add_marker(pytest.mark.xdist_group(file.as_posix()))

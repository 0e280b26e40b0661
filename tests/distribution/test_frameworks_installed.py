"""The tests that need DeepSpeed or Horovod, in an installation that has both.

A venv extends the module, as INSTALL.md has a user make it, and has pytest besides. What that said
is in build/pytest-frameworks.log, and as a report beside it, which tools/skips.py counts.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest

from distribution.conftest import Installation
from distribution.project import REPOSITORY
from distribution.shells import Shell

pytestmark = [pytest.mark.modules, pytest.mark.nightly]  # other carriers of what gloo shows
BASH = Shell("bash", "modules")
MARK = "frameworks"
LOG = REPOSITORY / "build" / f"pytest-{MARK}.log"
REPORT = LOG.with_suffix(".xml")
TIMEOUT_S = 1800
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

# mpirun is careful with root, and with more ranks than cores.
OF_MPIRUN = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}


def marked() -> list[Path]:
    """The files with such tests."""
    files = sorted((REPOSITORY / "tests").rglob("test_*.py"))
    return [path for path in files if f"pytest.mark.{MARK}" in path.read_text(encoding="utf-8")]


def environment() -> dict[str, str]:
    """How pip gets to its packages is a matter of the machine. The tests are those of this clone,
    the package gear that of the module, wherever they look for it."""
    network = {
        name: text
        for name, text in os.environ.items()
        if name.startswith("PIP_") or name in CERTIFICATES
    }
    python = {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return network | python | OF_MPIRUN | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}


def test_all_of_them_pass_and_none_is_skipped(installation: Installation, tmp_path: Path) -> None:
    venv, files = tmp_path / "venv", marked()
    assert files
    for path in (LOG, REPORT):
        path.unlink(missing_ok=True)
    pins = REPOSITORY / "requirements" / "constraints.txt"
    options = ["-c", REPOSITORY / "pyproject.toml", f"--rootdir={REPOSITORY}", "-p"]
    options += ["no:cacheprovider", "-m", MARK, f"--require={MARK},mpi", f"--junitxml={REPORT}"]
    done = BASH.run(
        f"module use {installation.modulefiles}",
        f"module load {installation.name}",
        f"python -m venv {venv}",
        f"extend-venv-activate {venv}",
        "module unload gear",
        f"source {venv}/bin/activate",
        f"pip install --quiet -c {pins} pytest pytest-timeout hypothesis",
        "python -c 'import gear; print(gear.__file__)'",
        f"{shlex.join(map(str, ['pytest', *options, *files]))} >{LOG} 2>&1",
        env=environment(),
        options=("-e",),
        timeout_s=TIMEOUT_S,
    )
    said = LOG.read_text(encoding="utf-8")[-8000:] if LOG.exists() else ""
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{said}"
    assert Path(done.stdout.splitlines()[-1]).is_relative_to(installation.home.resolve())
    (suite,) = ElementTree.parse(REPORT).getroot()
    assert [suite.get(name) for name in ("errors", "failures", "skipped")] == ["0"] * 3, said
    ran = {f"{case.get('classname', '').replace('.', '/')}.py" for case in suite.iter("testcase")}
    assert ran == {str(path.relative_to(REPOSITORY)) for path in files}

"""The native tests of rows read one-sided, on soft-RoCE in virtual machines: tests/rdma/run.sh."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from docs.documents import ROOT, documented
from docs.ran import ran

RUN = Path(__file__).parent / "run.sh"


@pytest.mark.rdma
@pytest.mark.subject("rdma")
@pytest.mark.slow
@pytest.mark.timeout(2100)  # a build, a kernel to fetch, 240 s to start, 900 s to run
def test_every_native_test_of_rdma_passes_on_soft_roce() -> None:
    command = documented(r"tests/rdma/run\.sh")
    done = subprocess.run(
        [command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, said[-8000:]
    assert said.splitlines()[-1] == "in_vm: all passed", said[-8000:]
    ran(command)


def test_what_is_missing_is_named_and_nothing_runs(tmp_path: Path) -> None:
    for name in "awk bash cat dirname env sha256sum uname".split():
        found = shutil.which(name)
        assert found is not None, name
        (tmp_path / name).symlink_to(found)
    done = subprocess.run(
        ["/bin/bash", RUN],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 77, done.stderr
    assert done.stdout.startswith("rdma: not run on this machine:\n")
    assert "  qemu-system-x86_64: needs qemu-system-x86\n" in done.stdout
    assert "  a kernel: needs an apt-get that knows linux-image-amd64" in done.stdout

"""A copy of a working tree, with an environment and a build of its own, to try faults in."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from mutations.mutation import Mutation
from mutations.outcomes import Outcome, of_doctest, of_pytest

TEST_S = 240  # a test that takes longer has failed: faults may let ranks wait for ever
ALL_TESTS_S = 3600
COMPILED = ("", "core", "c10d")  # nothing for Python, recipes and Slurm
COPIED = "build/copied"  # the names of all files that came from the source


class BuildFailed(Exception):
    """The message is the end of what the build said."""


class CopiedTree:
    """`root` becomes a copy of `source`, which stays as it is.

    A copy of an earlier run is brought up to date, and compiles what differs. The first one takes
    minutes.

    Raises:
        BuildFailed: also where tools/setup.sh fails.
    """

    def __init__(self, source: Path, root: Path) -> None:
        self.root = root
        self._stale: set[str] = set()  # of what is compiled: "core", "c10d"
        self._bring(source)
        self._run("tools/setup.sh", "dev")
        (self._core,) = (path.parent for path in root.glob("build/cp*/CMakeCache.txt"))
        self._run("cmake", "-S", ".", "-B", str(self._core), "-DGEAR_BUILD_TESTS=ON")
        self._stale.add("core")
        self.build()

    def build(self) -> None:
        """Compiles what has changed, into the environment."""
        if "core" in self._stale:
            targets = ["_core", "gear_native_tests"]
            if (self._core / "libgear_mpi.so").exists():
                targets.append("gear_mpi")
            jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count()))
            self._run("cmake", "--build", str(self._core), "--parallel", jobs, "--target", *targets)
            (packages,) = self.root.glob(".venv/lib/python3.*/site-packages")
            self._run("cmake", "--install", str(self._core), "--prefix", str(packages))
        if "c10d" in self._stale:
            self._run("tools/c10d.sh")
        self._stale.clear()

    def prepare_for(self, mutations: Sequence[Mutation]) -> None:
        """Compiles what the tests of these need, without a fault."""
        self._stale |= {part for one in mutations if (part := compiled(one.file))}
        self.build()

    @contextlib.contextmanager
    def holding(self, mutation: Mutation) -> Iterator[None]:
        """Inside, the tree has the fault, and is built with it.

        Raises:
            BuildFailed: it cannot be.
        """
        path = self.root / mutation.file
        text = path.read_bytes()
        changed = {part for part in [compiled(mutation.file)] if part}
        try:
            path.write_bytes(mutation.applied(text.decode()).encode())
            self._stale |= changed
            self.build()
            yield
        finally:
            path.write_bytes(text)
            self._stale |= changed

    def run(self, tests: Sequence[str], native: Sequence[str]) -> dict[str, Outcome]:
        """What becomes of these tests and native cases."""
        found = {case: self._run_case(case) for case in native}
        if not tests:
            return found
        report = self.root / "build" / "mutations.xml"
        report.unlink(missing_ok=True)
        command = [".venv/bin/python", "-m", "pytest", "-q", f"--timeout={TEST_S}"]
        command += [f"--junitxml={report}", *self._leave_out(), *tests]
        ended = self._ended(command, ALL_TESTS_S)
        if not report.exists():
            print(f"mutations: pytest left no report; it said\n{ended[0][-2000:]}")
            return found | dict.fromkeys(tests, Outcome.BROKEN)
        return found | of_pytest(report.read_text(encoding="utf-8"), tests)

    def _leave_out(self) -> list[str]:
        """What `make test-nightly` alone runs must not be what finds a fault."""
        known = '"nightly:' in (self.root / "pyproject.toml").read_text(encoding="utf-8")
        return ["-m", "not nightly"] if known else []

    def _run_case(self, case: str) -> Outcome:
        pattern = case.replace(",", "?")  # a comma stands between patterns
        command = [str(self._core / "gear_native_tests"), f"--test-case={pattern}"]
        return of_doctest(*self._ended(command, TEST_S))

    def _ended(self, command: Sequence[str], most_s: float) -> tuple[str, int | None]:
        """Output and exit code; None: it did not end. Nothing that it has started goes on."""
        with (
            tempfile.TemporaryFile("w+", errors="replace") as said,
            subprocess.Popen(
                command, cwd=self.root, stdout=said, stderr=said, start_new_session=True
            ) as process,
        ):
            code = None
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(most_s)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            said.seek(0)
            return said.read(), code

    def _run(self, *command: str) -> None:
        path = f"{self.root}/.venv/bin:{os.environ['PATH']}"
        done = subprocess.run(
            command,
            cwd=self.root,
            env=os.environ | {"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if done.returncode != 0:
            raise BuildFailed(f"{' '.join(command)}\n{done.stdout[-3000:]}")

    def _bring(self, source: Path) -> None:
        """Every file of the source that git does not ignore. What is the same stays as old as it
        is, and is not compiled again."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=source,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        names = [name for name in listed.stdout.split("\0") if name and (source / name).is_file()]
        before = self.root / COPIED
        for gone in set(before.read_text().split("\0") if before.exists() else ()) - set(names):
            (self.root / gone).unlink(missing_ok=True)
        for name in names:
            old, new = source / name, self.root / name
            if not new.is_file() or new.read_bytes() != old.read_bytes():
                new.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(old, new)
            shutil.copymode(old, new)
        before.parent.mkdir(exist_ok=True)
        before.write_text("\0".join(names))


def compiled(file: str) -> str:
    """What is compiled again when this file changes, of COMPILED."""
    if file.startswith("process_group/src/"):
        return "c10d"
    return "core" if file.startswith("csrc/") else ""

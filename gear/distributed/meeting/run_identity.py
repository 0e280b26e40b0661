"""Which run a process is of: two runs may come to one address."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gear.distributed.member import Member
from gear.errors import InvalidArgument

# What launchers call a run, with what tells its parts and restarts apart; the inner ones first:
# mpirun starts ranks of one run in several steps of Slurm, and on its own node in none.
RUNS = (
    ["PMIX_NAMESPACE"],
    ["OMPI_MCA_ess_base_jobid"],
    ["PMI_JOBID"],
    ["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"],
    ["PBS_JOBID"],
    ["LSB_JOBID"],
)
# Variables that may differ between ranks of one run: of the rank, of the host, of the terminal.
OF_A_PROCESS = re.compile(
    r".*RANK.*|.*NODE.*|.*HOST.*|.*PID.*|PMI.*|OMPI.*|SLURM.*|HOROVOD.*|TORCHELASTIC.*|CUDA.*|ROCR.*"
    r"|SSH.*|TERM.*|TMUX.*|STY|WINDOW.*|XDG.*|DISPLAY|DBUS.*|SHLVL|PWD|OLDPWD|_|TMP.*|TEMP|LS_.*"
    r"|GEAR_LOG|LINES|COLUMNS|PYTEST.*|PYTHON.*|GLOO.*|NCCL.*|.*_FILE|VSCODE.*|GPG.*|.*SOCK.*"
)


@dataclass(frozen=True)
class RunIdentity:
    """What a process knows of its run.

    Attributes:
        run: what its launcher, or GEAR_RUN_ID, calls it; empty: nothing does. Ranks of one run have
            equal ones.
        program: of user, program and the variables that processes of one run mostly share.
        parent: the process that started this one. What processes of one run mostly share, too;
            both may differ all the same, where they were started by hand in two terminals.
        size: ranks of the run.
        member: the process as a rank.
        given: by the user to the group, the same on all ranks.
    """

    run: str
    program: str
    parent: str
    size: int
    member: Member
    given: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def here(rank: int, size: int, environ: Mapping[str, str] = os.environ) -> RunIdentity:
        member = Member.here(rank)
        return RunIdentity(
            run=_run(environ),
            program=_program(environ),
            parent=f"{os.getppid()} on {member.host}",
            size=size,
            member=member,
        )

    @staticmethod
    def from_text(text: bytes) -> RunIdentity:
        try:
            said = json.loads(text)
            return RunIdentity(**{**said, "member": Member.from_json(said["member"])})
        except (KeyError, TypeError, ValueError):
            raise InvalidArgument(
                f"[group] a rank that has come says {text[:80]!r} of itself, which this version of "
                "GEAR does not understand: ranks of one group must run the same version of GEAR"
            ) from None

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @property
    def who(self) -> str:
        """The process, for messages."""
        return str(self.member)

    def differs(self, other: RunIdentity) -> bool:
        """Whether the two are certainly of different runs."""
        return bool(self.run and other.run and self.run != other.run)

    def likeness(self, other: RunIdentity) -> tuple[bool, bool]:
        """The greater, the likelier they are of one run."""
        return self.program == other.program, self.parent == other.parent


def attempt(environ: Mapping[str, str] = os.environ) -> str:
    """Tells the restarts of a run apart where the store outlives them: torchrun's."""
    return environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def _run(environ: Mapping[str, str]) -> str:
    if environ.get("GEAR_RUN_ID"):
        return f"GEAR_RUN_ID={environ['GEAR_RUN_ID']}"
    torchrun = environ.get("TORCHELASTIC_RUN_ID", "none")
    if torchrun != "none":
        return f"TORCHELASTIC_RUN_ID={torchrun}"
    by_hand = "RANK" in environ  # then by something in a job, in one step of it or in several
    for names in RUNS:
        if environ.get(names[0]):
            names = [name for name in names if not (by_hand and name == "SLURM_STEP_ID")]
            return " ".join(f"{name}={environ[name]}" for name in names if environ.get(name))
    return ""


def _program(environ: Mapping[str, str]) -> str:
    shared = sorted(f"{k}={v}" for k, v in environ.items() if not OF_A_PROCESS.fullmatch(k))
    words = [word for word in sys.argv if "rank" not in word]
    text = json.dumps([os.getuid(), words, shared])
    return hashlib.sha256(text.encode()).hexdigest()[:16]

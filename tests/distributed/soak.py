#!/usr/bin/env python3
"""`gear train` by four ranks that are stopped, continued, killed and interrupted at random.

    python tests/distributed/soak.py --minutes 20 [--seed 1] [--ranks 4] [--timeout-s 6]

One run after the other is trained twice with the same seed: in one go, and disturbed, with as many
starts as it takes to come to its end. A schedule made of the seed says what is done to whom. Every
start is the same command on the same port, with `checkpoint=auto`. Checked are that ranks end in
time, with the exit codes and words that they should have, and leave no process and nothing in
/dev/shm; that the networks, optimisers, generators and loaders of every rank and every byte of the
replay are those of the run that nobody disturbed; and every row of the replay against the laws of
the pendulum.

One line a start, then a verdict. Exit code 1 on any fault.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import torch.distributed
from calm_clock import CalmClock
from gymnasium.envs.classic_control import pendulum  # noqa: F401 - imported once for all ranks
from ports import fresh_port

import gear
from gear.cli import app
from gear.train import app as train_app  # noqa: F401 - as above
from gear.train.record.checkpoint import Checkpoint, checkpoints

PATIENT_S = 120.0  # time-out of a group that nobody disturbs
LIMIT_S = 25.0  # and the time-out: for all ranks to end after a disturbance, on an idle machine
BUSY = 10  # times as long on a machine that does other work, at most
# SIGINT: of an interpreter that has ended its work, and its handlers.
GONE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
LOST, INTERRUPTED, GOES_ON = 2, 130, 75  # exit codes
TRAIN = (
    "dist=ddp",
    "dist.exchange_every=5",
    "env=pendulum",
    "algo.learning_starts=100",
    "algo.batch_size=16",
    "model.hidden=[16]",
    "logger=csv",
    "replay.capacity=400",
    "replay.tier=shared",
    "checkpoint=auto",
    "hydra.run.dir=runs/run",
)


# ---- a rank ----


@dataclass
class Rank:
    pid: int
    output: Path
    code: int | None = None

    def look(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None: it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def send(self, number: int) -> None:
        if self.look() is None:
            os.kill(self.pid, number)

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def last_words(self) -> str:
        lines = [line for line in self.text().splitlines() if line.strip()]
        return lines[-1] if lines else ""


def start(size: int, folder: Path, words: list[str]) -> list[Rank]:
    """Raises Forked in the children."""
    ranks = []
    # A child that is interrupted before it is a rank would go on as this process.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    for rank in range(size):
        output = folder / f"rank-{rank}"
        output.write_bytes(b"")
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            raise Forked(folder, output, [*words, f"rank={rank}", f"world_size={size}"])
        ranks.append(Rank(pid, output))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    return ranks


class Forked(BaseException):
    """This process is a rank. It goes on at the bottom of the stack, so that it ends as a process
    does that was started as one: holding nothing of the soak's, by Python's own end."""

    def __init__(self, folder: Path, output: Path, words: list[str]) -> None:
        self.folder, self.output, self.words = folder, output, words

    def become_the_command(self) -> None:
        to = os.open(self.output, os.O_WRONLY | os.O_APPEND)
        os.dup2(to, 1)
        os.dup2(to, 2)
        os.chdir(self.folder)
        sys.argv = ["gear", "train", *self.words]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


# ---- a run ----


class Soak:
    def __init__(
        self, seed: int, size: int, folder: Path, total_steps: int, timeout_s: float
    ) -> None:
        self.random = random.Random(seed)
        self.timeout_s = timeout_s
        self.limit_s = LIMIT_S + timeout_s
        self.size = size
        self.folder = folder
        self.total_steps = total_steps
        self.port = fresh_port()
        self.faults: list[str] = []
        self.done: Counter[str] = Counter()
        self.starts = 0
        self.rows = 0
        self.took_s = 10.0  # an undisturbed run

    def fault(self, text: str) -> None:
        self.faults.append(text)
        print(f"FAULT: {text}", flush=True)

    def words(self, seed: int, timeout_s: float) -> list[str]:
        own = [f"seed={seed}", f"total_steps={self.total_steps}", f"dist.timeout_s={timeout_s:g}"]
        every = self.total_steps // 5
        return [*TRAIN, *own, f"checkpoint_every={every}", f"dist.master_port={self.port}"]

    def run(self, seed: int, until: float) -> bool:
        """One run, twice; False: the time was up before the disturbed one came to its end."""
        folders = [self.folder / f"{seed}-{name}" for name in ("undisturbed", "disturbed")]
        for folder in folders:
            folder.mkdir()
        began = time.monotonic()
        ranks = start(self.size, folders[0], self.words(seed, PATIENT_S))
        self.wait(ranks, 240, f"run {seed}, undisturbed")
        self.took_s = time.monotonic() - began
        for i, rank in enumerate(ranks):
            if rank.code != 0:
                self.fault(
                    f"run {seed}, undisturbed: rank {i} ended with {rank.code}: {rank.text()}"
                )
                return False
        begun = self.starts
        while not self.turn(seed, folders[1]):
            if len(self.faults) >= 5 or self.starts - begun > 60:
                self.fault(f"run {seed} does not come to its end")
                return False
            if time.monotonic() > until + 60:
                return False
        self.compare(seed, *folders)
        for folder in folders:
            shutil.rmtree(folder)
        print(f"run {seed}: {self.starts - begun} starts, {self.took_s:.1f} s undisturbed")
        return True

    def wait(self, ranks: list[Rank], limit_s: float, what: str) -> None:
        deadline, clock = time.monotonic() + BUSY * limit_s, CalmClock()
        while any(rank.look() is None for rank in ranks):
            if clock.seconds() > limit_s or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        for number, rank in enumerate(ranks):
            if rank.look() is None:
                self.fault(
                    f"{what}: rank {number} is still there after {limit_s:g} s: {rank.text()}"
                )
                os.kill(rank.pid, signal.SIGCONT)
                os.kill(rank.pid, signal.SIGKILL)
                os.waitpid(rank.pid, 0)
                rank.code = -signal.SIGKILL

    def turn(self, seed: int, folder: Path) -> bool:
        """One start, what is done to it, and how it ends. Whether the run came to its end."""
        self.starts += 1
        before = newest(folder)
        ranks = start(self.size, folder, self.words(seed, self.timeout_s))
        done = []
        while any(rank.look() is None for rank in ranks):
            self.sleep(ranks, self.random.uniform(0.2, 0.5 * self.took_s))
            victim = self.random.randrange(self.size)
            what = self.random.choice(
                "kill one,kill one,kill all,interrupt one,interrupt all,terminate one,"
                "pause,pause,stop".split(",")
            )
            if all(rank.look() is not None for rank in ranks):
                break
            self.done[what] += 1
            done.append((what, victim))
            if self.disturb(ranks, what, victim):
                self.wait(ranks, self.limit_s, f"start {self.starts}, {what} of rank {victim}")
        self.check_ends(done, ranks)
        after = newest(folder)
        if after < before:
            self.fault(f"start {self.starts}: checkpoint {before} is gone")
        codes = [rank.code for rank in ranks]
        said = ", ".join(f"{what} of rank {victim}" for what, victim in done) or "nothing"
        victims = {victim for _, victim in done}
        words = next((r.last_words() for i, r in enumerate(ranks) if i not in victims), "")
        print(f"start {self.starts}: {said}; exit {codes}; step {after}; {words[:120]}", flush=True)
        return codes == [0] * self.size

    def sleep(self, ranks: list[Rank], time_s: float) -> None:
        until = time.monotonic() + time_s
        while time.monotonic() < until and any(rank.look() is None for rank in ranks):
            time.sleep(0.01)

    def disturb(self, ranks: list[Rank], what: str, victim: int) -> bool:
        """Whether the ranks end of it."""
        numbers = {"kill": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM}
        if what == "pause":  # shorter than the time-out: nobody minds
            ranks[victim].send(signal.SIGSTOP)
            time.sleep(self.random.uniform(0.05, self.timeout_s / 4))
            ranks[victim].send(signal.SIGCONT)
            return False
        if what == "stop":  # longer: the others give up, and it hears of that
            ranks[victim].send(signal.SIGSTOP)
            others = [rank for i, rank in enumerate(ranks) if i != victim]
            self.wait(others, self.limit_s, f"start {self.starts}, stop of rank {victim}")
            ranks[victim].send(signal.SIGCONT)
            return True
        whom, number = what.split()[1], numbers[what.split()[0]]
        for rank in ranks if whom == "all" else [ranks[victim]]:
            rank.send(number)
        return True

    def check_ends(self, done: list[tuple[str, int]], ranks: list[Rank]) -> None:
        victims = {victim for _, victim in done}
        if any(what.endswith("all") for what, _ in done):
            victims = set(range(self.size))
        for i, rank in enumerate(ranks):
            text = rank.text()
            allowed = {0, LOST, INTERRUPTED, GOES_ON, *(GONE if i in victims else ())}
            about = f"start {self.starts}, {done}: rank {i}, exit {rank.code}, says:\n{text}"
            if rank.code not in allowed or (rank.code != 0 and not done):
                self.fault(about)
            elif rank.code == LOST and not re.search(r"^gear: \[\w+\] .*ranks? \d", text, re.M):
                self.fault(f"without words: {about}")
            if re.search("terminate called|FATAL|Fatal|core dumped", text):
                self.fault(about)
            # torch says so of a wait whose time went by while the process was stopped.
            if "waitForInput" in text and ("stop", i) not in done:
                self.fault(about)
            if "Traceback" in text and i not in victims:
                self.fault(about)

    # ---- what came of it ----

    def compare(self, seed: int, undisturbed: Path, disturbed: Path) -> None:
        last = f"runs/run/checkpoints/step_{self.total_steps}"
        one, other = (content(folder / last, self.size) for folder in (undisturbed, disturbed))
        if not one or one != other:
            names = sorted(k for k in {*one, *other} if one.get(k) != other.get(k))
            self.fault(f"run {seed} ends with other {names or 'nothing at all'}")
        wrong, rows = check_rows(disturbed / last / "replay", self.size)
        self.rows += rows
        for text in wrong[:3]:
            self.fault(f"run {seed}: {text}")
        left = [p.name for p in Path("/dev/shm").glob(f"*{os.environ['GEAR_SHM_PREFIX']}*")]
        if left:
            self.fault(f"run {seed} left in /dev/shm: {left}")


def newest(folder: Path) -> int:
    return max((saved.step for saved in checkpoints(folder / "runs" / "run")), default=0)


def content(saved: Path, size: int) -> dict[str, str]:
    """Digests of what a checkpoint holds: every part of every rank's state but the clocks and
    the run's id, and every file of the replay."""
    found: dict[str, str] = {}
    for rank in range(size):
        state = Checkpoint(saved).state(rank, size)
        for clock in ("seconds", "replay_seconds", "checkpoint_seconds"):
            del state["counters"][clock]
        del state["run"]  # each has its own
        for key, value in state.items():
            found[f"{key} of rank {rank}"] = hashlib.sha256(bytes_of(value)).hexdigest()
    for path in sorted((saved / "replay").rglob("*")):
        if path.is_file():
            found[str(path.relative_to(saved))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def bytes_of(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"".join(repr(k).encode() + bytes_of(v) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return b"".join(map(bytes_of, value))
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return np.asarray(value).tobytes()
    return value if isinstance(value, bytes) else repr(value).encode()


def check_rows(path: Path, size: int) -> tuple[list[str], int]:
    """(what is wrong, number of rows): every reward is that of its observation and action, and
    every step follows from the one before."""
    wrong: list[str] = []
    counts = [0] * size

    def check(group: gear.Group) -> None:
        with gear.ReplayBuffer.load(path, group=group) as buffer:
            for episode in buffer.episodes():
                batch = buffer.collect(np.asarray(episode.ids), framework="numpy")
                cos, sin, speed = (np.asarray(batch["obs"], np.float64)[:, i] for i in range(3))
                force = 2 * np.clip(np.asarray(batch["action"], np.float64)[:, 0], -1, 1)
                angle = np.arctan2(sin, cos)
                reward = -(angle**2 + 0.1 * speed**2 + 0.001 * force**2)
                then = np.clip(speed + (15.0 * sin + 3.0 * force) * 0.05, -8, 8)
                same = np.isclose(batch["reward"], reward, rtol=1e-3, atol=1e-3)
                same[1:] &= np.isclose(speed[1:], then[:-1], rtol=1e-3, atol=1e-3)
                counts[group.rank] += len(same)
                wrong.extend(
                    f"rank {group.rank}, episode {episode.uid}: row {row} is not of the pendulum"
                    for row in np.flatnonzero(~same)
                )

    groups = gear.Group.loopback(size, timeout_s=60)
    threads = [threading.Thread(target=check, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not all(counts):
        wrong.append(f"the ranks' replays hold {counts} rows")
    return wrong, sum(counts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1000, help="of a run, by all ranks")
    parser.add_argument("--timeout-s", type=float, default=6.0, help="more on a busy machine")
    options = parser.parse_args()
    if options.steps % (5 * options.ranks) != 0:
        parser.error(f"--steps {options.steps}: a multiple of {5 * options.ranks} is needed")
    torch.set_num_threads(1)
    # What is imported at the first use of an optimiser, once for all ranks.
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()
    os.environ["GEAR_SHM_PREFIX"] = f"soak{os.getpid()}"
    os.environ["GEAR_NUM_THREADS"] = "1"
    until = time.monotonic() + 60 * options.minutes
    # Neither a TemporaryDirectory nor removed on the way out, which the ranks go as well.
    folder = Path(tempfile.mkdtemp(prefix="soak"))
    soak = Soak(options.seed, options.ranks, folder, options.steps, options.timeout_s)
    runs = 0
    while not soak.faults and (not runs or time.monotonic() < until):
        if not soak.run(options.seed * 1000 + runs, until):
            break
        runs += 1
    shutil.rmtree(folder, ignore_errors=True)
    for name in Path("/dev/shm").glob(f"*{os.environ['GEAR_SHM_PREFIX']}*"):
        name.unlink(missing_ok=True)
    done = ", ".join(f"{count} x {what}" for what, count in sorted(soak.done.items()))
    verdict = "well" if not soak.faults else f"{len(soak.faults)} FAULTS"
    print(
        f"soak: {runs} runs, {soak.starts} starts ({done}), {soak.rows} rows, "
        f"seed {options.seed}: {verdict}",
        flush=True,
    )
    return 1 if soak.faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Forked as forked:
        forked.become_the_command()
    sys.exit(app.main())

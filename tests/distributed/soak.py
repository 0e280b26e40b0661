#!/usr/bin/env python3
"""Four ranks that learn, and are stopped, continued, killed and interrupted at random.

    python tests/distributed/soak.py --minutes 20 [--seed 1] [--ranks 4]

Every turn starts the ranks on one port, with one name of shared memory, from the newest checkpoint;
a schedule made of the seed says what is done to whom. When the time is up, a last turn without
disturbance goes on to the next multiple of CHECKPOINT_EVERY steps, and the same number of steps is
run without any. Checked are every row of every batch against what was written; that ranks end in
time and with words; that nothing is left in /dev/shm and no process; and that networks, buffers and
loaders of both runs are equal to the bit.

One line a turn, then a verdict. Exit code 1 on any fault.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import torch.distributed
from ports import fresh_port

import gear

TIMEOUT_S = 6.0  # of the group
LIMIT_S = TIMEOUT_S + 25  # for all ranks to end after a disturbance
CHECKPOINT_EVERY = 50
CAPACITY, BATCH, FEATURES = 512, 16, 8
LOST, INTERRUPTED, WRONG = 3, 130, 9  # exit codes
SCHEMA = gear.Schema(
    [gear.Column("key", (3,), "int64"), gear.Column("x", (FEATURES,)), gear.Column("y")]
)
OUTPUTS = {
    "key": gear.Step(),
    "x": gear.Step(),
    "y": gear.Step(),
    "window": gear.Window(-2, 3, "key"),
}


# ---- a rank ----


def rows_of(rank: int, episode: int, steps: int) -> dict[str, np.ndarray]:
    key = np.stack([np.full(steps, rank), np.full(steps, episode), np.arange(steps)], axis=1)
    mixed = (key @ np.array([7919, 104729, 1299709])) % 65521
    x = np.sin(mixed[:, None] * np.arange(1, FEATURES + 1)).astype(np.float32)
    return {"key": key.astype(np.int64), "x": x, "y": x[:, 0] - x[:, 3]}


def check_rows(batch: gear.Batch) -> None:
    """Every row is what its key says, and its window holds its neighbours."""
    key = np.asarray(batch["key"])
    for i, (rank, episode, step) in enumerate(key.tolist()):
        want = rows_of(rank, episode, step + 1)
        same = (batch["x"][i] == want["x"][-1]).all() and batch["y"][i] == want["y"][-1]
        same &= bool((batch.ids[i] >> 50) == rank)
        for place, mask in enumerate(np.asarray(batch.masks["window"])[i]):
            near = [rank, episode, step + place - 2] if mask else [0, 0, 0]
            same &= bool((batch["window"][i][place] == near).all())
        if not same:
            raise AssertionError(f"row {i}, {key[i]}, is not what was written: {batch['x'][i]}")


def learn(folder: Path, until: int, progress: Any) -> None:
    """This process as a rank: from the newest checkpoint in `folder` to step `until`."""
    group = gear.Group.from_env(timeout_s=TIMEOUT_S)
    found = newest(folder)
    start = group.exchange(str(found) if found else None)[0]
    net = torch.nn.Linear(FEATURES, 1)
    torch.nn.init.constant_(net.weight, 0.1)
    torch.nn.init.zeros_(net.bias)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    place = {"tier": "shared", "name": "soak", "group": group}
    options = {"outputs": OUTPUTS, "framework": "numpy", "seed": 5}
    sampler = gear.Weighted(alpha=0.6, beta=0.4)
    if start is None:
        first = 0
        buffer = gear.ReplayBuffer(SCHEMA, CAPACITY, **place)
        write_episode(buffer, group.rank, 0)
        loader = buffer.loader(BATCH, sampler=sampler, **options)
    else:
        state = torch.load(Path(start) / f"rank-{group.rank}.pt", weights_only=True)
        first = state["step"]
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        buffer = gear.ReplayBuffer.load(Path(start) / "replay", **place)
        loader = buffer.loader(BATCH, sampler=sampler, **options)
        loader.load_state_dict(state["loader"])
    for step in range(first + 1, until + 1):
        progress[group.rank] = step
        write_episode(buffer, group.rank, step)
        batch = next(loader)
        check_rows(batch)
        error = net(torch.from_numpy(batch["x"]))[:, 0] - torch.from_numpy(batch["y"])
        optimizer.zero_grad()
        (torch.from_numpy(batch.weights) * error**2).mean().backward()
        average([p.grad for p in net.parameters()], group)
        optimizer.step()
        buffer.update(batch.ids, error.detach().abs().numpy() + 1e-3)
        if step % CHECKPOINT_EVERY == 0:
            save(
                folder,
                step,
                group,
                buffer,
                {
                    "step": step,
                    "net": net.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                },
            )
    loader.close()
    buffer.close()
    group.barrier()
    group.close()


def write_episode(buffer: gear.ReplayBuffer, rank: int, episode: int) -> None:
    with buffer.writer() as writer:
        writer.extend(**rows_of(rank, episode, 3 + (7 * episode + rank) % 11))
        writer.end_episode(terminated=True)


def average(gradients: list[torch.Tensor], group: gear.Group) -> None:
    """By the group's own exchange: text of a double is exact."""
    told = group.exchange([g.double().reshape(-1).tolist() for g in gradients])
    for i, gradient in enumerate(gradients):
        mean = np.mean([np.array(one[i]) for one in told], axis=0)
        gradient.copy_(torch.from_numpy(mean).reshape(gradient.shape))


def save(
    folder: Path, step: int, group: gear.Group, buffer: gear.ReplayBuffer, state: dict[str, Any]
) -> None:
    beside = folder / "saving"
    if group.rank == 0:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
    group.barrier()
    buffer.save(beside / "replay")
    torch.save(state, beside / f"rank-{group.rank}.pt")
    group.barrier()
    if group.rank == 0:
        beside.rename(folder / f"step-{step:06d}")
        for old in sorted(folder.glob("step-*"))[:-2]:
            shutil.rmtree(old)


def newest(folder: Path) -> Path | None:
    return max(folder.glob("step-*"), default=None)


# ---- a turn ----


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

    def last_words(self) -> str:
        lines = [line for line in self.output.read_text(errors="replace").splitlines() if line]
        return lines[-1] if lines else ""


def start(
    size: int, port: int, folder: Path, until: int, outputs: Path, progress: Any
) -> list[Rank]:
    ranks = []
    # A child that is interrupted before it is a rank would go on as this process.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    outputs.mkdir(parents=True, exist_ok=True)
    for rank in range(size):
        output = outputs / f"rank-{rank}"
        output.write_bytes(b"")
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            play(rank, size, port, folder, until, output, progress)
        ranks.append(Rank(pid, output))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    return ranks


def play(
    rank: int, size: int, port: int, folder: Path, until: int, output: Path, progress: Any
) -> None:
    """The forked child: never returns."""
    code = WRONG
    try:
        to = os.open(output, os.O_WRONLY | os.O_APPEND)
        os.dup2(to, 1)
        os.dup2(to, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        places = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in places.items()})
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        learn(folder, until, progress)
        code = 0
    except BaseException as error:  # noqa: BLE001 - ends as the interpreter does
        sys.last_value = error
        code = LOST if isinstance(error, gear.TransportError) else WRONG
        if isinstance(error, KeyboardInterrupt):
            code = INTERRUPTED
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Soak:
    def __init__(self, seed: int, size: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.size = size
        self.folder = folder
        self.port = fresh_port()
        self.faults: list[str] = []
        self.done: Counter[str] = Counter()
        self.progress = np.memmap(folder / "progress", np.int64, "w+", shape=(size,))

    def fault(self, text: str) -> None:
        self.faults.append(text)
        print(f"FAULT: {text}", flush=True)

    def wait(self, ranks: list[Rank], limit_s: float, what: str) -> None:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and any(rank.look() is None for rank in ranks):
            time.sleep(0.01)
        for number, rank in enumerate(ranks):
            if rank.look() is None:
                self.fault(f"{what}: rank {number} is still there after {limit_s:g} s")
                os.kill(rank.pid, signal.SIGCONT)
                os.kill(rank.pid, signal.SIGKILL)
                os.waitpid(rank.pid, 0)
                rank.code = -signal.SIGKILL

    def turn(self, number: int) -> None:
        """One start, what is done to it, and how it ends."""
        folder = self.folder / "disturbed"
        before = newest(folder)
        ranks = start(self.size, self.port, folder, 10**9, self.folder / "outputs", self.progress)
        time.sleep(self.random.choice([0.0, 0.3, 1.0]) + self.random.uniform(0.2, 2.5))
        what = self.random.choice(
            ["kill one", "kill one", "kill all", "interrupt one", "terminate one", "pause", "stop"]
        )
        victim = self.random.randrange(self.size)
        self.done[what] += 1
        ended = self.disturb(ranks, what, victim)
        if not ended:  # they were to go on, and do
            began = int(self.progress[0])
            until = time.monotonic() + LIMIT_S
            while int(self.progress[0]) <= began and time.monotonic() < until:
                time.sleep(0.05)
            if int(self.progress[0]) <= began:
                self.fault(f"turn {number}: no step after {what} of rank {victim}")
            victim = self.random.randrange(self.size)
            ranks[victim].send(signal.SIGKILL)
        self.wait(ranks, LIMIT_S, f"turn {number}, {what} of rank {victim}")
        self.check_ends(number, what, victim, ranks)
        after = newest(folder)
        if before and (after is None or after < before):
            self.fault(f"turn {number}: checkpoint {before} is gone")
        codes = [rank.code for rank in ranks]
        words = next((r.last_words() for i, r in enumerate(ranks) if i != victim), "")
        print(
            f"turn {number}: {what} of rank {victim}; exit {codes}; "
            f"{after.name if after else 'no checkpoint'}; {words[:150]}",
            flush=True,
        )

    def disturb(self, ranks: list[Rank], what: str, victim: int) -> bool:
        """Whether the ranks end of it."""
        numbers = {"kill": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM}
        if what == "kill all":
            for rank in ranks:
                rank.send(signal.SIGKILL)
        elif what == "pause":  # shorter than the time-out: nobody minds
            ranks[victim].send(signal.SIGSTOP)
            time.sleep(self.random.uniform(0.05, TIMEOUT_S / 4))
            ranks[victim].send(signal.SIGCONT)
            return False
        elif what == "stop":  # longer: the others give up, and it hears of that
            ranks[victim].send(signal.SIGSTOP)
            others = [rank for i, rank in enumerate(ranks) if i != victim]
            self.wait(others, LIMIT_S, f"stop of rank {victim}")
            ranks[victim].send(signal.SIGCONT)
        else:
            ranks[victim].send(numbers[what.split()[0]])
        return True

    def check_ends(self, number: int, what: str, victim: int, ranks: list[Rank]) -> None:
        for i, rank in enumerate(ranks):
            text = rank.output.read_text(errors="replace")
            allowed = {0, LOST}
            if i == victim or what == "kill all":
                allowed |= {INTERRUPTED, -signal.SIGKILL, -signal.SIGTERM}
            if rank.code not in allowed:
                self.fault(f"turn {number}, {what}: rank {i} ended with {rank.code}:\n{text}")
            elif rank.code == LOST and "TransportError: [" not in text:
                self.fault(f"turn {number}, {what}: rank {i} has no words:\n{text}")
            if "terminate called" in text or "c10d] waitForInput" in text:
                self.fault(f"turn {number}, {what}: rank {i} says:\n{text}")

    def finish(self) -> None:
        """On to a checkpoint without disturbance, the same steps from the start, and compares."""
        found = newest(self.folder / "disturbed")
        steps = (int(found.name[5:]) if found else 0) + CHECKPOINT_EVERY
        for name in ("disturbed", "undisturbed"):
            folder = self.folder / name
            folder.mkdir(exist_ok=True)
            ranks = start(
                self.size, self.port, folder, steps, self.folder / name / "outputs", self.progress
            )
            self.wait(ranks, 60 + steps, f"the {name} run")
            for i, rank in enumerate(ranks):
                if rank.code != 0:
                    text = rank.output.read_text(errors="replace")
                    self.fault(f"the {name} run: rank {i} ended with {rank.code}:\n{text}")
        last = f"step-{steps:06d}"
        one = content(self.folder / "disturbed" / last)
        other = content(self.folder / "undisturbed" / last)
        if not one or one != other:
            names = sorted(k for k in {*one, *other} if one.get(k) != other.get(k))
            self.fault(f"after {steps} steps the runs differ in {names or 'everything'}")
        print(f"compared {len(one)} things after {steps} steps", flush=True)
        left = [p.name for p in Path("/dev/shm").glob(f"*{os.environ['GEAR_SHM_PREFIX']}*")]
        if left:
            self.fault(f"left in /dev/shm: {left}")


def content(folder: Path) -> dict[str, str]:
    """Digests of what a checkpoint holds: the networks, loaders and optimisers, and every file of
    the buffer."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".pt":
            state = torch.load(path, weights_only=True)
            for key, value in state.items():
                found[f"{path.name} {key}"] = hashlib.sha256(text_of(value)).hexdigest()
        elif path.is_file():
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def text_of(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"".join(repr(k).encode() + text_of(v) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return b"".join(map(text_of, value))
    if isinstance(value, torch.Tensor):
        return value.numpy().tobytes()
    return value if isinstance(value, bytes) else repr(value).encode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # What is imported at the first use of an optimiser, once for all ranks.
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()
    os.environ["GEAR_SHM_PREFIX"] = f"soak{os.getpid()}"
    os.environ["GEAR_NUM_THREADS"] = "1"
    until = time.monotonic() + 60 * options.minutes
    # Not a TemporaryDirectory, which the ranks would remove when they end.
    folder = Path(tempfile.mkdtemp(prefix="soak"))
    try:
        soak = Soak(options.seed, options.ranks, folder)
        (folder / "disturbed").mkdir()
        number = 0
        while time.monotonic() < until and len(soak.faults) < 5:
            number += 1
            soak.turn(number)
        soak.finish()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name in Path("/dev/shm").glob(f"*{os.environ['GEAR_SHM_PREFIX']}*"):
        name.unlink(missing_ok=True)
    done = ", ".join(f"{count} x {what}" for what, count in sorted(soak.done.items()))
    verdict = "well" if not soak.faults else f"{len(soak.faults)} FAULTS"
    print(f"soak: {number} turns ({done}), seed {options.seed}: {verdict}", flush=True)
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""A process that works on one GPU takes no memory of another: there is no context on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLACES = [("host", "auto"), ("pinned", "zero_copy"), ("pinned", "staged"), ("device:1", "auto")]

PROGRAM = """
import ctypes
import sys
import threading

import numpy as np
import torch

sys.path.insert(0, {tests!r})
from numbered import SCHEMA, check, write

import gear

driver = ctypes.CDLL("libcuda.so.1")


def contexts():
    found = []
    for gpu in (0, 1):
        flags, active = ctypes.c_uint(), ctypes.c_int()
        status = driver.cuDevicePrimaryCtxGetState(gpu, ctypes.byref(flags), ctypes.byref(active))
        assert status == 0, status
        found.append(active.value)
    return found


def in_another_thread(work):
    failures = []

    def run():
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failures, failures
    print(work.__name__, *contexts())


torch.cuda.set_device(1)
buffer = gear.ReplayBuffer(SCHEMA, 4096, page_steps=16, tier={tier!r})
write(buffer, 1, [200] * 25, np.random.default_rng(0))
print("made", *contexts())
for sampler in (gear.Uniform(), gear.Weighted(), gear.Fifo()):
    for packed in (False, True):
        to_gpu = dict(device="cuda:1", path={path!r}, framework="torch")
        loader = buffer.loader(256, sampler=sampler, packed=packed, **to_gpu)
        batches = []

        def draw():
            for _ in range(6):
                batches.append(next(loader))

        def append():
            write(buffer, 1, [200] * 10, np.random.default_rng(1))

        def update():
            ids = np.concatenate([episode.ids for episode in buffer.episodes()])
            buffer.update(ids[:512], np.ones(512, np.float32))

        def drop():
            batches.clear()
            loader.close()

        in_another_thread(draw)
        in_another_thread(append)
        in_another_thread(update)
        in_another_thread(draw)
        for batch in batches:
            check({{name: batch[name].cpu().numpy() for name in batch}})
        del batch
        state = loader.state_dict()
        loader.load_state_dict(state)
        in_another_thread(draw)
        in_another_thread(drop)

        def let_go():
            global loader
            loader = None

        in_another_thread(let_go)
if {tier!r} != "host":
    with buffer.loader(256, device="cpu", framework="numpy") as loader:
        check(next(loader))
        print("to the host", *contexts())


def close():
    global buffer
    buffer.close()
    buffer = None


in_another_thread(close)
print("end", *contexts())
"""


@pytest.mark.slow
@pytest.mark.gpus(2)
@pytest.mark.timeout(150)
@pytest.mark.parametrize("place", PLACES, ids="-".join)
def test_work_on_the_second_gpu_makes_no_context_on_the_first(place: tuple[str, str]) -> None:
    tier, path = place
    program = PROGRAM.format(tests=str(Path(__file__).parents[1]), tier=tier, path=path)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=140
    )
    assert (done.returncode, done.stderr) == (0, "")
    states = [line.rsplit(" ", 2) for line in done.stdout.splitlines()]
    assert states[-1] == ["end", "0", "1"]
    assert [state for state in states if state[1] != "0"] == []

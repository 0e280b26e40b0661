"""What ranks do together, by ranks that are threads; and devices that a machine lacks."""

from __future__ import annotations

import errno
import os
import queue
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from train.composed import compose

import gear
from gear.train import app, run
from gear.train.app import main
from gear.train.config import of_the_run, read, read_place
from gear.train.loop import Learner
from gear.train.ranks import Ranks, devices, leaving, meeting, ranks, torch_group
from gear.train.ranks.devices import check_gpus, shared_out
from gear.train.ranks.torch_group import choose_backend
from gear.train.record import checkpoint
from gear.train.record.display import Display


def by_rank(size, work, *, device="cpu", backend="auto"):
    """What `work(ranks)` of every rank returned or raised, by rank."""

    def one(group):
        try:
            return work(Ranks(group, device, backend))
        except BaseException as error:  # noqa: BLE001 - SystemExit is what is looked for
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, gear.Group.loopback(size, timeout_s=60)))


@pytest.fixture(autouse=True)
def without_gradients(monkeypatch):
    """torch's process group is one for a process."""
    monkeypatch.setattr(ranks, "join", lambda group, backend, in_time, job: None)


@pytest.mark.parametrize("kind", [gear.InvalidArgument, ZeroDivisionError])
@pytest.mark.parametrize("failing", [{0}, {2}, {1, 2}, {0, 1, 2}])
def test_what_fails_anywhere_fails_everywhere_and_one_rank_says_it(failing, kind):
    def work(ranks):
        def step():
            if ranks.rank in failing:
                raise kind(f"[train] on {ranks.rank}")
            return ranks.rank

        return ranks.together(step)

    found = by_rank(3, work)
    for rank, error in enumerate(found):
        if rank == min(failing):
            assert (type(error), str(error)) == (kind, f"[train] on {rank}")
        else:
            assert isinstance(error, SystemExit), error
            assert (error.code, error.__cause__) == (2, None)  # the command shows a cause


def test_full_disk_of_one_rank_ends_the_save_on_all(tmp_path, monkeypatch, configure):
    """None waits for the one that failed, and the checkpoint that was there stays."""
    config = configure()
    write = checkpoint._write

    def save(step):
        def work(ranks):
            buffer = gear.ReplayBuffer(
                gear.Schema([gear.Column("obs", (2,))]), 64, group=ranks.group
            )
            return checkpoint.save(
                tmp_path,
                step,
                config=config.yaml,
                shared={"algorithm": {}},
                own={"of": ranks.rank},
                buffer=buffer,
                ranks=ranks,
                keep=1,
            )

        return by_rank(2, work)

    assert [saved.step for saved in save(10)] == [10, 10]

    def full(path, state):
        if path.name == "trainer-00001-of-00002.pt":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, state)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_write", full)
        other, failed = save(20)
    assert isinstance(other, SystemExit)
    assert isinstance(failed, OSError)
    assert "No space left on device" in str(failed)
    assert "trainer-00001-of-00002.pt" in str(failed)
    assert [saved.step for saved in checkpoint.checkpoints(tmp_path)] == [10]
    assert [saved.step for saved in save(30)] == [30, 30]
    state = checkpoint.find(tmp_path).state(1, 2)
    assert (state["of"], state["num_ranks"]) == (1, 2)


def test_resume_refuses_networks_that_differ_from_the_saved(tmp_path, configure):
    """Networks are saved once; a rank that had others when it saved says so."""
    learner = Learner(configure("algo.learning_starts=10", "model.hidden=[4]"))
    for _ in range(12):
        learner.step()
    saved = learner.save(tmp_path)
    path = saved.path / "trainer.pt"
    state = torch.load(path, weights_only=True)
    state["algorithm"]["trained"]["all"]["model"]["policy.body.0.bias"][0] += 1
    torch.save(state, path)
    message = r"\[train\] .*step_12 holds other networks than rank 0 had .* older checkpoint"
    with pytest.raises(gear.CorruptData, match=message):
        Learner(read(saved.config()), start=saved)


def test_a_warning_of_another_rank_appears_with_its_number(capsys):
    warning = "warning: Hopper-v5 did not reproduce episode 2"
    quiet = Console(quiet=True)
    run._note(Display(quiet, "SAC", 10), 3)(warning)
    assert capsys.readouterr() == ("", f"rank 3: {warning}\n")
    run._note(Display(Console(), "SAC", 10), 0)(warning)
    assert capsys.readouterr() == (f"{warning}\n", "")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["optim.lr=0.01"], r"optim.lr is 0\.\d+ on rank 0, 0.01 on rank 1"),
        (["env.id=CartPole-v0"], "env.id is 'Pendulum-v1' on rank 0, 'CartPole-v0' on rank 1"),
        (["total_steps=77", "seed=9"], "seed is .*; total_steps is .*, 77 on rank 1"),
        (["device=cuda:1"], None),  # each rank has its own
    ],
)
def test_every_key_of_the_configuration_is_compared(overrides, said):
    words = ["env=pendulum", "algo=sac"]
    given = [of_the_run(compose(*words)), of_the_run(compose(*words, *overrides))]

    def work(ranks):
        ranks.alike(lambda: given[ranks.rank], "[train] gear train")

    first, second = by_rank(2, work)
    if said is None:
        assert first is second is None
        return
    assert isinstance(first, gear.InvalidArgument)
    assert re.search(rf"^\[train\] gear train: {said}: give the same on all ranks$", str(first))
    assert isinstance(second, SystemExit)


def test_ctrl_c_before_the_ranks_have_met_is_told_to_those_that_wait(monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr(meeting, "decline", lambda *given: told.append(given))

    def interrupted(*_):
        raise KeyboardInterrupt

    words = ("env=pendulum", "dist=ddp", "rank=1", "world_size=2")
    monkeypatch.setattr(run, "choose", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.train(compose(*words), [], tmp_path)
    monkeypatch.setattr(app, "_application", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main(words)
    assert len(told) == 2
    for launch, said, wait_s in told:
        assert (launch.rank, launch.size) == (1, 2)
        assert "Ctrl-C" in said
        assert wait_s < 0.5


# ---- waits ----


class Work:
    """A collective that ends at the fifth look, or never."""

    def __init__(self, *, ends=True):
        self.looks = []
        self.ends = ends

    def is_completed(self):
        return self.ends and len(self.looks) >= 5

    def wait(self, limit=None):
        if limit is not None:
            self.looks.append(limit.total_seconds())
            raise RuntimeError("Operation timed out!")


def test_a_collective_is_waited_for_in_slices_that_ctrl_c_ends():
    work = Work()
    one = Ranks.single()
    one.backend = "gloo"
    one._wait(work)
    assert len(work.looks) == 5
    assert max(work.looks) <= 0.1


def test_words_of_another_rank_end_a_collective():
    def wait(ranks):
        if ranks.rank == 1:
            ranks.group.fail("ended with ValueError: mine")
            return None
        with ranks._naming_the_missing():
            ranks._wait(Work(ends=False))
        return None

    first, _ = by_rank(2, wait)
    assert isinstance(first, gear.TransportError)
    assert "ended with ValueError: mine" in str(first)


@pytest.mark.parametrize(
    ("gpus", "wanted", "backend"),
    [
        (["", ""], "auto", "gloo"),
        (["a", "b"], "auto", "nccl"),
        (["a", "a"], "auto", "gloo"),  # NCCL has no two ranks on a GPU
        (["a", "b"], "gloo", "gloo"),
        (["a", "b"], "nccl", "nccl"),
        (["", ""], "gear_mpi", "gear_mpi"),
    ],
)
def test_what_averages_gradients(monkeypatch, gpus, wanted, backend):
    monkeypatch.setattr(torch_group.dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch_group, "_extension", lambda: None)
    assert choose_backend(gpus, wanted) == backend


@pytest.mark.parametrize(
    ("gpus", "wanted", "sentence"),
    [
        (["a", "a"], "nccl", "dist.backend=nccl: every rank needs a GPU of its own: give device="),
        (["a", "b"], "nccl", "dist.backend=nccl: this torch has no NCCL: give device=cuda with"),
        (["a", "b"], "gear_mpi", "moves tensors of the host's memory, .*: give device=cpu, or "),
    ],
)
def test_a_backend_that_cannot_be_had_is_one_sentence(monkeypatch, gpus, wanted, sentence):
    monkeypatch.setattr(torch_group.dist, "is_nccl_available", lambda: False)
    with pytest.raises(gear.InvalidArgument, match=rf"^\[train\] .*{sentence}"):
        choose_backend(gpus, wanted)


def test_a_backend_that_one_rank_lacks_ends_all(monkeypatch):
    """gear_mpi that is not built, say."""

    def extension():
        raise gear.InvalidArgument("[mpi] the backend gear_mpi has not been built")

    monkeypatch.setattr(torch_group, "_extension", extension)
    found = by_rank(2, lambda ranks: ranks, backend="gear_mpi")
    assert [type(error) for error in found] == [gear.InvalidArgument, SystemExit]


def test_connections_that_do_not_close_hold_nobody_up(monkeypatch):
    """gloo's wait for a rank that hangs, until its own time-out."""
    hangs = threading.Event()
    monkeypatch.setattr(ranks.dist, "destroy_process_group", lambda group: hangs.wait())
    monkeypatch.setattr(ranks, "MOMENT_S", 0.05)

    def give_up(ranks):
        ranks.process_group = object()
        with ranks._naming_the_missing():
            raise RuntimeError("no answer within 60 s")

    found = by_rank(2, give_up)
    hangs.set()
    for error in found:
        assert isinstance(error, gear.TransportError)
        assert "no answer within 60 s" in str(error)


@pytest.mark.parametrize(
    ("hosts", "ended", "looks"), [("aabb", [1], 1), ("aaab", [1], 2), ("aabb", [1, 3], 1)]
)
def test_a_failed_rank_stays_for_the_ranks_of_its_host_and_no_others(
    monkeypatch, hosts, ended, looks
):
    """All share a node, as `GEAR_NODE` may name it, and this host's processes are seen."""
    members = [SimpleNamespace(host=host) for host in hosts]
    looked, left = [], []

    def missing(wait_s):
        looked.append(wait_s)
        return ended if len(looked) < 2 else [1, 2, 3]

    monkeypatch.setattr(leaving.os, "_exit", left.append)
    group = SimpleNamespace(rank=0, members=members, local_size=4, missing=missing)
    leaving._leave(2, group, None)
    assert left == [2]
    assert looked == [0.0] * looks


# ---- GPUs that are not here ----


@pytest.fixture
def machine(monkeypatch):
    """machine(core=, torch_cuda=, gpus=): what GEAR and torch say of themselves."""

    def make(*, core=True, torch_cuda="12.6", gpus=0):
        fake = SimpleNamespace(build_info=lambda: {"cuda": core})
        monkeypatch.setattr(devices.gear, "_core", fake)
        monkeypatch.setattr(torch.version, "cuda", torch_cuda)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)

    return make


@pytest.mark.parametrize(
    ("has", "device", "message"),
    [
        ({"core": False}, "cuda", r"device=cuda: this GEAR was built without CUDA: .*device=cpu$"),
        ({"torch_cuda": None}, "cuda", r"device=cuda: torch .* was built without CUDA: .*=cpu$"),
        ({}, "cuda", r"device=cuda: torch sees no GPU: .*CUDA_VISIBLE_DEVICES, or use device=cpu$"),
        ({"gpus": 2}, "cuda:2", r"device=cuda:2: torch sees 2 GPU\(s\): give cuda:0 to cuda:1"),
    ],
)
def test_an_unavailable_device_is_refused(machine, has, device, message):
    machine(**has)
    with pytest.raises(gear.InvalidArgument, match=rf"^\[train\] {message}"):
        check_gpus(device)


def test_check_gpus_counts_the_gpus(machine):
    machine(gpus=2)
    assert check_gpus("cuda") == check_gpus("cuda:1") == 2


@pytest.mark.parametrize(
    ("seen", "taken"),
    [
        (["abcd"] * 4, "abcd"),  # all of the job's
        (["a", "b", "c", "d"], "abcd"),  # --gpus-per-task=1
        (["ab", "cd", "ab", "cd"], "acbd"),  # --gpu-bind=closest, tasks by turns on two sockets
        (["ab"] * 4, "abab"),  # more ranks than GPUs
        (["b", "ab"], "ba"),  # device=cuda:1 of rank 0 alone
        (["", "ab"], ["", "a"]),  # device=cpu of rank 0 alone
    ],
)
def test_each_rank_takes_a_gpu_of_its_own_however_tasks_are_bound(seen, taken):
    """A letter is a GPU; a rank sees those of its word."""
    found = zip(seen, shared_out(seen), strict=True)
    assert [mine[index : index + 1] for mine, index in found] == list(taken)


def test_ranks_that_see_pairs_of_gpus_take_one_each(machine, monkeypatch):
    """The numbers are those of the rank, the choice is that of the node."""
    machine(gpus=2)
    sees = threading.local()
    monkeypatch.setattr(devices, "gpu_of", lambda device: sees.gpus[int(device[-1])])
    monkeypatch.setattr(devices.torch.cuda, "set_device", lambda device: None)

    def work(group):
        sees.gpus = ("ab", "cd")[group.rank % 2]
        told = group.exchange(devices.gpus_for("cuda", group.size))
        return devices.take_device("cuda", group, told)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, gear.Group.loopback(4, timeout_s=60)))
    assert found == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]


def test_ranks_by_hand_take_the_gpus_that_the_environment_shows(machine, monkeypatch):
    """CUDA_VISIBLE_DEVICES=4,7 for both: GPU 4 is cuda:0 of both and GPU 7 is cuda:1."""
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "what the ranks set is gone at the end")
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    shown = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    machine(gpus=len(shown))
    properties = {f"cuda:{i}": SimpleNamespace(uuid=gpu) for i, gpu in enumerate(shown)}
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties.__getitem__)
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(device))
    groups, met = gear.Group.loopback(2, timeout_s=60), queue.Queue()

    def from_env(timeout_s):
        rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
        met.put((rank, size))
        return groups[rank]

    monkeypatch.setattr(gear.Group, "from_env", from_env)
    words = ("dist=ddp", "dist.backend=gloo", "device=cuda", "world_size=2")
    places = [read_place(compose(*words, f"rank={rank}")) for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        started = []
        for rank, place in enumerate(places):  # one after the other: they share an environment
            started.append(pool.submit(meeting.start_ranks, place))
            assert met.get(timeout=60) == (rank, 2)
        devices_taken = [one.result().device for one in started]
    assert devices_taken == sorted(chosen) == ["cuda:0", "cuda:1"]
    assert [devices.gpu_of(device) for device in devices_taken] == ["4", "7"]


def test_gear_train_on_a_gpu_without_one_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(gear.InvalidArgument, match=r"^\[train\] device=cuda: ") as refused:
        main(["device=cuda"])
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.glob("outputs/*/*"))


def test_a_rank_without_the_gpu_is_named_by_one_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    found = by_rank(2, lambda ranks: ranks, device="cuda")
    assert [type(error) for error in found] == [gear.InvalidArgument, SystemExit]


def test_a_wait_for_a_gpu_asks_less_and_less_often(monkeypatch):
    """A rank that is behind may need the core."""

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds

    class Work:
        asked = 0

        def is_completed(self):
            self.asked += 1
            return False

    monkeypatch.setattr("gear.distributed.timeout.time", Clock())
    ranks, work = Ranks.single(), Work()
    ranks.backend = "nccl"
    assert not ranks._is_done_soon(work)
    assert 10 < work.asked < 100

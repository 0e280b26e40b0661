"""N environments in one call: what is stored is what a loop over the environments would store."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import reference
from script import Player, Script, check_content

import gear

SCHEMA = gear.Schema(
    [gear.Column("obs", (3,), "float32"), gear.Column("action", (), "int64"), gear.Column("reward")]
)
MODES = ["next_step", "same_step", "disabled"]


@dataclass
class Stored:
    """An episode by a slow list."""

    obs: list[np.ndarray] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    state: str = "open"
    closing: np.ndarray | None = None


class Environments:
    """N made-up ones, with Gymnasium's interface, that end at random; and all that they did, by
    environment. `how`: by which flags."""

    def __init__(self, count: int, mode: str, how: str, seed: int) -> None:
        self.num_envs = count
        self.mode = mode
        self.metadata = {"autoreset_mode": mode}
        self.how = how
        self.rng = np.random.default_rng(seed)
        self.obs = self.fresh(count)
        self.ended = np.zeros(count, bool)
        self.history: list[list[Stored]] = [[Stored()] for _ in range(count)]

    def fresh(self, count: int) -> np.ndarray:
        return self.rng.standard_normal((count, 3)).astype(np.float32)

    def step(
        self, action: np.ndarray, mask: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        n = self.num_envs
        reward = np.zeros(n, np.float32)
        terminated, truncated = np.zeros(n, bool), np.zeros(n, bool)
        final = np.full(n, None, object)
        new = self.obs.copy()
        for i in np.flatnonzero(mask):
            if self.ended[i]:  # next_step: this call resets it
                new[i] = self.fresh(1)[0]
                self.ended[i] = False
                continue
            episode = self.history[i][-1]
            reward[i] = self.rng.standard_normal()
            new[i] = self.fresh(1)[0]
            episode.obs.append(self.obs[i].copy())
            episode.actions.append(int(action[i]))
            episode.rewards.append(float(reward[i]))
            if self.rng.random() < 0.15:
                terminated[i] = self.how in ("terminated", "both")
                truncated[i] = self.how in ("truncated", "both")
                episode.state = "terminated" if terminated[i] else "truncated"
                episode.closing = new[i].copy()
                self.history[i].append(Stored())
                if self.mode == "next_step":
                    self.ended[i] = True
                else:
                    final[i] = new[i].copy()
                    new[i] = self.fresh(1)[0]
        self.obs = new
        return new, reward, terminated, truncated, {"final_obs": final}


def stored(buffer: gear.ReplayBuffer) -> dict[int, dict[str, Any]]:
    """Every stored episode, with the observation behind its last step."""
    found = {}
    outputs = {name: gear.Step(0, name) for name in ("obs", "action", "reward")}
    outputs["next"] = gear.Step(1, "obs")
    for episode in buffer.episodes():
        if episode.begin < episode.end:
            ids = np.asarray(episode.ids)
            batch = buffer.collect(ids, outputs=outputs, framework="numpy")
            found[episode.uid] = {"state": episode.state, "begin": episode.begin, **batch}
    return found


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("how", ["terminated", "truncated", "both"])
@pytest.mark.parametrize("mode", MODES)
def test_what_is_stored(tier, mode: str, how: str, masked: bool) -> None:
    """All that the slow model keeps of episodes of 1 to 40 steps or so, and nothing else: each step
    appended, then each episode ended, by the number of the environment."""
    envs = Environments(5, mode, how, seed=3)
    columns = tuple(reference.Column(c.name, c.shape, str(c.dtype)) for c in SCHEMA.columns)
    script = Script(columns, 4, 400, "fifo", 0, ())
    with tier.buffer(SCHEMA, script.capacity, **script.arguments()) as buffer:
        model = script.model()
        player = Player(script, buffer, model)
        episodes = [model.open_episode() for _ in range(5)]
        ended: dict[int, bool] = {}  # next_step: whether terminated, of those that wait for a row

        def close(environment: int, terminated: bool, last: np.ndarray) -> None:
            model.end_episode(episodes[environment], terminated=terminated, final={"obs": last})
            episodes[environment] = model.open_episode()

        writer = buffer.writer(envs)
        for call in range(300):
            obs = envs.obs
            action = envs.rng.integers(0, 9, 5)
            mask = envs.rng.random(5) < (0.7 if masked else 1.1)
            _, reward, terminated, truncated, info = envs.step(action, mask)
            writer.append(
                obs=obs,
                action=action,
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                mask=mask if masked else None,
                final=None if mode == "next_step" else {"obs": info["final_obs"]},
            )
            due = {i: ended.pop(i) for i in np.flatnonzero(mask) if i in ended}
            last = obs
            for i in np.flatnonzero(mask):
                if i not in due:
                    step = {"obs": obs[i], "action": action[i], "reward": reward[i]}
                    model.append(episodes[i], step, None)
            ended |= {i: bool(terminated[i]) for i in np.flatnonzero(terminated | truncated)}
            if mode != "next_step":
                due, ended, last = ended, {}, info["final_obs"]
            for i, is_terminated in due.items():
                close(i, is_terminated, last[i])
            assert writer.episodes == [episode.uid or None for episode in episodes]
            if call % 20 == 0:
                check_content(player)
        writer.end_episode(final={"obs": envs.obs})
        for i, episode in enumerate(episodes):
            if episode.end > 0:
                close(i, ended.get(i, False), envs.obs[i])
        assert writer.episodes == [None] * 5
        check_content(player)
        assert len(buffer) > 200
        assert model.num_created > len(model.episodes) + 20
        assert any(episode.begin > 0 for episode in model.episodes)


@pytest.mark.parametrize("mode", MODES)
def test_a_loop_over_writers_stores_the_same(tier, mode: str) -> None:
    """Content, priorities, ids: to the bit what N writers are told in the order of environments."""
    envs = Environments(7, mode, "terminated", seed=11)
    size = {"page_steps": 4}
    with tier.buffer(SCHEMA, 256, **size) as one, tier.buffer(SCHEMA, 256, **size) as many:
        writer = one.writer(envs, timeout_s=1.0)
        writers = [many.writer() for _ in range(7)]
        obs = envs.obs
        resets = np.zeros(7, bool)
        for step in range(200):
            action = envs.rng.integers(0, 9, 7)
            new, reward, terminated, _, info = envs.step(action, np.ones(7, bool))
            priority = None if step % 2 else envs.rng.random(7)
            final = None if mode == "next_step" else {"obs": info["final_obs"]}
            writer.append(
                obs=obs,
                action=action,
                reward=reward,
                terminated=terminated,
                final=final,
                priority=priority,
            )
            for i in np.flatnonzero(~resets):
                writers[i].append(
                    obs=obs[i],
                    action=action[i],
                    reward=reward[i],
                    priority=None if priority is None else priority[i],
                )
            if mode == "next_step":
                for i in np.flatnonzero(resets):
                    writers[i].end_episode(terminated=True, final={"obs": obs[i]})
                resets = terminated
            else:
                for i in np.flatnonzero(terminated):
                    last = info["final_obs"][i]
                    writers[i].end_episode(terminated=True, final={"obs": last})
            obs = new
        assert dict(one.stats()) == dict(many.stats())
        for a, b in zip(one.episodes(), many.episodes(), strict=True):
            assert (a.uid, a.begin, a.end, a.state) == (b.uid, b.begin, b.end, b.state)
            assert np.array_equal(a.ids, b.ids)
        ids = np.concatenate([e.ids for e in one.episodes() if e.begin < e.end])
        a, b = (buffer.collect(ids, framework="numpy") for buffer in (one, many))
        for name in ("obs", "action", "reward"):
            assert np.array_equal(a[name], b[name])
        kind: dict[str, Any] = {"sampler": gear.Weighted(), "framework": "numpy", "seed": 4}
        with one.loader(64, **kind) as left, many.loader(64, **kind) as right:
            for _ in range(5):
                assert np.array_equal(next(left).ids, next(right).ids)
        writer.end_episode()
        for each in writers:
            each.end_episode()


def rows(count: int, **other: Any) -> dict[str, Any]:
    return {
        "obs": np.zeros((count, 3), np.float32),
        "action": np.zeros(count, np.int64),
        "reward": np.zeros(count, np.float32),
        **other,
    }


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (rows(2), r"'obs' has 2 rows: give one for each of the 3 environments"),
        (rows(3, reward=np.zeros(2, np.float32)), r"'reward' has 2 rows: give one.*3 environments"),
        (
            rows(3, terminated=[False] * 3),
            r"'terminated' takes bool of shape \(environments,\).*list",
        ),
        (rows(3, terminated=np.zeros(3)), r"'terminated' takes bool.*float64"),
        (rows(3, truncated=np.zeros(4, bool)), r"'truncated' has 4 rows.*3 environments"),
        (rows(3, mask=np.zeros((3, 1), bool)), r"'mask' takes bool of shape"),
        (rows(3, priority=np.array([1, 2, -1.0])), r"priority -1"),
        (rows(3, priority=np.ones(2)), r"priority of shape.*one for each environment \(3\)"),
        (rows(3, obs=np.zeros((3, 2))), r"'obs' takes float32 of shape \(environments, 3\)"),
        (rows(3, done=np.zeros(3, bool)), r"done"),
        (
            rows(3, terminated=np.array([0, 1, 0], bool), final={"x": np.zeros((3, 3))}),
            r"no column 'x': the schema has",
        ),
        (
            rows(3, terminated=np.array([0, 1, 0], bool), final={"obs": np.zeros(3, np.float32)}),
            r"'obs' takes float32 of shape",
        ),
        (
            rows(3, terminated=np.array([0, 1, 0], bool), final={"obs": np.full(3, None, object)}),
            r"final 'obs' is None for environment 1",
        ),
        (rows(3, final=5), r"final 5: a mapping by column is allowed"),
    ],
)
def test_refusals_store_nothing(tier, call: dict[str, Any], message: str) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer(3, autoreset="same_step")
        writer.append(**rows(3))
        with pytest.raises(gear.InvalidArgument, match=message):
            writer.append(**call)
        assert len(buffer) == 3
        assert all(uid is not None for uid in writer.episodes)
        writer.append(**rows(3))
        writer.end_episode()
        assert len(buffer) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"envs": 4}, r"autoreset is not given for 4 environments"),
        ({"envs": 0, "autoreset": "disabled"}, r"envs 0: a number of environments, 1 or more"),
        ({"envs": True, "autoreset": "disabled"}, r"envs True"),
        ({"envs": "many", "autoreset": "disabled"}, r"envs 'many'"),
        ({"envs": None, "autoreset": "disabled"}, r"envs None"),
        ({"envs": 4, "autoreset": "never"}, r"autoreset 'never': one of"),
        ({"envs": 4, "autoreset": "next_step", "final": "state"}, r"final 'state' is no column"),
        ({"envs": 4, "autoreset": "next_step", "final": 5}, r"final 5: the name of a column"),
        ({"envs": 4, "autoreset": "same_step", "final": 5}, r"final 5: the name of a column"),
        *(
            (
                {"envs": 4, "autoreset": mode, "final": final},
                rf"final {said} is for autoreset 'next_step'.*append\(final=",
            )
            for mode in ("same_step", "disabled")
            for final, said in (("nonsense", "'nonsense'"), ("action", "'action'"))
        ),
        ({"envs": 4, "autoreset": "next_step", "final": ["obs", 3]}, r"final 3 is no column"),
        ({"envs": 4, "autoreset": "disabled", "final": {"obs": 1}}, r"final {'obs': 1}: the name"),
        ({"final": "nonsense"}, r"final 'nonsense'.*of several environments"),
        ({"envs": 4, "autoreset": "disabled", "episode": 3}, r"episode 3: a list of 4"),
        ({"envs": 4, "autoreset": "disabled", "episode": [1] * 4}, r"no episode 1"),
        (
            {"envs": 2, "autoreset": "next_step", "episode": [None, 1]},
            r"wait for the row that closes.*give ended=",
        ),
        (
            {"envs": 2, "autoreset": "same_step", "episode": [None, 1], "ended": [None, None]},
            r"ended \[None, None\]: for autoreset 'next_step' alone",
        ),
        (
            {"envs": 2, "autoreset": "next_step", "episode": [None, 1], "ended": [None]},
            r"ended \[None\]: a list of 2",
        ),
        *(
            (
                {"envs": 2, "autoreset": "next_step", "episode": [None, 1], "ended": ended},
                r"ended '\w+' of episode",
            )
            for ended in (["terminated", None], [None, "done"])
        ),
        ({"envs": 16, "autoreset": "disabled"}, r"16 environments.*16 of 4 steps.*capacity to 68"),
        (
            {"envs": Environments(2, "same_step", "both", 1), "autoreset": "disabled"},
            r"autoreset 'disabled': these environments say themselves same_step",
        ),
    ],
)
def test_wrong_arguments(tier, arguments: dict[str, Any], message: str) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        with pytest.raises(gear.InvalidArgument, match=message):
            buffer.writer(**arguments)
        assert buffer.num_episodes == 0


def test_final_may_be_any_mapping(tier) -> None:
    last = MappingProxyType({"obs": np.ones((2, 3), np.float32)})
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer(2, autoreset="same_step")
        writer.append(**rows(2), terminated=np.array([True, False]), final=last)
        with pytest.raises(gear.InvalidArgument, match="final 5: a mapping by column"):
            writer.end_episode(final=5)
        writer.end_episode(final=last)
        assert all(np.array_equal(e["next"][-1], np.ones(3)) for e in stored(buffer).values())


def test_final_is_not_for_next_step(tier) -> None:
    with (
        tier.buffer(SCHEMA, 64, page_steps=4) as buffer,
        buffer.writer(2, autoreset="next_step") as writer,
        pytest.raises(gear.InvalidArgument, match=r"final is not for autoreset 'next_step'"),
    ):
        writer.append(**rows(2, final={"obs": np.zeros((2, 3), np.float32)}))


def test_closing_a_writer_says_how_many_it_cut(tier, caplog: pytest.LogCaptureFixture) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer(3, autoreset="next_step")
        writer.append(**rows(3, terminated=np.array([True, False, False])))
        writer.close()
        states = sorted(episode.state for episode in buffer.episodes())
        assert states == ["terminated", "truncated", "truncated"]
        assert "2 environment(s) had an episode open" in caplog.text
        with pytest.raises(gear.InvalidArgument, match="closed"):
            writer.append(**rows(3))


def test_open_episodes_go_on_after_a_load(tier, tmp_path) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer(3, autoreset="disabled")
        writer.append(**rows(3))
        writer.append(**rows(3, terminated=np.array([False, True, False])))
        uids = writer.episodes
        assert uids == [1, None, 3]
        buffer.save(tmp_path / "replay")
        writer.end_episode()
    with tier.load(tmp_path / "replay") as buffer:
        writer = buffer.writer(3, autoreset="disabled", episode=uids)
        writer.append(**rows(3))
        assert [(e.uid, e.begin, e.end) for e in buffer.episodes()] == [
            (1, 0, 3),
            (2, 0, 2),
            (3, 0, 3),
            (4, 0, 1),
        ]
        writer.end_episode()


def test_ends_that_wait_for_a_row_go_on_after_a_load(tier, tmp_path) -> None:
    """What is stored is what it would be without the save."""
    envs = Environments(5, "next_step", "both", seed=9)
    every = np.ones(5, bool)

    def play(writer: Any, calls: int) -> None:
        for _ in range(calls):
            obs = envs.obs
            _, reward, terminated, truncated, _ = envs.step(np.zeros(5, np.int64), every)
            writer.append(
                obs=obs,
                action=np.zeros(5, np.int64),
                reward=reward,
                terminated=terminated,
                truncated=truncated,
            )

    with tier.buffer(SCHEMA, 800, page_steps=4) as buffer:
        writer = buffer.writer(envs)
        while "terminated" not in writer.ended:
            play(writer, 1)
        uids, ended = writer.episodes, writer.ended
        buffer.save(tmp_path / "replay")
        writer.end_episode()
    with tier.load(tmp_path / "replay") as buffer:
        writer = buffer.writer(envs, episode=uids, ended=ended)
        assert writer.ended == ended
        play(writer, 40)
        writer.end_episode()
        found = stored(buffer).values()
        histories = [one for of_one in envs.history for one in of_one if one.closing is not None]
        assert len(histories) > 10
        assert len(found) == sum(bool(one.obs) for of_one in envs.history for one in of_one)
        for wanted in histories:
            (same,) = [e for e in found if np.array_equal(e["obs"], np.array(wanted.obs))]
            assert same["state"] == "terminated"
            assert np.array_equal(same["reward"], np.array(wanted.rewards, np.float32))
            assert np.array_equal(same["next"][-1], wanted.closing)


def test_the_rate_limit_lets_environments_in_by_number(tier) -> None:
    limit = gear.RateLimit(1.0, 4, 4.0)
    with tier.buffer(SCHEMA, 64, page_steps=4, rate_limit=limit) as buffer:
        writer = buffer.writer(6, autoreset="disabled", timeout_s=0.05)
        writer.append(**rows(6))
        with pytest.raises(TimeoutError, match=r"2 of 6 environments' steps are stored"):
            writer.append(**rows(6))
        assert len(buffer) == 8
        with buffer.loader(4, prefetch=0, framework="numpy") as loader:
            next(loader)
        writer.end_episode()


def test_what_the_rate_limit_let_in_keeps_its_ends(tier) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4, rate_limit=gear.RateLimit(1.0, 4, 4.0)) as buffer:
        writer = buffer.writer(6, autoreset="same_step", timeout_s=0.05)
        writer.append(**rows(6))
        last = np.arange(18, dtype=np.float32).reshape(6, 3)
        with pytest.raises(TimeoutError, match=r"2 of 6 environments"):
            writer.append(**rows(6), terminated=np.ones(6, bool), final={"obs": last})
        assert [uid is None for uid in writer.episodes] == [True, True] + [False] * 4
        states = [episode.state for episode in buffer.episodes()]
        assert states == ["terminated", "terminated"] + ["open"] * 4
        found = stored(buffer)
        assert np.array_equal(found[2]["next"][-1], last[1])
        writer.end_episode()


@pytest.mark.parametrize("episodes", [[1, 99], [1, 1]])
def test_a_refused_list_of_episodes_adopts_none(tier, tmp_path, episodes: list[int]) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer(2, autoreset="disabled")
        writer.append(**rows(2))
        buffer.save(tmp_path / "replay")
        writer.end_episode()
    with tier.load(tmp_path / "replay") as buffer:
        with pytest.raises(gear.InvalidArgument, match=r"\[buffer\]"):
            buffer.writer(2, autoreset="disabled", episode=episodes)
        with buffer.writer(2, autoreset="disabled", episode=[1, 2]) as writer:
            writer.append(**rows(2))
            writer.end_episode()


@pytest.mark.parametrize(
    "row", [np.float32(7), np.ones(1, np.float32), np.full(3, 1e300), np.ones((3, 1), np.float32)]
)
def test_each_object_of_final_is_checked(tier, row: Any) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer(2, autoreset="same_step")
        last = np.empty(2, object)
        last[0], last[1] = np.zeros(3, np.float32), row
        with pytest.raises(gear.InvalidArgument, match="column 'obs' takes float32"):
            writer.append(**rows(2), terminated=np.ones(2, bool), final={"obs": last})
        assert len(buffer) == 0


def test_ending_what_has_ended_is_nothing(tier) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer(2, autoreset="next_step")
        writer.append(**rows(2))
        for _ in range(2):
            writer.end_episode(final={"obs": np.ones((2, 3), np.float32)})
        assert [episode.state for episode in buffer.episodes()] == ["truncated", "truncated"]


def test_far_too_many_environments_are_refused_before_memory_is_taken(tier) -> None:
    with (
        tier.buffer(SCHEMA, 64, page_steps=4) as buffer,
        pytest.raises(gear.InvalidArgument, match="1000000000000 environments"),
    ):
        buffer.writer(10**12, autoreset="disabled")


def test_a_number_of_numpy_is_a_number_of_environments(tier) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        buffer.writer(np.int64(3), autoreset="disabled").append(**rows(3))
        assert len(buffer) == 3


def test_what_is_masked_is_not_looked_at(tier) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer(3, autoreset="same_step")
        mask = np.array([True, False, True])
        final = np.array([np.ones(3, np.float32), None, None], object)
        writer.append(
            **rows(3, priority=np.array([2.0, np.nan, 3.0])),
            mask=mask,
            terminated=np.array([True, True, False]),
            final=MappingProxyType({"obs": final}),
        )
        assert [e.state for e in buffer.episodes()] == ["terminated", "open"]
        ids = np.concatenate([e.ids for e in buffer.episodes()])
        assert buffer.priorities(ids).tolist() == [2.0, 3.0]
        with pytest.raises(gear.InvalidArgument, match="priority nan"):
            writer.append(**rows(3, priority=np.array([2.0, 1.0, np.nan])), mask=mask)


@pytest.mark.parametrize("evict", ["fifo", "lifo", "lowest_priority"])
def test_a_closing_step_takes_no_place_of_the_steps_before_it(tier, evict: str) -> None:
    """With a page more than environments: each fills its only one, and closes."""
    with tier.buffer(SCHEMA, 16, page_steps=4, evict=evict) as buffer:
        writer = buffer.writer(3, autoreset="same_step")
        for _ in range(3):
            writer.append(**rows(3))
        ends = np.array([True, False, False])
        writer.append(
            **rows(3, terminated=ends, final={"obs": np.ones((3, 3), np.float32)}),
        )
        assert [(e.end - e.begin, e.state) for e in buffer.episodes()] == [
            (4, "terminated"),
            (4, "open"),
            (4, "open"),
        ]


def test_where_no_page_is_left_a_closing_step_is_refused_and_the_steps_stay(tier) -> None:
    with tier.buffer(SCHEMA, 4, page_steps=4) as buffer:
        writer = buffer.writer()
        writer.extend(**rows(4))
        with pytest.raises(gear.OutOfMemory, match=r"no page for the closing step.*\(final\)"):
            writer.end_episode(terminated=True, final={"obs": np.ones(3, np.float32)})
        assert len(buffer) == 4
        writer.end_episode(terminated=True)
        assert [(e.end, e.state) for e in buffer.episodes()] == [(4, "terminated")]


@pytest.mark.parametrize("evict", ["fifo", "lifo", "lowest_priority"])
def test_where_pages_do_not_suffice_nothing_of_the_call_stays(tier, evict: str) -> None:
    with tier.buffer(SCHEMA, 24, page_steps=4, evict=evict) as buffer:
        first, second = (buffer.writer(4, autoreset="disabled") for _ in range(2))
        first.append(**rows(4))
        before = [(e.uid, e.begin, e.end) for e in buffer.episodes()]
        with pytest.raises(gear.OutOfMemory, match="run fewer environments"):
            second.append(**rows(4))
        assert [(e.uid, e.begin, e.end) for e in buffer.episodes()] == before
        assert second.episodes == [None] * 4
        first.append(**rows(4))  # and what is there goes on
        assert len(buffer) == 8
        first.end_episode()
        second.append(**rows(4))
        assert second.episodes != [None] * 4


def test_large_closing_steps_are_those_that_were_given(tier) -> None:
    """Beyond what is copied under one lock."""
    schema = gear.Schema([gear.Column("obs", (5000,), "float32")])
    obs = np.arange(4 * 5000, dtype=np.float32).reshape(4, 5000)
    with tier.buffer(schema, 64, page_steps=2) as buffer:
        writer = buffer.writer(4, autoreset="same_step")
        writer.append(obs=obs, terminated=np.ones(4, bool), final={"obs": -obs})
        ids = np.concatenate([e.ids for e in buffer.episodes()])
        outputs = {"next": gear.Step(1, "obs")}
        batch = buffer.collect(ids, outputs=outputs, framework="numpy")
        np.testing.assert_array_equal(batch["next"], -obs)

"""A pursuit on a grid by PettingZoo's parallel API, in which hunters must strike together.

The reward follows the relative overgeneralisation of Boehmer et al. 2020 (arXiv:1910.00091): two
hunters that strike at once catch the prey, one that strikes alone costs all of them. While the
others act at random, striking does not pay, so who learns by himself learns not to strike.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

STAY, UP, DOWN, LEFT, RIGHT, STRIKE = range(6)
MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1], [0, 0]])
CATCH = 1.0  # of every hunter
ALONE = -0.5  # of every hunter, if one strikes alone
MOVE = -0.01  # of the one that moves
CELL = 24  # pixels

Array = NDArray[Any]
Each = dict[str, Any]


class Hunt:
    """`hunters` of them and one prey on `side` x `side` cells, for `steps` steps.

    A hunter sees its own place, where the others and the prey are from there, and its number, all
    float32 in -1 ... 1. `infos[agent]["action_mask"]` says what is available: a move onto the board
    and onto no hunter or prey, and to strike beside the prey. Of two hunters that want one cell the
    first gets it. If two or more strike, the prey is caught and another one appears; else it moves
    at random. Needs no PettingZoo.
    """

    metadata: ClassVar[Each] = {"name": "hunt", "render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(
        self, *, side: int = 4, hunters: int = 3, steps: int = 25, render_mode: str | None = None
    ) -> None:
        if side < 3 or not 2 <= hunters < side * side - 1 or steps < 1:
            raise ValueError(
                f"side={side}, hunters={hunters}, steps={steps}: allowed are a side of 3 or more, "
                "2 hunters or more with cells to spare, and 1 step or more"
            )
        self.render_mode = render_mode
        self.possible_agents = [f"hunter_{number}" for number in range(hunters)]
        self.agents: list[str] = []
        self._shown = Box(-1.0, 1.0, (3 * hunters + 2,), np.float32)
        # Each its own: a space draws at random.
        self._acted = {agent: Discrete(len(MOVES)) for agent in self.possible_agents}
        self._side, self._steps = side, steps
        self._rng = np.random.default_rng()
        self._at: Array = np.zeros((hunters, 2), np.int64)
        self._prey: Array = np.zeros(2, np.int64)

    @property
    def unwrapped(self) -> Hunt:
        """As the parallel API has it."""
        return self

    def observation_space(self, agent: str) -> Box:
        return self._shown

    def action_space(self, agent: str) -> Discrete:
        return self._acted[agent]

    def reset(self, seed: int | None = None, options: Each | None = None) -> tuple[Each, Each]:
        """Observations and infos, by agent."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._left = self._steps
        cells = self._rng.choice(self._side**2, len(self.agents) + 1, replace=False)
        places: Array = np.stack([cells // self._side, cells % self._side], 1)
        self._at, self._prey = places[:-1], places[-1]
        return self._seen()

    def step(self, actions: Each) -> tuple[Each, Each, Each, Each, Each]:
        """Observations, rewards, terminations, truncations and infos, by agent.

        What is not available is to stay.
        """
        mask = self._available()
        told = [actions[agent] for agent in self.agents]
        told = [a if mask[row, a] else STAY for row, a in enumerate(told)]
        for row, action in enumerate(told):
            wanted = self._at[row] + MOVES[action]
            if not (self._at == wanted).all(1).any():
                self._at[row] = wanted
        moves, strikes = np.abs(MOVES[told]).sum(1), told.count(STRIKE)
        caught = strikes >= 2
        rewards = MOVE * moves + (CATCH if caught else ALONE * strikes)
        self._move_prey(anew=caught)
        self._left -= 1
        obs, infos = self._seen()
        agents, over = self.agents, self._left == 0
        if over:
            self.agents = []
        return (
            obs,
            dict(zip(agents, rewards.tolist(), strict=True)),
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, over),
            infos,
        )

    def render(self) -> Array:
        """uint8 [height, width, 3]: hunters blue, the prey red."""
        cells = np.full((self._side, self._side, 3), 230, np.uint8)
        cells[tuple(self._at.T)] = (40, 80, 200)
        cells[tuple(self._prey)] = (210, 40, 40)
        drawn = np.kron(cells, np.ones((CELL, CELL, 1), np.uint8))
        drawn[::CELL], drawn[:, ::CELL] = 255, 255
        return drawn

    def close(self) -> None:
        pass

    def _move_prey(self, *, anew: bool) -> None:
        """To a free cell: any, or one beside it or its own."""
        board = np.array(list(np.ndindex(self._side, self._side)))
        free = ~(board[:, None] == self._at).all(2).any(1)
        reach = len(board) if anew else 1
        near = np.abs(board - self._prey).sum(1) <= reach
        self._prey = self._rng.choice(board[free & near])

    def _available(self) -> Array:
        """bool [hunters, actions]."""
        wanted = self._at[:, None] + MOVES
        inside: Array = ((wanted >= 0) & (wanted < self._side)).all(2)
        taken = (wanted[:, :, None] == self._at).all(3).any(2) | (wanted == self._prey).all(2)
        mask: Array = inside & ~taken
        mask[:, STAY] = True
        mask[:, STRIKE] = np.abs(self._at - self._prey).sum(1) == 1
        return mask

    def _seen(self) -> tuple[Each, Each]:
        count, mask = len(self._at), self._available()
        obs = {}
        for row, agent in enumerate(self.agents):
            others = np.delete(self._at, row, 0) - self._at[row]
            places = np.concatenate([self._at[row], *others, self._prey - self._at[row]])
            seen = np.concatenate([places / self._side, np.eye(count)[row]])
            obs[agent] = seen.astype(np.float32)
        return obs, {agent: {"action_mask": mask[row]} for row, agent in enumerate(self.agents)}


parallel_env = Hunt

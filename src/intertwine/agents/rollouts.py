"""What a policy does and sees: whole episodes, their rewards, and a sample of the states on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intertwine.agents.environments import make_environment
from intertwine.errors import InputError
from intertwine.zoo.agent import ActorCritic


@dataclass(frozen=True)
class Episodes:
    """Whole episodes of one policy: the total reward of each, and every state in which it chose an action."""

    rewards: tuple[float, ...]
    states: Tensor  # uint8, N x 3 x 7 x 7

    @property
    def reward(self) -> float:
        """The mean total reward."""
        return float(np.mean(self.rewards))

    def sample(self, count: int, seed: int = 0) -> Tensor:
        """`count` of the states, each as likely as it is on the way; drawn again where there are fewer."""
        random = np.random.default_rng(seed)
        chosen = random.choice(len(self.states), count, replace=len(self.states) < count)
        return self.states[torch.from_numpy(np.sort(chosen))]


def play(net: ActorCritic, environment: str, *, episodes: int = 20, seed: int = 0) -> Episodes:
    """Act by the policy's own probabilities, an action drawn for each state, until every episode is over.

    Each episode has an environment of its own, so that short episodes do not count more than long ones.
    """
    if episodes < 1:
        raise InputError(f"{episodes} episodes", do="play at least 1")
    worlds = [make_environment(environment) for _ in range(episodes)]
    sources = np.random.SeedSequence(seed).generate_state(episodes + 1)
    random = torch.Generator().manual_seed(int(sources[-1]))
    seen: list[Any] = [
        world.reset(seed=int(source))[0] for world, source in zip(worlds, sources[:-1], strict=True)
    ]
    rewards, states = [0.0] * episodes, []
    running = list(range(episodes))
    with torch.no_grad():
        while running:
            batch = torch.from_numpy(np.stack([seen[i] for i in running]))
            states.append(batch)
            odds = net(batch.float())[0].softmax(1)
            actions = torch.multinomial(odds, 1, generator=random).flatten().tolist()
            ended = set()
            for i, action in zip(running, actions, strict=True):
                seen[i], reward, over, cut, _ = worlds[i].step(action)
                rewards[i] += float(reward)
                if over or cut:
                    ended.add(i)
            running = [i for i in running if i not in ended]
    for world in worlds:
        world.close()
    return Episodes(tuple(rewards), torch.cat(states))

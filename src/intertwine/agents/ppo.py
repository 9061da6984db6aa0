"""One agent: PPO of stable-baselines3 on the source's network, with snapshots on the way.

Training is cut into stages. A stage begins with fresh environments and with random numbers that only the
seed and the number of the stage decide, so weights, optimizer and the number of finished stages are all that
goes on: a training that was killed begins its unfinished stage again and ends with the same bits (on one CPU
thread). Nothing is pickled; the state is a safetensors file.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from intertwine.agents.environments import count_actions, make_environment
from intertwine.agents.rollouts import play
from intertwine.agents.snapshots import Snapshot, read_snapshot, snapshot_name, write_snapshot
from intertwine.errors import InputError, MissingExtra
from intertwine.training.state import Counters, claim, load_state, locked, save_state
from intertwine.zoo.agent import FEATURES, ActorCritic

Listener = Callable[[int, int], None]  # (steps done, of how many)


@dataclass(frozen=True)
class PPOSettings:
    """How an agent is trained; the defaults are usual for this network in MiniGrid.

    steps: in all environments together, rounded up to whole rollouts of worlds x horizon. stages: how many
    snapshots are taken at even distances, besides the untrained agent. episodes: how many the mean reward of
    a snapshot is over.
    """

    steps: int = 40_960
    stages: int = 5
    worlds: int = 16
    horizon: int = 128
    batch: int = 256
    epochs: int = 4
    learning_rate: float = 1e-3
    entropy: float = 0.01
    episodes: int = 20

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise InputError(f"{name} is {value}", do="give a number above 0")
        if self.stages > self.rollouts:
            raise InputError(
                f"{self.stages} stages of {self.steps:,} steps",
                so=f"one rollout is {self.worlds * self.horizon:,} steps already",
                do="take more steps or fewer stages",
            )

    @property
    def rollouts(self) -> int:
        """How often the policy is improved."""
        return -(-self.steps // (self.worlds * self.horizon))

    @property
    def ends(self) -> list[int]:
        """The steps at which snapshots are taken; 0 is the untrained agent.

        >>> PPOSettings(steps=10_000, stages=2).ends
        [0, 6144, 10240]
        """
        edges = [-(-self.rollouts * k // self.stages) for k in range(self.stages + 1)]
        return [edge * self.worlds * self.horizon for edge in edges]


def train_agent(
    environment: str,
    seed: int,
    folder: Path,
    *,
    bottleneck: int | None = None,
    settings: PPOSettings | None = None,
    listener: Listener | None = None,
) -> list[Snapshot]:
    """Train one agent in `folder` and return its snapshots; the same call goes on with a killed training."""
    settings = settings or PPOSettings()
    actions = count_actions(environment)  # an environment that does not exist is told before anything else
    identity = {"environment": environment, "seed": seed, "bottleneck": bottleneck, **asdict(settings)}
    with locked(folder), _own_random_state():
        claim(folder, identity)
        torch.manual_seed(_mixed(seed, 0))
        net = ActorCritic(classes=actions, bottleneck=bottleneck)
        learner = _learner(environment, net, settings)
        net = network_of(learner.policy, net)
        found = load_state(folder, net, learner.policy.optimizer)
        first = 0 if found is None else found.epoch + 1
        for stage in range(first, settings.stages + 1):
            begin, end = settings.ends[max(stage - 1, 0)], settings.ends[stage]
            learner.set_random_seed(_mixed(seed, stage))
            if stage > 0:
                learner.learn(end - begin, callback=_callback(listener, begin, settings.ends[-1]))
            reward = play(net, environment, episodes=settings.episodes, seed=_mixed(seed, stage)).reward
            write_snapshot(folder, net, Snapshot(environment, seed, end, bottleneck, actions, reward))
            save_state(folder, net, learner.policy.optimizer, Counters(epoch=stage))
        learner.env.close()
    return [read_snapshot(folder / snapshot_name(seed, end)) for end in settings.ends]


def network_of(policy: Any, like: ActorCritic) -> ActorCritic:
    """The network that a policy of stable-baselines3 consists of: the very same weights, not copies.

    `like` says the shape and gives the weights to begin with.
    """
    net = copy.deepcopy(like)
    net.features = policy.features_extractor.features
    net.actor = nn.Sequential(*policy.mlp_extractor.policy_net, policy.action_net)
    net.critic = nn.Sequential(*policy.mlp_extractor.value_net, policy.value_net)
    net.load_state_dict(like.state_dict())
    return net


def _learner(environment: str, net: ActorCritic, settings: PPOSettings) -> Any:
    """PPO whose policy has the layers of `net`."""
    try:
        from stable_baselines3 import PPO
        from stable_baselines3.common.logger import Logger
        from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
        from stable_baselines3.common.vec_env import DummyVecEnv
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is not installed", do='pip install "intertwine[rl]"') from error

    class Features(BaseFeaturesExtractor):
        def __init__(self, space: Any) -> None:
            super().__init__(space, net.bottleneck or FEATURES)
            self.features = copy.deepcopy(net.features)

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.features(observations.float())
            return found

    hidden = [FEATURES] if net.bottleneck is None else []
    policy = {
        "features_extractor_class": Features, "net_arch": {"pi": hidden, "vf": hidden},
        "activation_fn": nn.Tanh, "ortho_init": False, "normalize_images": False,
    }  # fmt: skip
    worlds = DummyVecEnv([lambda: make_environment(environment)] * settings.worlds)
    learner = PPO(
        "MlpPolicy", worlds, policy_kwargs=policy, device="cpu", learning_rate=settings.learning_rate,
        n_steps=settings.horizon, batch_size=settings.batch, n_epochs=settings.epochs,
        ent_coef=settings.entropy,
    )  # fmt: skip
    learner.set_logger(Logger(folder=None, output_formats=[]))  # its own leaves a temporary folder
    return learner


def _callback(listener: Listener | None, begin: int, total: int) -> Any:
    if listener is None:
        return None
    tell = listener
    from stable_baselines3.common.callbacks import BaseCallback

    class Tell(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            tell(begin + self.num_timesteps, total)

    return Tell()


def _mixed(seed: int, stage: int) -> int:
    """A seed of its own for every stage of every agent."""
    return int(np.random.SeedSequence((seed, stage)).generate_state(1)[0] >> 1)


@contextmanager
def _own_random_state() -> Iterator[None]:
    """stable-baselines3 seeds every global generator; the caller's are put back."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)

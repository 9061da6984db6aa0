"""Agents on disk: one safetensors file a snapshot, which says itself what it is.

ZOO/MiniGrid-Empty-5x5-v0/seed0-step8192.safetensors
ZOO/MiniGrid-Empty-5x5-v0-bottleneck8/seed0-step8192.safetensors
ZOO/MiniGrid-Empty-5x5-v0/run.json      how these were trained
ZOO/results/                            what training and comparing have finished
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from intertwine import numbers, zoo
from intertwine.errors import DataError, InputError, WeightsError
from intertwine.files import write_tensors
from intertwine.reading import parsing, read_safetensors
from intertwine.zoo.agent import ActorCritic

Grade = Literal["optimal", "mediocre", "poor"]
GRADES: tuple[Grade, ...] = ("optimal", "mediocre", "poor")
OPTIMAL, POOR = 0.8, 0.2  # mean rewards, on the grid of training
_KEY = "agent"
_MOST = 10_000  # actions, or units of a bottleneck


@dataclass(frozen=True)
class Snapshot:
    """An agent at one stage of its training; `reward` is the mean total reward on the grid of training."""

    environment: str
    seed: int
    step: int
    bottleneck: int | None
    actions: int
    reward: float

    @property
    def grade(self) -> Grade:
        """Optimal above 0.8, poor below 0.2, mediocre between (section 3.5 of source 003).

        >>> [Snapshot("", 0, 0, None, 7, reward).grade for reward in (0.81, 0.8, 0.2, 0.19)]
        ['optimal', 'mediocre', 'mediocre', 'poor']
        """
        if self.reward > OPTIMAL:
            return "optimal"
        return "poor" if self.reward < POOR else "mediocre"

    @property
    def kind(self) -> str:
        """What agents that are compared with each other have in common: grid of training and network.

        >>> Snapshot("MiniGrid-Empty-5x5-v0", 0, 0, 8, 7, 0.5).kind
        'MiniGrid-Empty-5x5-v0-bottleneck8'
        """
        return self.environment + ("" if self.bottleneck is None else f"-bottleneck{self.bottleneck}")

    @property
    def file(self) -> str:
        """Where the snapshot is in a zoo."""
        return f"{self.kind}/{snapshot_name(self.seed, self.step)}"

    def __str__(self) -> str:
        return f"seed {self.seed} at step {self.step:,}"


def snapshot_name(seed: int, step: int) -> str:
    """The name of a snapshot's file."""
    return f"seed{seed}-step{step}.safetensors"


def write_snapshot(folder: Path, net: ActorCritic, snapshot: Snapshot) -> None:
    """The weights, with all that is known of the agent in the file's header."""
    path = folder / snapshot_name(snapshot.seed, snapshot.step)
    write_tensors(path, net.state_dict(), {_KEY: json.dumps(asdict(snapshot))})


def read_snapshot(path: Path) -> Snapshot:
    """What a snapshot's file says of itself."""
    do = "delete it, or make it again with `intertwine agents train`"
    header, _ = read_safetensors(path, "agent", WeightsError, do=do, header_only=True)
    with parsing(path, WeightsError, so="it is not an agent", do=do):
        return _checked(Snapshot(**json.loads(header[_KEY])))


def _checked(found: Snapshot) -> Snapshot:
    """A snapshot of a file, whose numbers lie in their ranges."""
    numbers.seed(found.seed, "seed")
    numbers.whole(found.step, "step")
    numbers.Whole(1, _MOST)(found.actions, "actions")
    numbers.finite(found.reward, "reward")
    if found.bottleneck is not None:
        numbers.Whole(1, _MOST)(found.bottleneck, "bottleneck")
    if not isinstance(found.environment, str):
        raise WeightsError("its environment is no text")
    return found


def load_agent(path: str | Path) -> ActorCritic:
    """The network of a snapshot, in eval mode; nothing in the file can run code."""
    found = read_snapshot(Path(path))
    net = ActorCritic(classes=found.actions, bottleneck=found.bottleneck)
    return zoo.load_weights(net, path).eval()


def read_zoo(folder: str | Path) -> list[Snapshot]:
    """Every snapshot in a zoo, by kind, seed and step; DataError where there is none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"no folder {folder}", do=_MAKE)
    found = [read_snapshot(path) for path in folder.glob("*/seed*-step*.safetensors")]
    if not found:
        raise DataError(f"no agents in {folder}", do=_MAKE)
    return sorted(found, key=lambda s: (s.kind, s.seed, s.step))


_MAKE = "train some: intertwine agents train --env MiniGrid-Empty-5x5-v0 --seeds 0-9 -o ZOO"


def digest(path: Path) -> str:
    """What the file holds, in sixteen letters."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]

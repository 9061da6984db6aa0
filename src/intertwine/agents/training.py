"""`train`: agents of many seeds into a zoo, each with its stages of training."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from intertwine.agents.environments import count_actions
from intertwine.agents.ppo import PPOSettings
from intertwine.agents.snapshots import Snapshot, snapshot_name
from intertwine.agents.tasks import RUN, read_found
from intertwine.errors import InputError
from intertwine.files import replacing
from intertwine.progress import Progress
from intertwine.sweeping.run import run_tasks
from intertwine.sweeping.store import ResultStore
from intertwine.sweeping.task import Task
from intertwine.training.state import claim, locked


@dataclass(frozen=True)
class Trained:
    """The snapshots of the agents that are finished, and which seeds failed and why."""

    zoo: Path
    snapshots: tuple[Snapshot, ...]
    ran: int
    failed: dict[str, str]

    def path(self, snapshot: Snapshot) -> Path:
        """Where a snapshot's weights are."""
        return self.zoo / snapshot.file


def train(
    environment: str,
    seeds: Sequence[int],
    zoo: str | Path,
    *,
    bottleneck: int | None = None,
    settings: PPOSettings | None = None,
    backend: str = "joblib",
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train one agent a seed and put its snapshots into `zoo`; what is finished never runs again.

    The same call goes on after an interruption; other environments, seeds and bottlenecks may share a zoo.
    """
    settings, zoo = settings or PPOSettings(), Path(zoo)
    if not seeds:
        raise InputError("no seeds", do="give at least one")
    if bottleneck is not None and bottleneck < 1:
        raise InputError(f"a bottleneck of {bottleneck}", do="give at least 1, or none")
    actions = count_actions(environment)
    kind = Snapshot(environment, 0, 0, bottleneck, actions, 0.0).kind
    network = "" if bottleneck is None else f" with a bottleneck of {bottleneck}"
    tasks = [
        Task.of(
            "agent",
            {
                "environment": environment,
                "seed": seed,
                "bottleneck": bottleneck,
                "settings": asdict(settings),
            },
            label=f"{environment} seed {seed}{network}",
        )
        for seed in seeds
    ]
    # Agents of one kind in a zoo are trained alike; other settings need another zoo.
    with locked(zoo / kind):
        claim(zoo / kind, {"environment": environment, "bottleneck": bottleneck, **asdict(settings)})
    store = ResultStore(zoo)
    tally = run_tasks([tasks], store, backend=backend, jobs=jobs, progress=progress)
    found: list[Snapshot] = []
    for task in (task for task in tasks if store.is_done(task)):
        for row in read_found(store, task):
            snapshot = Snapshot(**row)
            _publish(store.folder(task) / RUN / snapshot_name(snapshot.seed, snapshot.step), zoo, snapshot)
            found.append(snapshot)
    return Trained(zoo, tuple(found), tally.ran, tally.failed)


def _publish(source: Path, zoo: Path, snapshot: Snapshot) -> None:
    with replacing(zoo / snapshot.file, parents=True) as beside:
        shutil.copyfile(source, beside)

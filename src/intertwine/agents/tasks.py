"""The kinds of tasks that agents need: train one, gather its rollouts, compare all pairs of a panel."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from intertwine.agents.pairs import compare_policies
from intertwine.agents.ppo import PPOSettings, train_agent
from intertwine.agents.rollouts import play
from intertwine.agents.snapshots import load_agent, read_snapshot
from intertwine.files import read_json, write_bytes, write_tensors
from intertwine.sweeping.store import ResultStore
from intertwine.sweeping.task import Need, Row, Task, task_kind
from intertwine.zoo import read_weights

Inputs = Mapping[str, Any]
RUN, _STATES, _FOUND = "run", "states.safetensors", "found.json"


def _keep(folder: Path, found: list[dict[str, Any]]) -> list[Row]:
    """What a task found, in a file of its own: the rows of a sweep's table have other columns."""
    write_bytes(folder / _FOUND, json.dumps(found).encode(), parents=True)
    return []


def read_found(store: ResultStore, task: Task) -> list[dict[str, Any]]:
    """What a finished task of these kinds found."""
    found: list[dict[str, Any]] = read_json(store.need(task).file(_FOUND))
    return found


@task_kind("agent", version=1, files=(_FOUND,))
def agent_task(inputs: Inputs, needs: Sequence[Need], folder: Path) -> list[Row]:
    """Train one agent; goes on where a killed worker left it."""
    found = train_agent(
        inputs["environment"], inputs["seed"], folder / RUN, bottleneck=inputs["bottleneck"],
        settings=PPOSettings(**inputs["settings"]),
    )  # fmt: skip
    return _keep(folder, [asdict(snapshot) for snapshot in found])


def _zoo(folder: Path) -> Path:
    """The zoo that a task's folder lies in; files are named relative to it, so that it can move."""
    return folder.parents[1]


@task_kind("agent-rollouts", version=1, files=(_FOUND, _STATES))
def rollouts_task(inputs: Inputs, needs: Sequence[Need], folder: Path) -> list[Row]:
    """States that some agents meet in an environment, and their mean rewards there."""
    states: dict[str, Tensor] = {}
    rows: list[dict[str, Any]] = []
    for file in inputs["files"]:
        path = _zoo(folder) / file
        agent = read_snapshot(path)
        source = np.random.SeedSequence((inputs["seed"], agent.seed, agent.step)).generate_state(1)
        seed = int(source[0] >> 1)
        found = play(load_agent(path), inputs["environment"], episodes=inputs["episodes"], seed=seed)
        states[file] = found.sample(inputs["states"], seed)
        rows.append({"file": file, "reward": found.reward})
    write_tensors(folder / _STATES, states)
    return _keep(folder, rows)


@task_kind("agent-pairs", version=1, files=(_FOUND,))
def pairs_task(inputs: Inputs, needs: Sequence[Need], folder: Path) -> list[Row]:
    """All pairs of the agents whose rollouts are given, one row a pair."""
    states = {file: value for need in needs for file, value in read_weights(need.file(_STATES)).items()}
    nets = {file: load_agent(_zoo(folder) / file) for file in states}
    return _keep(folder, [asdict(pair) for pair in compare_policies(nets, states)])

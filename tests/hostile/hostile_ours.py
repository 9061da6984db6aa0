"""Files that intertwine itself writes, and that somebody may have edited: good ones, and how to read them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def _written(name: str, write: Callable[[Path], Any]) -> bytes:
    """The bytes that `write` leaves in a file of this name."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


@cache
def _symmetry() -> Any:
    import intertwine

    return intertwine.trace(_net(), torch.randn(2, 3))


def element() -> bytes:
    return _written("m.safetensors", _symmetry().sample(0).save)


def read_element(path: Path) -> None:
    import intertwine

    intertwine.act(_net(), _symmetry().load(path))


def agent() -> bytes:
    from intertwine.agents.snapshots import Snapshot, snapshot_name, write_snapshot
    from intertwine.zoo.agent import ActorCritic

    found = Snapshot("MiniGrid-Empty-5x5-v0", 0, 8, 4, 7, 0.5)
    name = snapshot_name(found.seed, found.step)
    return _written(name, lambda path: write_snapshot(path.parent, ActorCritic(bottleneck=4), found))


def read_agent(path: Path) -> None:
    from intertwine.agents.snapshots import load_agent

    load_agent(path)


def _adam() -> tuple[nn.Module, torch.optim.Optimizer]:
    net = _net()
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return net, optimizer


def state() -> bytes:
    from intertwine.training.state import Counters, save_state

    return _written("state.safetensors", lambda path: save_state(path.parent, *_adam(), Counters()))


def read_state(path: Path) -> None:
    from intertwine.training.state import load_state

    load_state(path.parent, *_adam())


def plane() -> bytes:
    from intertwine.exploring.plane import Plane
    from intertwine.exploring.storage import write_result

    tensors = {"origin": torch.zeros(3), "basis": torch.eye(2, 3), "marks": torch.zeros(1, 2)}
    facts = {"names": ["w"], "shapes": [[3]], "marks": ["a"], "notes": []}
    assert Plane
    return _written("m.safetensors", lambda path: write_result(path, "plane", tensors, facts))


def read_plane(path: Path) -> None:
    from intertwine.exploring.plane import Plane

    Plane.load(path)


def merged() -> bytes:
    from intertwine import zoo
    from intertwine.merging import save_merged

    return _written(
        "small/recipe.json", lambda path: save_merged(zoo.build("mlp"), path.parent, "zoo:mlp", {})
    )


def read_merged(path: Path) -> None:
    import intertwine
    from intertwine import zoo

    weights = path.parent / "weights.safetensors"
    if not weights.exists():
        zoo.save_weights(zoo.build("mlp"), weights)
    intertwine.load(path.parent)


def page() -> bytes:
    from intertwine.pages.page import Page

    made = Page("A <net>")
    made.finding("It is one.")
    text = made.render()
    return (text[:2000] + text[-4000:]).encode()  # the middle is plotly


def read_page(path: Path) -> None:
    import intertwine

    intertwine.report([path])


def _task() -> Any:
    from intertwine.sweeping.task import Task

    return Task.of("merge", {"model": "zoo:mlp", "seed": 0})


def result() -> bytes:
    from intertwine.sweeping.store import ResultStore

    row = {"kind": "merge", "model": "mlp", "seed": 0, "quantity": "accuracy", "value": 0.5}
    name = f"results/{_task().key}/result.json"
    return _written(name, lambda path: ResultStore(path.parents[2]).finish(_task(), [row]))


def read_swept(path: Path) -> None:
    from intertwine.sweeping.store import ResultStore
    from intertwine.sweeping.table import write_table

    store, task = ResultStore(path.parent / "store"), _task()
    store.folder(task).mkdir(parents=True, exist_ok=True)
    shutil.copy(path, store.folder(task) / "result.json")
    if store.is_done(task):
        write_table(store, [task])


def tokenizer() -> bytes:
    pieces = {"a": 0, "b": 1, "ab": 2, " ": 3}
    model = {"type": "BPE", "vocab": pieces, "merges": ["a b"], "unk_token": None, "dropout": None}
    return json.dumps({"version": "1.0", "added_tokens": [], "model": model}).encode()


def read_tokenizer(path: Path) -> None:
    from intertwine.data import load_data

    text = path.parent / "a.txt"
    text.write_text("ab ab a b " * 20)
    for _ in load_data(f"text:{text}", tokenizer=str(path), context=4, limit=2).batches():
        pass

"""Section 3.4 of Yellapragada 2020: networks during training against their final selves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from intertwine.errors import InputError
from intertwine.similarity.collect import collect
from intertwine.similarity.experiments import Network, PathPoint, training_path

Labelled = tuple[Tensor, Tensor]


def train_checkpoints(
    model: nn.Module,
    data: Labelled,
    *,
    epochs: int,
    lr: float,
    batch: int = 64,
    momentum: float = 0.9,
    seed: int = 0,
) -> Iterator[tuple[int, nn.Module]]:
    """(epoch, copy of the network) before training and after every epoch of SGD; `model` stays as it is."""
    if epochs < 1 or not lr > 0:
        raise InputError(
            f"{epochs} epochs at learning rate {lr}", do="give at least one epoch and a positive rate"
        )
    network = copy.deepcopy(model).train()
    inputs, labels = data
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=momentum)
    random = torch.Generator().manual_seed(seed)
    yield 0, copy.deepcopy(network).eval()
    for epoch in range(1, epochs + 1):
        order = torch.randperm(len(inputs), generator=random).to(inputs.device)
        for chosen in order.split(batch):
            optimizer.zero_grad()
            functional.cross_entropy(network(inputs[chosen]), labels[chosen]).backward()
            optimizer.step()
        yield epoch, copy.deepcopy(network).eval()


def training_paths(
    build: Callable[[int], nn.Module],
    train: Labelled,
    test: Tensor,
    layer: str,
    *,
    learning_rates: Sequence[float] = (0.1, 0.01, 0.001),
    seeds: Sequence[int] = (0, 1),
    epochs: int = 10,
    batch: int = 64,
    measure: str = "cka",
) -> list[PathPoint]:
    """Train `build(seed)` at each rate; every epoch against the last at `layer` and in outputs."""
    points: list[PathPoint] = []
    for rate in learning_rates:
        for seed in seeds:
            run = f"lr {rate:g}, seed {seed}"
            found = {}
            for epoch, network in train_checkpoints(
                build(seed), train, epochs=epochs, lr=rate, batch=batch, seed=seed
            ):
                features = collect(network, test, at=layer)
                found[epoch] = Network(f"{run}, epoch {epoch}", features[layer], features.outputs)
            points += training_path(run, found, measure)
    return points

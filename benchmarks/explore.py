"""Explore against the way of the PyPI package genni, in one run, with equal J checked.

    python benchmarks/explore.py [--quick]

genni's way, transcribed: for every grid point a deep copy of the model, its parameters set one by one, then a
pass of a DataLoader over the whole set with MSELoss, averaged over the batches (genni 0.1.0,
griding/interpolation.py and utils.get_net_loss). It is timed on a few grid points: all would take hours.

Rows: seconds per grid point, ratio to genni's way, largest difference of J.
"""

from __future__ import annotations

import argparse
import copy
import time

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from intertwine.exploring import (
    EvaluationPlan,
    Grid,
    evaluate,
    find_equivalents,
    plan_evaluation,
    plane_through,
    random_plane,
    span,
)
from intertwine.exploring.objective import Objective, function_distance
from intertwine.exploring.plane import Plane
from intertwine.zoo import build


def genni_point(model: nn.Module, plane: Plane, coefficients: Tensor, loader: DataLoader) -> float:
    """One grid point the way of genni: deep copy, add the directions name by name, a DataLoader pass."""
    directions = [plane.layout.unflatten(row) for row in plane.basis]
    current = copy.deepcopy(model)
    named = dict(current.named_parameters())
    origin = plane.layout.unflatten(plane.origin)
    for name in plane.layout.names:
        step = sum(d[name] * float(c) for d, c in zip(directions, coefficients, strict=True))
        named[name].data.copy_(origin[name] + step)
    criterion, total = nn.MSELoss(), 0.0
    for inputs, labels in loader:
        outputs = current(inputs.float())
        total += criterion(outputs, labels).item()
    return total / len(loader)


def measure_genni(
    objective: Objective, model: nn.Module, plane: Plane, grid: Grid, points: np.ndarray
) -> tuple:
    data = TensorDataset(objective.inputs[0], objective.outputs)
    loader = DataLoader(data, batch_size=256, shuffle=False)
    coordinates = grid.coordinates(points)
    genni_point(model, plane, coordinates[0], loader)
    began = time.perf_counter()
    values = np.array([genni_point(model, plane, c, loader) for c in coordinates])
    return (time.perf_counter() - began) / len(points), values


def measure_bare(objective: Objective, rows: Tensor, examples: int) -> float:
    """Bare forward passes over the same points: the model, loaded, on pieces of C, and nothing else."""
    modules = [objective.module(row).eval() for row in rows]
    pieces = objective.inputs[0].split(examples)
    with torch.no_grad():
        modules[0](pieces[0])
        began = time.perf_counter()
        for module in modules:
            for piece in pieces:
                module(piece)
    return (time.perf_counter() - began) / len(rows)


def small_network(quick: bool) -> None:
    torch.manual_seed(10)
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    inputs = torch.randn(16384, 1, generator=torch.Generator().manual_seed(0))
    objective = function_distance(model, inputs)
    plane = span(find_equivalents(objective, n=3, tolerance=1e-6, seed=10))
    grid = Grid.cube(2, 2.0, 50 if quick else 100)
    points = np.random.default_rng(0).choice(grid.size, 3 if quick else 10, replace=False)
    genni, theirs = measure_genni(objective, model, plane, grid, points)
    plan = plan_evaluation(objective)
    began = time.perf_counter()
    landscape = evaluate(plane, grid, plan=plan)
    ours = (time.perf_counter() - began) / grid.size
    difference = np.abs(landscape.values.ravel()[points] - theirs)
    assert (difference <= 1e-6 * np.maximum(1, theirs)).all(), difference.max()
    print("four-parameter network, 16,384 inputs")
    print(f"  genni's way          {genni * 1e3:10.3f} ms a point")
    print(f"  ours, {plan.describe()}")
    print(
        f"                       {ours * 1e3:10.3f} ms a point, {genni / ours:,.0f} times faster (goal: 200)"
    )
    print(f"  largest difference of J {difference.max():.1e}")


def lenet(quick: bool) -> None:
    torch.manual_seed(0)
    model = build("lenet5", classes=1)
    inputs = torch.randn(1024 if quick else 8192, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    objective = function_distance(model, inputs)
    plane = random_plane(objective, seed=1, normalise="none")
    grid = Grid.cube(2, 13.0, 100)
    points = np.random.default_rng(0).choice(grid.size, 3 if quick else 4, replace=False)
    plan = plan_evaluation(objective)
    rows = plane.points(grid.coordinates(points))
    genni, theirs = measure_genni(objective, model, plane, grid, points)
    bare, ours = [], []
    for _ in range(3):
        bare.append(measure_bare(objective, rows, plan.examples))
        began = time.perf_counter()
        values = objective.values(rows, batched=plan.batched, examples=plan.examples)
        ours.append((time.perf_counter() - began) / len(rows))
    relative = np.abs(values.numpy() - theirs) / np.maximum(1, theirs)
    assert relative.max() < 1e-6, relative.max()
    print(f"LeNet-5, {objective.size:,} inputs")
    print(f"  genni's way          {genni * 1e3:10.1f} ms a point")
    print(f"  bare forward passes  {min(bare) * 1e3:10.1f} ms a point")
    print(f"  ours, {plan.describe()}")
    print(
        f"                       {min(ours) * 1e3:10.1f} ms a point, "
        f"{min(ours) / min(bare):.2f} x bare (goal: 1.2)"
    )
    fewer = refinement(model, 64 if quick else 100)
    print(f"  adaptive refinement  {fewer:10.1f} times fewer evaluations for the same level set (goal: 5)")
    print(f"  in all               {genni / min(ours) * fewer:10.1f} times faster than genni's way (goal: 8)")


def refinement(model: nn.Module, points: int) -> float:
    """Full grid over adaptive, on 32 inputs so that the full grid is affordable; equal level sets."""
    inputs = torch.randn(32, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    objective = function_distance(model, inputs)
    torch.manual_seed(1)
    others = [build("lenet5", classes=1).state_dict() for _ in range(2)]
    plane = plane_through(objective, [objective.theta, *others])
    grid = Grid.cube(2, 13.0, points)
    plan = EvaluationPlan(False, 1, 32, 0.0, "one piece")
    full = evaluate(plane, grid, plan=plan)
    epsilon = 0.0025
    adaptive = evaluate(plane, grid, plan=plan, epsilon=epsilon)
    wrong = int((adaptive.inside(epsilon) != full.inside(epsilon)).sum())
    assert wrong == 0, f"{wrong} of {grid.size} points on the wrong side"
    return grid.size / adaptive.evaluations


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer points, seconds instead of minutes")
    args = parser.parse_args()
    small_network(args.quick)
    lenet(args.quick)


if __name__ == "__main__":
    main()

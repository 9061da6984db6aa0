"""The source's experiments as functions, and their figures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from intertwine import trace, zoo
from intertwine.errors import InputError
from intertwine.merging import Options, Planner, feature_complexity, widen
from intertwine.merging.experiments import iteration_seconds, merge_curve, normalized_distances, swap_path
from intertwine.pages.merge_figures import complexity_figure, curve_figure, distance_figure, swap_figure


@pytest.fixture(scope="module")
def wide() -> nn.Module:
    """A trained net with three channels of one axis duplicated."""
    net = zoo.load_weights(zoo.build("digits-vgg"), zoo.checkpoint("digits-vgg", 0)).double()
    symmetry = trace(net, torch.zeros(1, 1, 8, 8).double())
    return widen(net, symmetry, {"features.3": [*range(16), 2, 5, 7]})


def test_distances_match_the_formula(wide: nn.Module) -> None:
    symmetry = trace(wide, torch.zeros(1, 1, 8, 8).double())
    table = normalized_distances(wide, symmetry, "features.3")
    w = wide.get_parameter("features.3.weight").detach()
    v = wide.get_parameter("features.7.weight").detach().transpose(0, 1)
    raw = np.array(
        [
            [float(((w[i] - w[j]) ** 2).sum() + ((v[i] - v[j]) ** 2).sum()) for j in range(19)]
            for i in range(19)
        ]
    )
    np.testing.assert_allclose(table, raw / raw.max(), atol=1e-12)
    assert distance_figure(table, "features.3").data[0].z.shape == (19, 19)


def test_swapping_equal_features_changes_nothing_on_the_whole_line(wide: nn.Module) -> None:
    symmetry = trace(wide, torch.zeros(1, 1, 8, 8).double())
    x = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        reference = wide(x)

    def error(model: nn.Module) -> float:
        with torch.no_grad():
            return float((model(x) - reference).abs().max())

    path = swap_path(wide, symmetry, error, beta=1e-9, axes=["features.3"])
    assert path.swapped == 3
    assert max(path.equivalent) < 1e-10
    # pi(theta) is the same function; halfway between it and theta random swaps are not
    assert path.random[0] < 1e-12 and path.random[-1] < 1e-10 and path.random[2] > 1e-3
    assert len(swap_figure({"net": path}).data) == 2
    with pytest.raises(InputError, match="no two features"):
        swap_path(wide, symmetry, error, beta=0.0, axes=["features.14"])


def test_curves_complexity_and_time(wide: nn.Module) -> None:
    symmetry = trace(wide, torch.zeros(1, 1, 8, 8).double())
    planner = Planner(wide, symmetry, Options(), check=False)
    points = merge_curve(planner, lambda m: float(sum(p.numel() for p in m.parameters())), shares=(0.9, 0.5))
    assert [p.kept <= p.setting for p in points] == [True, True]
    assert points[0].score > points[1].score
    assert list(curve_figure({"net": points}).data[0].x) == sorted(100 * p.kept for p in points)
    complexity = feature_complexity(wide, symmetry, (1e-9, 0.9))
    assert complexity[1e-9]["features.3"] == 16
    sizes = {a.name: a.size for a in symmetry.axes if a.mergeable}
    drawn = complexity_figure({str(b): c for b, c in complexity.items()}, sizes)
    assert len(drawn.data) == 3
    assert len(iteration_seconds(wide, symmetry, rounds=3)) == 3

"""The experiments on small problems whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from intertwine.comparing.experiments import (
    ObservedNetwork,
    embed,
    existence_proof,
    relate,
    representation_bias,
    similarity_matrix,
    training_path,
)
from intertwine.comparing.seeds import compare_seeds
from intertwine.errors import InputError
from intertwine.pages.experiment_figures import (
    confusion_figure,
    embedding_figure,
    path_figures,
    relation_figure,
)


def _draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_bias_finds_the_model_and_not_the_data():
    """Two models differ by a shift, two data sets by nothing: the SVM may confuse data sets, never models."""
    features = {
        (data, model): _draw(10 * i + j, 80, 6) + 5 * j
        for i, data in enumerate(("cats", "dogs"))
        for j, model in enumerate(("net", "other"))
    }
    bias = representation_bias(features)
    assert bias.wrong_model < 0.02
    assert 0.3 < bias.wrong_data < 0.7
    assert np.allclose(bias.confusion.sum(1), 1)
    assert bias.accuracy == pytest.approx(1 - bias.wrong_model - bias.wrong_data, abs=1e-9)
    points = embed(features, perplexity=10)
    centres = {source: found.mean(0) for source, found in points.items()}
    between = np.linalg.norm(centres["cats", "net"] - centres["cats", "other"])
    within = np.linalg.norm(centres["cats", "net"] - centres["dogs", "net"])
    assert between > 3 * within
    assert len(embedding_figure(points).data) == 4
    assert confusion_figure(bias).data[0].z is not None
    with pytest.raises(InputError, match="at least two"):
        representation_bias({("a", "b"): _draw(0, 10, 2)})


def test_similarity_matrix():
    x = _draw(0, 40, 5)
    matrix = similarity_matrix({"a": x, "b": 2 * x, "c": _draw(1, 40, 5)})
    assert matrix[0, 1] == pytest.approx(1)
    assert matrix[0, 2] < 0.5 and np.allclose(matrix, matrix.T)


def test_relation_counts_trained_pairs_only():
    """Outputs drift with features: similarity falls as divergence grows; untrained pairs stand apart."""
    x, direction, head = _draw(0, 100, 8), _draw(1, 100, 8), _draw(2, 8, 3)
    steps = [0.0, 0.3, 0.7, 1.5, 3.0]
    networks = [ObservedNetwork(f"t{s}", x + s * direction, (x + s * direction) @ head) for s in steps]
    networks += [
        ObservedNetwork(f"r{s}", _draw(5 + s, 100, 8), torch.zeros(100, 3), trained=False) for s in range(2)
    ]
    relation = relate(networks)
    assert len(relation.pairs) == 11
    assert relation.rho_jsd < -0.8 and relation.rho_spearman > 0.8
    untrained = [p for p in relation.pairs if not p.trained]
    assert (
        len(untrained) == 1
        and untrained[0].jsd == pytest.approx(0, abs=1e-12)
        and untrained[0].spearman is None
    )
    figure = relation_figure(relation)
    assert {trace.name for trace in figure.data} >= {"trained pairs", "untrained pairs"}
    assert relate(networks[:2]).rho_jsd is None


def test_training_path_ends_at_itself():
    x, noise = _draw(0, 60, 4), _draw(1, 60, 4)
    checkpoints = {e: ObservedNetwork(str(e), x + noise * (4 - e), x + noise * (4 - e)) for e in (0, 2, 4)}
    path = training_path("lr 0.1", checkpoints)
    assert [p.epoch for p in path] == [0, 2, 4]
    assert path[-1].similarity == pytest.approx(1) and path[-1].jsd == pytest.approx(0, abs=1e-12)
    assert path[0].similarity < path[1].similarity and path[0].jsd > path[1].jsd
    assert all(len(figure.data) == 1 for figure in path_figures(path))


def test_existence_of_equal_features_and_opposite_functions():
    x = _draw(0, 600, 40)
    y = (x.sum(1) > 0).long()
    rows = existence_proof((x[:400], y[:400]), (x[400:], y[400:]), masked=(0.0, 0.5, 0.9))
    assert all(row.cka > 0.99 and row.cca > 0.99 for row in rows)
    assert rows[0].jsd > 0.5 and rows[0].jsd <= math.log(2)
    assert rows[0].rank_coefficient < -0.9
    assert rows[0].jsd > rows[1].jsd > rows[2].jsd
    assert rows[0].accuracy_true > 0.9 and rows[0].accuracy_flipped > 0.9
    assert rows[0].cka_masked == pytest.approx(1) and rows[2].cka_masked < 0.5
    with pytest.raises(InputError, match="0 and 1"):
        existence_proof((x, y + 1), (x, y))


def test_seeds_give_means_and_intervals():
    nets = []
    for seed in range(3):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            nets.append(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)))
    result = compare_seeds(nets, _draw(0, 50, 4))
    assert result.layers == ("1", "2") and result.networks == 3
    grid = result.mean["procrustes"]
    assert grid.shape == (2, 2) and np.isfinite(grid).all() and grid[0, 1] == pytest.approx(grid[1, 0])
    interval = result.matched["procrustes"]["1"]
    assert interval.low <= interval.value <= interval.high
    assert interval.value == pytest.approx(grid[0, 0])
    assert set(result.table()[0]) == {
        "layer",
        "procrustes-grelu",
        "procrustes-grelu +-",
        "procrustes",
        "procrustes +-",
    }
    with pytest.raises(InputError, match="at least three"):
        compare_seeds(nets[:2], _draw(0, 50, 4))


def test_a_training_path_ends_at_its_own_form_and_a_high_rate_goes_further():
    from intertwine.comparing.experiments import training_path

    x = _draw(0, 300, 6)
    y = (x[:, 0] + x[:, 1] > 0).long()

    def path(rate: float) -> list:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)).to(x.dtype)
        optimizer, kept = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9), {}
        for epoch in range(4):
            with torch.no_grad():
                kept[epoch] = ObservedNetwork(f"epoch {epoch}", net[:2](x[:80]), net(x[:80]))
            for chosen in torch.arange(300).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x[chosen]), y[chosen]).backward()
                optimizer.step()
        return training_path(f"lr {rate:g}", kept)

    fast, slow = path(0.3), path(0.003)
    assert [p.epoch for p in fast] == [0, 1, 2, 3] and {p.run for p in fast} == {"lr 0.3"}
    for points in (fast, slow):
        assert points[-1].similarity == pytest.approx(1) and points[-1].jsd == pytest.approx(0, abs=1e-12)
    assert fast[0].similarity < slow[0].similarity
    assert fast[0].jsd > fast[2].jsd
    with pytest.raises(InputError, match="at least two checkpoints"):
        training_path("one", {0: ObservedNetwork("one", x, x)})

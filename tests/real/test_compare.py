"""Compare on real networks and real images: identification, invariance of real layers, the command line."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import intertwine
from intertwine import trace, zoo
from intertwine.cli import main
from intertwine.comparing import MEASURES, Features, StreamedMoments, collect, compare, similarity
from intertwine.data import Dataset
from repeats import examples


def _tiny10(shared_data: Path, seed: int) -> torch.nn.Module:
    path = shared_data / "checkpoints" / f"tiny10-cifar10-seed{seed}.safetensors"
    return zoo.load_weights(zoo.build("tiny10"), path)


def _identified(a: Features, b: Features, measure: str) -> int:
    """Right answers of a layer of `a` asking for its like in `b`, and the other way round."""
    moments = StreamedMoments(pixels="pool", precise=MEASURES[measure].needs_precision, debiased=False)
    moments.update(a, b)
    grid = np.array([[MEASURES[measure].of_moments(moments.pair(p, q)) for q in b] for p in a])
    truth = np.arange(len(grid))
    return int((grid.argmax(1) == truth).sum() + (grid.argmax(0) == truth).sum())


def test_linear_cka_identifies_layers(shared_data: Path, cifar10_test: Callable[..., Dataset]) -> None:
    """Kornblith et al., section 6.1, all ordered pairs of six networks (nightly ten); CCA is the negative
    control."""
    data = cifar10_test("cifar10-legacy", limit=500)
    features = [collect(_tiny10(shared_data, seed), data, at="relu*") for seed in range(examples(6, 10))]
    pairs = list(itertools.combinations(features, 2))
    total = 2 * len(features[0]) * len(pairs)
    assert sum(_identified(a, b, "cka") for a, b in pairs) / total >= 0.95
    few = pairs[:4]
    assert sum(_identified(a, b, "cca") for a, b in few) / (16 * len(few)) < 0.5


def test_real_layers_under_a_sampled_group_element(
    shared_data: Path, cifar10_test: Callable[..., Dataset]
) -> None:
    """A symmetry of the weights moves the features; the measure of the group must not see it, others must."""
    model = _tiny10(shared_data, 0).double()
    images = cifar10_test("cifar10-legacy", limit=60).images.double()
    symmetry = intertwine.trace(model, images[:2])
    moved = intertwine.act(model, symmetry.sample(0))
    other = _tiny10(shared_data, 1).double()
    x, acted, y = (collect(net, images, at=["relu_2", "relu_6"]) for net in (model, moved, other))
    for layer in x:
        assert (x[layer] - acted[layer]).abs().max() > 0.1
        for measure in ("procrustes-grelu", "cka-grelu", "cka-grelu-laplace", "cca"):
            before, after = (
                similarity(x[layer], y[layer], measure),
                similarity(acted[layer], y[layer], measure),
            )
            assert after == pytest.approx(before, abs=1e-6), (layer, measure)
            if measure != "cca":
                assert similarity(x[layer], acted[layer], measure) == pytest.approx(1, abs=1e-6)
        for measure in ("cka", "procrustes", "procrustes-permutation"):
            assert similarity(x[layer], acted[layer], measure) < 0.999, (layer, measure)


def test_auto_sees_positive_scales_after_batch_norm(shared_data: Path) -> None:
    model = _tiny10(shared_data, 0)
    values = trace(model, torch.zeros(2, 3, 32, 32)).values
    assert values["relu_3"].group.name == "positive monomial"
    assert values["fc"].group.name == "trivial"


def test_untrained_networks_are_further_apart(
    shared_data: Path, cifar10_test: Callable[..., Dataset]
) -> None:
    data = cifar10_test("cifar10-legacy", limit=300)
    trained = _tiny10(shared_data, 0)
    same = compare(trained, _tiny10(shared_data, 1), data, "cka")
    random = compare(trained, zoo.resolve("zoo:tiny10", seed=5).model, data, "cka")
    assert same.matched("cka")[7][2] > random.matched("cka")[7][2] + 0.2
    assert same.function is not None and random.function is not None
    assert same.function.accuracy_a == pytest.approx(0.86, abs=0.06)
    assert same.function.disagreement.value < 0.3 < random.function.disagreement.value


def test_command_line(
    shared_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    cifar10_test: Callable[..., Dataset],
) -> None:
    cifar10_test("none", limit=1)  # skips where the data is absent
    page, images = tmp_path / "compare.html", shared_data / "cifar10" / "test.parquet"
    weights = [str(shared_data / "checkpoints" / f"tiny10-cifar10-seed{seed}.safetensors") for seed in (0, 1)]
    code = main(
        ["compare", "zoo:tiny10", "zoo:tiny10", "--weights-a", weights[0], "--weights-b", weights[1],
         "--data",
         f"parquet:{images}", "--normalize", "cifar10-legacy", "--limit", "64",
         "--measures", "auto,cka,cka-grelu", "-o", str(page), "--json"]
    )  # fmt: skip
    assert code == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["measures"]) == {"auto", "cka", "cka-grelu"}
    assert result["function"]["accuracy_a"] > 0.75
    assert "G_ReLU-CKA" in page.read_text()

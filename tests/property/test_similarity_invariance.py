"""What each measure must, and must not, be invariant to: random features, random elements of each group."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intertwine.comparing import MEASURES, similarity

ACTIONS = ("permutation", "positive", "sign", "orthogonal", "linear", "scale", "shift")
# Which actions on the channels of one side leave the value alone; everything else must change it.
KEEPS = {
    "cka": {"permutation", "sign", "orthogonal", "scale", "shift"},
    "cka-debiased": {"permutation", "sign", "orthogonal", "scale", "shift"},
    "cka-rbf": {"permutation", "sign", "orthogonal", "scale", "shift"},
    "cca": set(ACTIONS),
    "cca-squared": set(ACTIONS),
    "svcca": {"permutation", "sign", "orthogonal", "scale", "shift"},
    "pwcca": {"permutation", "sign", "scale", "shift"},
    "procrustes": {"permutation", "sign", "orthogonal", "scale"},
    "procrustes-permutation": {"permutation", "scale"},
    "procrustes-grelu": {"permutation", "positive", "scale"},
    "cka-grelu": {"permutation", "positive", "sign", "scale", "shift"},
    "cka-grelu-laplace": {"permutation", "positive", "sign", "scale", "shift"},
    "rsa": {"permutation", "sign", "orthogonal", "scale", "shift"},
    "knn": {"permutation", "sign", "orthogonal", "scale", "shift"},
}


def _features(random: np.random.Generator, maps: bool) -> tuple[np.ndarray, np.ndarray]:
    """Two related sets of positive-ish features with channels of unequal scale."""
    shape = (60, 5, 3, 3) if maps else (60, 5)
    x = random.normal(size=shape) + 0.7
    mixed = np.einsum("nc...,cd->nd...", x, random.normal(size=(5, 5)))
    scales = np.array([0.4, 0.7, 1.0, 1.6, 2.5]).reshape(1, 5, *[1] * (len(shape) - 2))
    return x * scales, mixed + 0.5 * random.normal(size=shape) + 1.0


def _act(action: str, x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if action == "scale":
        return 3.7 * x
    if action == "shift":
        return x + random.uniform(1, 3, size=x.shape[1]).reshape(1, -1, *[1] * (x.ndim - 2))
    channels = x.shape[1]
    if action == "permutation":
        matrix = np.eye(channels)[random.permutation(channels)]
    elif action == "positive":
        matrix = np.diag(np.exp(np.linspace(-1.5, 1.5, channels)[random.permutation(channels)]))
    elif action == "sign":
        signs = np.where(np.arange(channels) % 2, 1.0, -1.0)
        matrix = np.diag(signs[random.permutation(channels)])
    elif action == "orthogonal":
        matrix = np.linalg.qr(random.normal(size=(channels, channels)))[0]
    else:
        left, right = (np.linalg.qr(random.normal(size=(channels, channels)))[0] for _ in range(2))
        matrix = left @ np.diag(np.geomspace(0.3, 3, channels)) @ right
    return np.einsum("nc...,cd->nd...", x, matrix)


@pytest.mark.parametrize("measure", MEASURES)
@given(seed=st.integers(0, 2**32 - 1), maps=st.booleans())
@settings(max_examples=8)
def test_invariant_to_its_group(measure, seed, maps):
    random = np.random.default_rng(seed)
    x, y = _features(random, maps)
    value = similarity(x, y, measure)
    for action in ACTIONS:
        if action in KEEPS[measure]:
            moved = similarity(_act(action, x, random), y, measure)
            assert moved == pytest.approx(value, abs=1e-6), action
            both = similarity(_act(action, x, random), _act(action, y, random), measure)
            assert both == pytest.approx(value, abs=1e-6), action


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("maps", [False, True])
def test_not_invariant_to_more_than_its_group(measure, maps):
    """An action outside the group changes the value, clearly, for most draws: one draw proves nothing."""
    for action in ACTIONS:
        if action in KEEPS[measure]:
            continue
        changes = []
        for seed in range(6):
            random = np.random.default_rng(seed)
            x, y = _features(random, maps)
            changes.append(abs(similarity(_act(action, x, random), y, measure) - similarity(x, y, measure)))
        assert np.median(changes) > 1e-4, action


@pytest.mark.parametrize("measure", MEASURES)
def test_pixels_are_not_channels(measure):
    """Shuffling the pixels of one side must not pass for the same features."""
    random = np.random.default_rng(0)
    x, _ = _features(random, True)
    shuffled = x.reshape(60, 5, 9)[:, :, random.permutation(9)].reshape(x.shape)
    value = similarity(x, shuffled, measure)
    flattened = MEASURES[measure].pixels == "flatten"
    # A dot product summed over pixels cannot see a common shuffle of them; the other measures must.
    assert (value == pytest.approx(1, abs=1e-6)) if flattened else (value < 0.95)


@given(
    n=st.integers(8, 60),
    cuts=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    seed=st.integers(0, 10**6),
    pixels=st.sampled_from(["samples", "pool"]),
)
@settings(max_examples=25)
def test_streaming_does_not_depend_on_batches_or_shards(n, cuts, seed, pixels):
    from intertwine.comparing import StreamedMoments

    random = torch.Generator().manual_seed(seed)
    a = {"p": torch.randn(n, 3, 4, 4, generator=random) + 5, "q": torch.randn(n, 2, 2, 2, generator=random)}
    b = {"r": torch.randn(n, 4, 4, 4, generator=random), "s": torch.randn(n, 3, generator=random) - 9}
    whole = StreamedMoments(pixels=pixels)
    whole.update(a, b)
    shards = []
    start = 0
    for step in [*cuts, n]:
        stop = min(start + step, n)
        if stop > start:
            shard = StreamedMoments(pixels=pixels)
            shard.update({k: v[start:stop] for k, v in a.items()}, {k: v[start:stop] for k, v in b.items()})
            shards.append(shard)
        start = stop
    merged = sum(shards[1:], shards[0])
    assert merged.images == n
    for p in a:
        for q in b:
            for name in ("cka", "cka-debiased", "procrustes", "procrustes-grelu", "procrustes-permutation"):
                measure = MEASURES[name]
                assert measure.of_moments(merged.pair(p, q)) == pytest.approx(
                    measure.of_moments(whole.pair(p, q)), abs=1e-6
                )

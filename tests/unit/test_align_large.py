"""A large model is aligned without a float64 copy of it: weights are raised and moved one at a time."""

import pytest
import torch
from torch import nn

from intertwine import act, trace
from intertwine.aligning import align
from intertwine.orbit import raised
from intertwine.zoo import resolve


@pytest.fixture(scope="module")
def llama() -> tuple[nn.Module, torch.Tensor, object]:
    source = resolve("hf:llama?layers=2")
    return source.model, source.example[0][:1], trace(source.model, source.example[0][:1])


def test_an_orbit_is_recognised_as_by_copies(llama, monkeypatch) -> None:
    model, _, symmetry = llama
    moved = act(model, symmetry.sample(3))
    found = {}
    for large in (raised.LARGE, 0):
        monkeypatch.setattr(raised, "LARGE", large)
        found[large] = align(model, moved, symmetry)
    copies, single = found.values()
    assert single.distance_before > 0.5 and single.distance_after < 1e-5 and not single.notes
    assert (copies.element.relabel == single.element.relabel).all()
    back = act(moved, single.element)
    for mine, theirs in zip(model.parameters(), back.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4)


def test_others_are_searched_as_by_copies(llama, monkeypatch) -> None:
    model, _, symmetry = llama
    other = resolve("hf:llama?layers=2", seed=1).model
    copies = align(model, other, symmetry, group="permutation", restarts=0)
    monkeypatch.setattr(raised, "LARGE", 0)
    single = align(model, other, symmetry, group="permutation", restarts=0)
    assert single.distance_after == pytest.approx(copies.distance_after, rel=1e-9)
    whole = align(model, other, symmetry, restarts=0)
    assert whole.notes and "least norm" in whole.notes[0] and whole.distance_after < whole.distance_before


def test_no_second_copy_is_held(llama, monkeypatch) -> None:
    """Weights of a state are made anew at every look: what lives is the element."""
    from intertwine.orbit import Pairing

    model, _, symmetry = llama
    monkeypatch.setattr(raised, "LARGE", 0)
    pair = Pairing(symmetry, model, act(model, symmetry.sample(1)))
    state = pair.action.state(pair.b)
    assert pair.is_large and not state.held
    name = next(iter(state.weights))
    assert state.weights[name] is not state.weights[name] and state.weights[name].dtype == torch.float64


def test_some_weights_of_a_moved_model_are_not_made(llama, monkeypatch) -> None:
    """A step looks at those that it needs; the stream's family reaches nearly all."""
    model, _, symmetry = llama
    weights = raised.Raised(symmetry.weights(model))
    looks = []
    look = raised.Raised.__getitem__
    monkeypatch.setattr(
        raised.Raised, "__getitem__", lambda self, name: looks.append(name) or look(self, name)
    )
    moved = weights.moved(symmetry.sample(1))
    some = moved.only(list(weights)[:3])
    assert len(some) == 3 and not looks
    first = next(iter(weights))
    assert torch.equal(some[first], moved[first])


def test_looks_grow_with_the_depth_not_with_its_square(monkeypatch) -> None:
    counts = []
    monkeypatch.setattr(raised, "LARGE", 0)
    look = raised.Raised.__getitem__
    for depth in (4, 8):
        layers = [layer for _ in range(depth) for layer in (nn.Linear(6, 6), nn.ReLU())]
        model = nn.Sequential(*layers, nn.Linear(6, 2))
        symmetry = trace(model, torch.zeros(1, 6))
        looks = []
        with monkeypatch.context() as patch:
            count = lambda self, name, looks=looks: looks.append(name) or look(self, name)  # noqa: E731
            patch.setattr(raised.Raised, "__getitem__", count)
            assert align(model, act(model, symmetry.sample(0)), symmetry).distance_after < 1e-5
        counts.append(len(looks))
    assert counts[1] < 2.5 * counts[0]

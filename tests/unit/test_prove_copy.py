"""graph.eager.fresh_copy: what deepcopy makes, with the module's own tensors."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from intertwine.graph.eager import fresh_copy, run_module
from intertwine.graph.example import Example
from intertwine.zoo import resolve


class Counting(nn.Module):
    """Keeps a list that every call makes longer, an alias of it, a child twice, and a tied weight."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.seen = nn.Linear(3, 3), [0]
        self.again, self.alias = self.inner, self.seen
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.inner.weight
        self.notes = {"of": self.inner, "empty": {}}
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(1)
        self.notes["empty"][len(self.seen)] = 1
        return self.tied(self.again(x)) + len(self.alias)


class OwnCopy(nn.Module):
    """Says itself how it is copied."""

    def __deepcopy__(self, memo: dict[int, object]) -> OwnCopy:
        new = OwnCopy()
        new.copied = True
        return new


def test_nothing_of_a_run_stays_in_the_original() -> None:
    model, x = Counting(), torch.randn(2, 3)
    first = fresh_copy(model)
    assert torch.equal(first(x), fresh_copy(model)(x)) and model.seen == [0] and model.notes["empty"] == {}
    assert not torch.equal(first(x), first(x))  # the control: it does remember


def test_aliases_and_tensors_stay_what_they_are() -> None:
    model = Counting()
    new = fresh_copy(model)
    assert new.again is new.inner is new.notes["of"] and new.inner is not model.inner
    assert new.alias is new.seen and new.tied.weight is new.inner.weight is model.inner.weight
    assert new.count is model.count
    new.extra = nn.Linear(2, 2)
    assert not hasattr(model, "extra")


def test_modules_that_say_how_they_are_copied() -> None:
    model = nn.Sequential(nn.Linear(2, 2), OwnCopy())
    assert fresh_copy(model)[1].copied and not hasattr(model[1], "copied")


@pytest.mark.parametrize("spec", ["zoo:resnet20", "hf:llama", "torchvision:mobilenet_v2"])
def test_real_models_run_alike(spec: str) -> None:
    source = resolve(spec)
    model = source.model.eval()
    news = [copy.deepcopy(model), fresh_copy(model)]
    assert list(news[0].state_dict()) == list(news[1].state_dict())
    outs = [run_module(n, Example.of(source.example, source.kwargs), torch.float32).outputs for n in news]
    assert outs[0] and all(torch.equal(*pair) for pair in zip(*outs, strict=True))


class _Masked(nn.Module):
    """Masks by the least number of the precision that its scores have, as xglm does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.first(x)
        return self.last(torch.max(scores, torch.full((), torch.finfo(scores.dtype).min)))


def test_a_number_that_only_the_raised_precision_holds() -> None:
    model = _Masked().double()
    found = run_module(model, Example((torch.ones(1, 3),), {})).outputs[0]
    assert torch.equal(found, model.last(model.first(torch.ones(1, 3, dtype=torch.float64))))

"""Alignment by loss: a learnable element acts as the element that it becomes; learning finds planted ones."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from intertwine import act, combine, fold, trace
from intertwine.aligning import mix
from intertwine.combining._by_loss import learn_elements
from intertwine.combining._calibrate import calibrated
from intertwine.combining._distil import teachers
from intertwine.combining._free import FreeElement, sinkhorn
from intertwine.errors import DataError
from intertwine.zoo.nanogpt import nanogpt

IDS = torch.randint(0, 11, (60, 8), generator=torch.Generator().manual_seed(0))
X = torch.randn(200, 3, 9, 9, generator=torch.Generator().manual_seed(0))


def gpt(seed):
    torch.manual_seed(seed)
    return fold(nanogpt(classes=11, context=8, width=16, heads=4, layers=2).eval(), IDS[:2])


def convolutions(seed):
    torch.manual_seed(seed)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.PReLU(6)]
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(6 * 25, 4))
    for _ in range(40):
        net.train()(torch.randn(32, 3, 9, 9))
    return net.eval()


@pytest.mark.parametrize(("make", "inputs"), [(gpt, IDS), (convolutions, X)])
def test_a_learnable_element_acts_as_the_element_that_it_becomes(make, inputs):
    net = make(0)
    symmetry = trace(net, inputs[:2])
    free = FreeElement(symmetry)
    assert free.element().is_identity(1e-9)
    torch.manual_seed(1)
    with torch.no_grad():
        for p in free.parameters():
            p += 0.3 * torch.randn_like(p) if p is free.scale or p.dim() == 3 else 9 * torch.randn_like(p)
    weights = {n: p.detach() for n, p in net.named_parameters()}
    moved, element = free(weights), free.element()
    assert not element.is_identity(1e-3)
    exact = dict(act(net, element).named_parameters())
    for name, tensor in moved.items():
        torch.testing.assert_close(tensor, exact[name], rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(act(net, element)(inputs), net(inputs), rtol=1e-3, atol=1e-3)
    total = sum(t.square().sum() for t in free(weights).values())
    total.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in free.parameters() if p.numel())


def test_sinkhorn_has_rows_and_columns_of_sum_one():
    found = sinkhorn(torch.randn(7, 7), rounds=60)
    torch.testing.assert_close(found.sum(0), torch.ones(7))
    torch.testing.assert_close(found.sum(1), torch.ones(7), rtol=1e-3, atol=1e-3)


@torch.no_grad()
def divergence(model, models, inputs):
    wanted = sum(m(inputs) for m in models) / len(models)
    found = model(inputs).log_softmax(-1)
    return float((wanted.softmax(-1) * (wanted.log_softmax(-1) - found)).sum(-1).mean())


def test_learning_undoes_a_small_planted_rotation():
    net = gpt(0)
    symmetry = trace(net, IDS[:2])
    planted = FreeElement(symmetry, permute=False)
    torch.manual_seed(2)
    with torch.no_grad():
        for turn in planted.turns.values():
            turn += 0.15 * torch.randn_like(turn)
    other = act(net, planted.element())
    start = [symmetry.identity(), symmetry.identity()]
    learned = learn_elements([net, other], start, symmetry, [0.5, 0.5], IDS, steps=60, permute=False)
    before, after = (
        divergence(mix([net, act(other, e)], [0.5, 0.5]), [net, other], IDS) for e in (start[1], learned[1])
    )
    assert after < 0.3 * before


def test_learning_never_makes_it_worse_and_touches_nothing():
    a, b = convolutions(0), convolutions(1)
    before = [copy.deepcopy(m.state_dict()) for m in (a, b)]
    symmetry = trace(a, X[:2])
    start = [symmetry.identity(), symmetry.identity()]
    kept = learn_elements([a, b], start, symmetry, [0.5, 0.5], X, steps=3, learning_rate=1e3, permute=True)
    assert kept[1] is start[1]
    for model, state in zip((a, b), before, strict=True):
        assert all(torch.equal(t, state[n]) for n, t in model.state_dict().items())


def test_loss_beats_activations_on_networks_that_are_unlike():
    a, b = gpt(0), gpt(1)
    found = {
        align: divergence(
            combine([a, b], train_data=IDS, how="average", align=align, steps=60).model, [a, b], IDS
        )
        for align in ("activations", "loss")
    }
    assert found["loss"] < 0.9 * found["activations"]
    assert np.isfinite(found["loss"])


def test_one_factor_calibrates_without_changing_a_prediction():
    a, b = convolutions(0), convolutions(1)
    plain, sure = (combine([a, b], train_data=X, calibrate=c).model for c in (False, True))
    with torch.no_grad():
        before, after = plain(X), sure(X)
        factor = after / before
        assert torch.equal(before.argmax(1), after.argmax(1))
        torch.testing.assert_close(factor, factor[0, 0].expand_as(factor), rtol=1e-3, atol=1e-3)
    assert divergence(sure, [a, b], X) < divergence(plain, [a, b], X)
    worse = copy.deepcopy(plain)
    worse[-1].weight.data *= 5
    worse[-1].bias.data *= 5
    assert divergence(calibrated(worse, teachers([a, b], [0.5, 0.5], X), X), [a, b], X) == pytest.approx(
        divergence(sure, [a, b], X), rel=1e-3
    )


def test_weights_that_are_read_twice_are_not_calibrated():
    torch.manual_seed(0)
    tied = nanogpt(classes=11, context=8, width=16, heads=4, layers=1).eval()
    assert calibrated(tied, teachers([tied, gpt(1)], [0.5, 0.5], IDS), IDS) is tied


def test_outputs_that_are_no_class_scores_are_left_as_they_are():
    """Of a single output the softmax says nothing: a factor would be whatever the search ends at."""
    nets = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        nets.append(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)).eval())
    x = torch.randn(300, 4, generator=torch.Generator().manual_seed(2))
    mean = (nets[0](x) + nets[1](x)).detach() / 2
    found = combine(nets, train_data=x).model(x).detach()
    assert 0.8 < float(found.std() / mean.std()) < 1.2
    for option in ({"calibrate": True}, {"epochs": 1}, {"align": "loss", "steps": 2}):
        with pytest.raises(DataError, match="single output"):
            combine(nets, train_data=x, **option)

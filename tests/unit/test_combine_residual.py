"""The layers of a residual branch at once, against what they make one by one; norms keep true statistics."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from intertwine import combine
from intertwine.combining._branch_made import BranchMade
from intertwine.combining._gauss_newton import Aim, _Line, nearer, total
from intertwine.combining._layerwise import Layerwise, batch_graph
from intertwine.combining._lockstep import Lockstep, whole_batches
from intertwine.combining._residual import find_branch
from intertwine.combining._rows import find_layer
from intertwine.errors import InputError
from intertwine.graph.export import export

X = torch.randn(600, 6, 7, 7, generator=torch.Generator().manual_seed(3))


class Bottleneck(nn.Module):
    """Three layers, one of them in groups, beside a skip."""

    def __init__(self, last: bool = True) -> None:
        super().__init__()
        self.one, self.norm1 = nn.Conv2d(6, 8, 1), nn.BatchNorm2d(8)
        self.two, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(8)
        self.three, self.norm3 = nn.Conv2d(8, 6, 1), nn.BatchNorm2d(6)

    def forward(self, x):
        y = torch.relu(self.norm1(self.one(x)))
        y = torch.relu(self.norm2(self.two(y)))
        return torch.relu(x + self.norm3(self.three(y)))


class Gated(nn.Module):
    """Two layers that only their product is read of."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(5, 9), nn.Linear(5, 9), nn.Linear(9, 5)

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def fresh(kind, seed, x=X):
    torch.manual_seed(seed)
    net = kind()
    for _ in range(30):
        net.train()(x[torch.randperm(len(x))[:60]])
    return net.eval()


def combined(nets, x, together):
    start = copy.deepcopy(nets[0])
    with torch.no_grad():
        for mean, *each in zip(*(net.state_dict().values() for net in (start, *nets)), strict=True):
            if mean.is_floating_point():
                mean.copy_(torch.stack(each).mean(0))
    inputs = whole_batches(x)
    return Layerwise(batch_graph(nets[0], x), nets, start, [0.5, 0.5], inputs, together=together).solve()


@pytest.mark.parametrize("kind, x", [(Bottleneck, X), (Gated, X[:, 0, :, :5])], ids=["convolutions", "gated"])
def test_the_layers_of_a_branch_err_less_together(kind, x):
    nets = [fresh(kind, seed, x) for seed in (0, 1)]
    new = torch.randn(300, *x.shape[1:], generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        goal = torch.stack([net(new) for net in nets]).mean(0)
        apart, together = (float((combined(nets, x, steps)(new) - goal).square().mean()) for steps in (0, 12))
    assert together < 0.95 * apart


def test_norms_hold_the_statistics_of_what_they_read():
    net = combined([fresh(Bottleneck, seed) for seed in (0, 1)], X, 12)
    seen = {}
    for name, layer in net.named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.register_forward_hook(lambda m, given, _, name=name: seen.update({name: given[0]}))
    with torch.no_grad():
        net(X)
    assert len(seen) == 3
    for name, values in seen.items():
        norm = net.get_submodule(name)
        torch.testing.assert_close(values.mean((0, 2, 3)), norm.running_mean, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(
            values.var((0, 2, 3), unbiased=False), norm.running_var, rtol=1e-3, atol=1e-5
        )


def branch_of(net, x):
    traced = export(net, (x,), {})
    order = Lockstep(traced, [net], whole_batches(torch.cat([x, x]))).nodes
    layers = [find_layer(n, traced.weights) for n in order if n.op == "call_function"]
    last = [layer for layer in layers if layer is not None][-1]
    found = find_branch(last, order, traced.weights)
    return None if found is None else [traced.weights[layer.weight.name] for layer in found.layers]


def test_a_branch_is_what_nothing_else_reads():
    assert branch_of(Bottleneck().eval(), X[:2]) == ["one.weight", "two.weight", "three.weight"]
    assert set(branch_of(Gated(), X[:2, 0, :, :5])) == {"gate.weight", "up.weight", "down.weight"}

    class Read(Gated):
        def forward(self, x):
            inside = self.up(x)
            return x + self.down(inside.relu()) + inside.sum()

    assert branch_of(Read(), X[:2, 0, :, :5]) is None


def test_a_step_that_helps_nothing_left_out_is_not_taken():
    x = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    start = (torch.eye(4),)
    fit = Aim(lambda w: x @ w[0], 3 * x)
    assert nearer([fit], [Aim(lambda w: x @ w[0], x)], start, 5) is start
    (found,) = nearer([fit], [fit], start, 20)
    torch.testing.assert_close(found, 3 * torch.eye(4), rtol=1e-3, atol=1e-3)


def test_where_nothing_should_come_through_only_what_does_counts():
    aim = Aim(lambda w: w[0], torch.tensor([5.0, 5.0, 5.0]), torch.tensor([True, True, False]))
    assert total([aim], (torch.tensor([-3.0, 2.0, 4.0]),)) == 4.0 + 1.0


@pytest.mark.parametrize("kind, x", [(Bottleneck, X[:60]), (Gated, X[:60, 0, :, :5])], ids=["norms", "gated"])
def test_a_branch_moves_as_its_derivative_says(kind, x):
    net = fresh(kind, 0, x).double()
    traced = export(net, (x.double(),), {})
    run = Lockstep(traced, [net], [[x.double()]])
    layers = [find_layer(n, traced.weights) for n in run.nodes if n.op == "call_function"]
    last = [layer for layer in layers if layer is not None][-1]
    branch = find_branch(last, run.nodes, traced.weights)
    run.hold(branch.reads)
    run.walk(lambda node: None)
    moving = [layer.weight for layer in branch.layers]
    made = BranchMade(run, 0, branch.layers, [*branch.nodes, last.node], moving, 0)
    weights = tuple(run.known(node, 0).clone() for node in moving)
    torch.manual_seed(0)
    move = [torch.randn_like(w) for w in weights]
    line = _Line(Aim(made, torch.zeros(())), weights)
    step = 1e-6
    there, back = (made(tuple(w + s * m for w, m in zip(weights, move, strict=True))) for s in (step, -step))
    slope = (there - back) / (2 * step)
    made(weights)
    torch.testing.assert_close(line.push(move), slope, rtol=1e-6, atol=1e-6 * float(slope.abs().max()))
    error = torch.randn_like(slope)
    pulled = sum((p * m).sum() for p, m in zip(line.pull(error), move, strict=True))
    torch.testing.assert_close(pulled, (error * slope).sum(), rtol=1e-6, atol=1e-6)


def test_branches_are_solved_for_together_unless_told_otherwise():
    nets = [fresh(Gated, seed, X[:, 0, :, :5]) for seed in (0, 1)]
    x = X[:, 0, :, :5]
    usual, asked, apart = (
        combine(nets, train_data=x, **way).model(x[:9]) for way in ({}, {"together": 12}, {"together": 0})
    )
    assert torch.equal(usual, asked) and not torch.allclose(usual, apart, rtol=1e-3)
    with pytest.raises(InputError, match="at least 0"):
        combine(nets, train_data=x, together=-1)


def test_few_inputs_are_left_out_too():
    assert [len(batch[0]) for batch in whole_batches(X[:40])] == [10] * 4
    assert [len(batch[0]) for batch in whole_batches(X[:3])] == [3]

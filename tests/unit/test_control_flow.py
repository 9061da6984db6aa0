"""Branches and loops are seen by their bodies, and what is claimed of them holds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.map import map as each
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from intertwine import Symmetry
from intertwine.graph.eager import run_module
from intertwine.graph.example import Example
from intertwine.graph.export import export
from intertwine.graph.run import run
from intertwine.symmetry.tracing import proved
from intertwine.symmetry.transform import apply_element


@pytest.fixture(autouse=True)
def _forget_what_was_compiled() -> None:
    """torch compiles the bodies of branches and loops, and gives up after a few of one kind."""
    torch._dynamo.reset()


class Net(nn.Module):
    """Two layers with something between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.inner, self.other = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.last = nn.Linear(4, 2)
        self.decay, self.gain = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.first(x).relu(), x))

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        raise NotImplementedError


class Branches(Net):
    def between(self, h: Tensor, x: Tensor) -> Tensor:
        return torch.cond(
            x.sum() > 0, lambda h: self.inner(h).relu(), lambda h: self.other(h).relu() + h, (h,)
        )


class Nested(Net):
    def between(self, h: Tensor, x: Tensor) -> Tensor:
        def inside(h: Tensor, x: Tensor) -> Tensor:
            return torch.cond(x.mean() > 0.5, lambda h: self.inner(h), lambda h: h * 1.5, (h,))

        return torch.cond(x.sum() > 0, inside, lambda h, x: self.other(h), (h, x))


class Decays(Net):
    def between(self, h: Tensor, x: Tensor) -> Tensor:
        def step(state: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
            state = state * self.decay.sigmoid() + now
            return state, state * self.gain

        return scan(step, torch.zeros_like(h[0]), h)[1]


class Rows(Net):
    def between(self, h: Tensor, x: Tensor) -> Tensor:
        return each(lambda row: self.inner(row).relu(), h)


class ChosenBySum(Net):
    """The choice sees how large h is: nothing can be rescaled."""

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        return torch.cond(h.sum() > 3, lambda h: h * 1.0, lambda h: h * 2.0, (h,))


class AddsOne(Net):
    def between(self, h: Tensor, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda h: h.float() + 1.0, lambda h: h.float(), (h,)).double()


class OneAlone(Net):
    """One branch singles a channel out."""

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda h: h + h[:, :1], lambda h: h * 1.0, (h,))


class InOrder(Net):
    """Every step turns the channels round: none may change places with its neighbour."""

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        return scan(lambda s, now: (s.roll(1) + now, s.clone()), torch.zeros_like(h[0]), h)[1]


def zero() -> Tensor:
    return torch.zeros((), dtype=torch.int64)


class Until(Net):
    """How often a loop runs depends on the input; what one step leaves alone, all steps leave alone."""

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        many = 2 + (x.sum() > 0).long()
        return while_loop(lambda k, h: k < many, lambda k, h: (k + 1, self.inner(h).relu()), (zero(), h))[1]


class UntilSmall(Net):
    """The question sees how large the state is: nothing can be rescaled."""

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        less = lambda h: (h @ self.inner.weight).tanh() * 0.1  # noqa: E731
        return while_loop(lambda h: h.abs().sum() > 1e-2, less, (h,))[0]


class FromZero(Net):
    """A state that starts at 0 need not stay there: the tanh of the step sees it, so that scales go."""

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        def step(k: Tensor, h: Tensor, state: Tensor) -> tuple[Tensor, ...]:
            return k + 1, h * 1.5, (self.inner(state) + h).tanh()

        return while_loop(lambda k, h, s: k < 3, step, (zero(), h, torch.zeros_like(h)))[2]


class Register(Net):
    """What is shifted in comes out two steps later: all three states move as one."""

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        def step(k: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
            return k + 1, a * self.gain, a.clone(), b + self.other(b)

        blank = torch.zeros_like(h)
        return while_loop(lambda k, a, b, c: k < 3, step, (zero(), h, blank, blank.clone()))[3]


class Rolls(Net):
    """Every step turns the channels round: all have one scale, and none may change places."""

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        return while_loop(lambda k, h: k < 3, lambda k, h: (k + 1, h.roll(1, 1)), (zero(), h))[1]


class Counts(Net):
    """The number of the step picks a channel."""

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        step = lambda k, h: (k + 1, h + h.index_select(1, k[None]))  # noqa: E731
        return while_loop(lambda k, h: k < 3, step, (zero(), h))[1]


class Asks(Net):
    """The question looks at one channel."""

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        goes_on = lambda k, h: (h[0, 0] > 0.1) & (k < 5)  # noqa: E731
        return while_loop(goes_on, lambda k, h: (k + 1, h * self.gain.sigmoid()), (zero(), h))[1]


class Chooses(Net):
    """A branch inside a loop."""

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        def step(k: Tensor, h: Tensor) -> tuple[Tensor, ...]:
            either = lambda h: self.inner(h).relu(), lambda h: self.other(h).relu()
            return k + 1, torch.cond(k > 1, *either, (h,))

        return while_loop(lambda k, h: k < 3, step, (zero(), h))[1]


class Ranks(Net):
    """Inside a loop weights have other names, so that nobody knows which scores tie: the order stays."""

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        def step(k: Tensor, h: Tensor) -> tuple[Tensor, ...]:
            return k + 1, torch.zeros_like(h).scatter(1, self.inner(h).topk(2, -1).indices, 1.0) * h

        return while_loop(lambda k, h: k < 3, step, (zero(), h))[1]


CASES = {
    Branches: {"first": "positive monomial", "inner": None},
    Nested: {"first": "positive monomial"},
    Decays: {"first": "monomial"},
    Rows: {"first": "positive monomial", "inner": "positive monomial"},
    ChosenBySum: {"first": "permutation"},
    AddsOne: {"first": "permutation"},
    OneAlone: {"first[1:4]": "permutation"},
    InOrder: {"first": "trivial"},
    Until: {"first": "positive monomial", "inner": None},
    UntilSmall: {"first": "permutation", "inner": None},
    FromZero: {"first": "permutation", "inner": None},
    Register: {"first": "positive monomial", "gain": None, "other": None},
    Rolls: {"first": "positive diagonal"},
    Counts: {"first": "trivial"},
    Asks: {"first": "trivial", "first[1:4]": "positive monomial"},
    Chooses: {"first": "positive monomial", "inner": None, "other": None},
    Ranks: {"first": "positive diagonal", "inner": "trivial"},
}
INPUT = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


LOOPS = (UntilSmall, FromZero, Register, Rolls, Counts, Asks, Chooses, Ranks)
NIGHTLY = (Nested, Rows, ChosenBySum, OneAlone, InOrder, *LOOPS)  # torch compiles every body that it runs


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.nightly if k in NIGHTLY else ()) for k in CASES]
)
def test_bodies_are_followed(kind: type[Net]) -> None:
    model = kind()
    traced = export(model, (INPUT,))
    symmetry = Symmetry(traced)  # what the rules claim, without the proof
    found = {a.name: a.group.name for a in symmetry.axes}
    assert {name: found.get(name) for name in CASES[kind]} == CASES[kind]
    weights = {name: p.detach() for name, p in model.named_parameters()}
    for x in (INPUT, -INPUT, INPUT.abs(), -INPUT.abs()):  # both branches
        (expected,) = run(traced, weights, (x,))
        for seed in range(3):
            (moved,) = run(traced, apply_element(symmetry.sample(seed), weights), (x,))
            assert float((moved - expected).abs().max()) <= 1e-12


class All(Net):
    """One of each kind; one casts."""

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        h = torch.cond(x.sum() > 0, lambda h: self.inner(h.float().double()), lambda h: h * 1.0, (h,))
        h = scan(lambda s, now: (s * self.decay + now, s.clone()), torch.zeros_like(h[0]), h)[1].relu()
        h = self.other(each(lambda row: row * self.gain, h))
        start = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda k, h: k < 2, lambda k, h: (k + 1, h * 1.5), (start, h))[1]


def test_the_bodies_of_a_module_run_in_float64() -> None:
    """Whatever they cast to; in the graph they are written out."""
    model, traced = AddsOne(), export(AddsOne(), (INPUT,))
    assert "cond" not in str(traced.graph)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    for x in (INPUT.abs(), -INPUT.abs()):
        assert torch.equal(run_module(model, Example((x,), {})).outputs[0], run(traced, weights, (x,))[0])


@pytest.mark.nightly
def test_the_graph_is_what_the_module_computes() -> None:
    """The proof runs the module itself, its bodies in float64 too, whatever they cast to."""
    model = All()
    symmetry = proved(model, Symmetry(export(model, (INPUT,))), Example((INPUT,), {}))
    assert symmetry.axis("first").group.positive and symmetry.axis("first").group.permutation
    assert not symmetry.proof.refuted and symmetry.proof.max_error <= 1e-12
    weights = {name: p.detach() for name, p in model.named_parameters()}
    with torch.no_grad():
        (found,) = run(symmetry.traced, weights, (INPUT,))
        assert torch.allclose(found, model(INPUT), rtol=0, atol=1e-6)

"""The proof that `trace` carries: what it tries, what it refutes, what it withdraws, and at which sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.prune import l1_unstructured

from intertwine import act, trace, verify
from intertwine.errors import ExportFailed, ModelError, RefutedClaim
from intertwine.graph.example import Example, drawn, other_sizes
from intertwine.graph.export import export
from intertwine.rules import RULES
from intertwine.symmetry.prove import Stage, distance
from intertwine.symmetry.sampling import sample


class Net(nn.Module):
    """Layers by name, and a forward."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.body = forward
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(self, *args, **kwargs)


def two_branches() -> Net:
    return Net(
        lambda s, x: s.o(F.relu(s.l(x)) + F.relu(s.last(torch.sigmoid(s.m(x))))),
        l=nn.Linear(5, 6),
        m=nn.Linear(5, 7),
        last=nn.Linear(7, 6),
        o=nn.Linear(6, 2),
    )


def positions() -> Net:
    return Net(
        lambda s, x: s.o(F.relu(s.l(x) + s.pos[: x.shape[1]])),
        pos=nn.Parameter(torch.randn(64, 6)),
        l=nn.Linear(3, 6),
        o=nn.Linear(6, 2),
    )


def same_function(model: nn.Module, symmetry: Any, *inputs: Any) -> None:
    model = model.double()
    for seed in range(3):
        moved = act(model, symmetry.sample(seed))
        torch.manual_seed(0)
        expected = model(*inputs).detach()
        torch.manual_seed(0)
        assert distance(expected, moved(*inputs).detach()) <= 1e-10


def test_a_wrong_rule_costs_coverage_and_never_correctness(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rule that takes the sigmoid for the identity, its axis is frozen and the others are not."""
    model, x = two_branches(), torch.randn(4, 5)
    right = trace(model, x)
    assert right.axis("m").group.name == "permutation" and not right.proof.refuted
    wrong = dataclasses.replace(RULES["sigmoid.default"], apply=lambda ctx, x: x)
    monkeypatch.setitem(RULES, "sigmoid.default", wrong)
    assert trace(model, x, prove=False).axis("m").group.name == "general linear"
    assert verify(model, x).verdict == "wrong"
    with pytest.warns(RefutedClaim, match=r"Net: acting refuted what the rules claim of m"):
        symmetry = trace(model, x)
    assert symmetry.axis("m").frozen_because.startswith("claimed by the rules, refuted by acting")
    assert list(symmetry.proof.refuted) == ["m"]
    assert symmetry.axis("l").group == right.axis("l").group
    same_function(model, symmetry, torch.randn(9, 5, dtype=torch.float64))


def test_a_proof_says_what_it_tried() -> None:
    proof = trace(two_branches(), torch.randn(4, 5)).proof
    assert [e.shapes for e in proof.examples] == [((4, 5),), ((1, 5),), ((5, 5),), ((9, 5),)]
    assert proof.dtype == torch.float64 and 0 < proof.max_error < 1e-12 and not proof.alone
    assert "proved at (float32[4, 5]), (float32[1, 5]), (float32[5, 5]), (float32[9, 5]) in float64" in str(
        proof
    )


def test_what_is_not_proved_says_so() -> None:
    symmetry = trace(two_branches(), torch.randn(4, 5), prove=False)
    assert symmetry.proof is None and "not proved" in repr(symmetry)


@pytest.mark.parametrize("prove", [True, False])
def test_positions_beyond_the_traced_length_stay(prove: bool) -> None:
    model = positions()
    symmetry = trace(model, torch.randn(2, 16, 3), prove=prove)
    assert symmetry.axis("l").group.name == "positive monomial"
    for length in (1, 8, 16, 32, 48, 64):
        same_function(model, symmetry, torch.randn(2, length, 3, dtype=torch.float64))


@pytest.mark.parametrize("prove", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_view_over_the_batch_freezes(prove: bool, batch: int) -> None:
    model = Net(lambda s, x: s.o(F.relu(s.l(x)).t().reshape(-1, 6)), l=nn.Linear(3, 6), o=nn.Linear(6, 2))
    symmetry = trace(model, torch.randn(batch, 3), prove=prove)
    for size in (1, 2, 3, 4, 7):
        same_function(model, symmetry, torch.randn(size, 3, dtype=torch.float64))


def test_a_model_of_one_size_says_so() -> None:
    model = Net(lambda s, x: s.o(F.relu(s.l(x[[0, 1]][:, :3] + x))), l=nn.Linear(3, 6), o=nn.Linear(6, 2))
    proof = trace(model, torch.randn(2, 3)).proof
    assert proof.alone and "it runs at no other size" in str(proof)


def test_other_sizes_change_what_may_change() -> None:
    example = Example.of((torch.zeros(1, 3, 32, 32), torch.zeros(1, 7, dtype=torch.long)))
    seen = []

    def runs(e: Example) -> bool:
        seen.append(e.shapes)
        (_, c, h, w), (_, t) = e.shapes
        return c == 3 and h == w and h % 4 == 0 and t <= 8

    found = other_sizes(runs, example)
    assert [e.shapes for e in found] == [((2, 3, 16, 16), (2, 6)), ((3, 3, 48, 48), (3, 8))]
    assert found[0].leaves[1].dtype == torch.long and len(seen) < 30


def test_a_large_example_runs_once_at_every_other_size() -> None:
    """Its rows change at once with its sides; a model of one batch alone is still asked for other sides."""
    example, seen = Example.of(torch.zeros(1, 3, 224, 224)), []

    def runs(e: Example) -> bool:
        seen.append(e.shapes[0])
        return e.shapes[0][1] == 3

    found = [e.shapes[0] for e in other_sizes(runs, example)]
    assert found == [(2, 3, 29, 29), (3, 3, 15, 15), (1, 3, 29, 15), (1, 3, 1, 1)]
    assert [shape for shape in seen if shape[1] == 3] == found
    alone = other_sizes(lambda e: e.shapes[0][:2] == (1, 3), example)
    assert {e.shapes[0] for e in alone} >= {(1, 3, 29, 29), (1, 3, 15, 15)}


def test_where_views_cut_sizes_are_tried_that_share_no_divisor() -> None:
    example = Example.of(torch.zeros(4, 9, dtype=torch.long))
    found = other_sizes(lambda e: e.shapes[0][1] <= 40, example, sizes=(4, 6, 9, 25), cuts=True)
    assert ((11, 7),) in [e.shapes for e in found]
    short = other_sizes(lambda e: e.shapes[0][1] < 7, Example.of(torch.zeros(4, 3)), sizes=(3, 4), cuts=True)
    assert all(e.shapes[0][1] < 7 for e in short) and ((7, 5),) in [e.shapes for e in short]


def test_what_is_frozen_altogether_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Net(lambda s, x: s.o(s.l(x).cumsum(1)), l=nn.Linear(5, 6), o=nn.Linear(6, 2))
    sizes: list[Any] = []

    def counted(model: nn.Module, args: Any, kwargs: Any) -> Any:
        sizes.append(args[0].shape)
        return export(model, args, kwargs)

    monkeypatch.setattr("intertwine.symmetry.tracing.export", counted)
    assert trace(model, torch.zeros(2, 5), prove=False).settled and len(sizes) == 1
    moving = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2))
    assert not trace(moving, torch.zeros(2, 5), prove=False).settled and len(sizes) == 3


def test_a_frugal_stage_says_the_same() -> None:
    """Without copies of the weights, each raised and moved when an op reads it: the same errors."""
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6, 4)
    ).bfloat16()
    example = Example.of(torch.randn(2, 3, 3, 3).bfloat16())
    symmetry = trace(model, example)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    stages = [Stage(model, list(symmetry.shapes), example, memory=m) for m in (10**9, 0)]
    assert [s.frugal for s in stages] == [False, True]
    plain, frugal = (s.expected(example).outputs[0] for s in stages)
    assert plain.dtype == torch.float64 and torch.equal(plain, frugal)
    element = symmetry.sample(0)
    assert max(e for s in stages for e in s.errors(element, [example])) < 1e-12
    wrong = dataclasses.replace(element, log_scale=element.log_scale + 0.1)
    assert min(e for s in stages for e in s.errors(wrong, [example])) > 1e-3
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


class Writes(nn.Module):
    """Batch norm in training mode inside forward, and a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.l, self.o, self.norm = nn.Linear(5, 6), nn.Linear(6, 2), nn.BatchNorm1d(6)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm
        h = F.batch_norm(self.l(x), n.running_mean, n.running_var, n.weight, n.bias, training=True)
        self.seen.add_(h.relu().mean(0))
        return self.o(h.relu())


def test_buffers_that_forward_writes_move_along() -> None:
    model, x = Writes(), torch.randn(4, 5)
    symmetry = trace(model, x)
    axis = symmetry.axis("l")
    assert axis.group.permutation
    assert {"seen", "norm.running_mean", "norm.running_var"} <= {m.param for m in axis.members}
    assert torch.equal(model.seen, torch.zeros(6))


@pytest.mark.parametrize(
    ("draw", "group"),
    [
        (lambda h: F.dropout(h, 0.5, training=True), "positive diagonal"),
        (lambda h: F.rrelu(h, training=True), "positive diagonal"),
        (lambda h: h * torch.rand(h.shape[0], 1), "positive monomial"),
        (lambda h: F.alpha_dropout(h, 0.5, training=True), "trivial"),
    ],
)
def test_random_ops_hold_draw_by_draw(draw: Callable[[Tensor], Tensor], group: str) -> None:
    model = Net(lambda s, x: s.o(draw(F.relu(s.l(x)))), l=nn.Linear(5, 6), o=nn.Linear(6, 2))
    state = torch.get_rng_state()
    symmetry = trace(model, torch.randn(4, 5, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(state, torch.get_rng_state())
    assert symmetry.axis("l").group.name == group
    same_function(model, symmetry, torch.randn(4, 5, dtype=torch.float64))


def by_hand(s: Any, x: Tensor) -> Tensor:
    """An LSTM, token by token."""
    h = c = x.new_zeros(len(x), 4)
    for now in x.unbind(1):
        i, f, g, o = (s.read(now) + s.keep(h)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return s.o(h)


@pytest.mark.parametrize("prove", [True, False])
def test_a_loop_of_more_steps_slices_as_before(prove: bool) -> None:
    model = Net(by_hand, read=nn.Linear(5, 16), keep=nn.Linear(4, 16), o=nn.Linear(4, 2))
    assert trace(model, torch.randn(2, 4, 5), prove=prove).axis("read").group.name == "signed permutation"


# -- nothing crashes, nothing misleads -----------------------------------------------------------------------


def test_entries_that_a_mask_selects_stay_and_so_does_the_mask() -> None:
    model = Net(
        lambda s, x: (lambda h, k: s.o(F.relu(k)).sum() + h[h > 0].sum())(s.l(x), s.m(x)),
        l=nn.Linear(5, 6),
        m=nn.Linear(5, 6),
        o=nn.Linear(6, 2),
    )
    symmetry = trace(model, torch.randn(4, 5))
    assert "a mask made of it picks entries" in symmetry.axis("l").frozen_because
    assert symmetry.axis("m").group.name == "positive monomial"


class Odd(nn.Linear):
    """State that is no tensor."""

    def get_extra_state(self) -> Any:
        return {"version": 3, "names": ["a"]}

    def set_extra_state(self, state: Any) -> None:
        pass


def test_odd_state_is_left_alone() -> None:
    model = Net(
        lambda s, x: s.o(F.relu(s.l(x)) * s.table.to(x.dtype)),
        l=Odd(5, 6),
        o=nn.Linear(6, 2),
        table=torch.arange(6, dtype=torch.int8),
    )
    symmetry = trace(model, torch.randn(4, 5))
    assert symmetry.axis("l").group.name == "positive diagonal"
    model = Net(
        lambda s, x: s.o(F.relu(s.l(x)) * s.phase.abs()),
        l=nn.Linear(5, 6),
        o=nn.Linear(6, 2),
        phase=nn.Parameter(torch.randn(6, dtype=torch.complex64)),
    )
    assert trace(model, torch.randn(4, 5)).axis("l").group.name == "positive diagonal"


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize(
    "hooked",
    [nn.utils.weight_norm, nn.utils.spectral_norm, lambda linear: l1_unstructured(linear, "weight", 0.4)],
)
def test_weights_that_hooks_compute_are_copied(hooked: Callable[[nn.Module], nn.Module]) -> None:
    model = nn.Sequential(hooked(nn.Linear(3, 6)), nn.ReLU(), nn.Linear(6, 2)).double().eval()
    x = torch.randn(4, 3, dtype=torch.float64)
    before = model(x)  # what the hook leaves behind has a gradient, and deepcopy refuses it
    moved = act(model, trace(model, x).sample(0))
    torch.testing.assert_close(moved(x), before)
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), moved.parameters(), strict=True))


def test_models_without_weights_or_without_values() -> None:
    assert trace(nn.Sequential(nn.ReLU()), torch.randn(2, 3)).axes == ()
    with pytest.raises(ModelError, match="lazy module"):
        trace(nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)), torch.randn(2, 3))
    empty = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to("meta")
    with pytest.raises(ModelError, match="meta device"):
        trace(empty, torch.randn(2, 3, device="meta"))
    symmetry = trace(empty, torch.randn(2, 3, device="meta"), prove=False)
    assert symmetry.axis("0").group.name == "positive monomial"


def test_gradients_inside_forward_are_not_called_control_flow() -> None:
    def forward(s: Net, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(s.o(F.relu(s.l(x))).sum(), x)[0]

    model = Net(forward, l=nn.Linear(5, 6), o=nn.Linear(6, 2))
    with pytest.raises(ExportFailed) as caught:
        trace(model, torch.randn(4, 5))
    assert "gradients" in str(caught.value) and "control flow" not in str(caught.value)


def test_keyword_inputs() -> None:
    layers = {"l": nn.Linear(5, 6), "o": nn.Linear(6, 2)}
    model = Net(lambda s, x=None, *, gate: s.o(F.relu(s.l(x)) * gate[:, None]), **layers)
    inputs = {"gate": torch.randn(4), "x": torch.randn(4, 5)}
    for symmetry in (trace(model, inputs), trace(model, (), kwargs=inputs)):
        assert symmetry.axis("l").group.name == "positive monomial"
    assert verify(model, (), kwargs=inputs).exact and verify(model, inputs).exact
    assert verify(model, inputs["x"], kwargs={"gate": inputs["gate"]}).exact


def test_one_moved_weight_is_proved() -> None:
    summed = Net(lambda s, x: s.l(x).sum(-1), l=nn.Linear(5, 6))
    tied = Net(lambda s, x: F.linear(F.linear(x, s.w), s.w.t()), w=nn.Parameter(torch.randn(6, 5)))
    for model in (summed, tied):
        report = verify(model, torch.randn(4, 5))
        assert report.exact and report.parameter_coverage > 0


class Caches(nn.Module):
    """Keeps in eval mode what it once computed from a weight, as attention biases of vision models do."""

    def __init__(self) -> None:
        super().__init__()
        self.l, self.o = nn.Linear(5, 6), nn.Linear(6, 2)
        self.gain = nn.Parameter(torch.randn(6))
        self.kept: dict[str, Tensor] = {}

    def train(self, mode: bool = True) -> Caches:
        super().train(mode)
        if mode:
            self.kept = {}
        return self

    def forward(self, x: Tensor) -> Tensor:
        gain = self.gain * 2 if self.training else self.kept.setdefault("gain", self.gain * 2)
        return self.o(F.relu(self.l(x)) * gain)


def test_what_a_model_has_cached_does_not_mislead() -> None:
    model, x = Caches().double().eval(), torch.randn(4, 5, dtype=torch.float64)
    with torch.no_grad():
        model(x)
    symmetry = trace(model, x)
    assert symmetry.axis("l").group.permutation and not symmetry.proof.refuted
    assert "gain" in {m.param for m in symmetry.axis("l").members}
    same_function(model, symmetry, x)
    assert "gain" in model.kept


def test_rounding_that_a_model_blows_up_refutes_nothing() -> None:
    """A chaotic map turns the last bit into everything: no axis is at fault for that, a wrong rule is."""

    def forward(s: Net, x: Tensor) -> Tensor:
        h = torch.sigmoid(s.o(F.relu(s.l(x))))
        for _ in range(40):
            h = 3.99 * h * (1 - h)
        return h

    torch.manual_seed(0)  # some weights land where the map is tame
    model = Net(forward, l=nn.Linear(5, 6), o=nn.Linear(6, 2))
    symmetry = trace(model, torch.randn(4, 5))
    assert symmetry.proof.max_error > 1e-8 and not symmetry.proof.refuted
    assert symmetry.axis("l").group.name == "positive monomial"


@pytest.mark.parametrize("shape", [(0, 5), (2, 0, 5)])
def test_an_empty_example_has_no_other_size(shape: tuple[int, ...]) -> None:
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2))
    with pytest.raises(ModelError, match="an example without entries proves nothing") as error:
        trace(model, torch.zeros(shape))
    assert "one row at least" in str(error.value)
    symmetry = trace(model, torch.zeros(shape), prove=False)
    same_function(model, symmetry, torch.randn(3, 5, dtype=torch.float64))


class Branches(nn.Module):
    """One function of long inputs, another of short ones."""

    def __init__(self, long: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self.l, self.o, self.long = nn.Linear(5, 6), nn.Linear(6, 3), long

    def forward(self, x: Tensor) -> Tensor:
        return self.o(self.l(x).relu() if self.long(x) else self.l(x).tanh())


@pytest.mark.parametrize("prove", [True, False])
@pytest.mark.parametrize(
    "long",
    [
        lambda x: x.shape[1] > 4,
        lambda x: x.shape[1] > 8,
        lambda x: x.shape[1] % 3 == 0,
        lambda x: x.shape[1] == 6,
        lambda x: len(x) > 3,
        lambda x: len(x) > 1,
    ],
)
def test_a_forward_that_asks_how_long_its_input_is(long: Callable[[Tensor], bool], prove: bool) -> None:
    torch.manual_seed(0)
    model = Branches(long)
    symmetry = trace(model, torch.randn(2, 6, 5), prove=prove)
    assert symmetry.axis("l").group.name == "permutation"  # what relu and tanh have in common
    for shape in [(1, 1, 5), (2, 6, 5), (4, 9, 5), (1, 13, 5)]:
        same_function(model, symmetry, torch.randn(shape, dtype=torch.float64))


class Table(nn.Module):
    """Positions from a table of which another part is read at every length."""

    def __init__(self, rows: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__()
        self.rows, self.table, self.inner = rows, nn.Parameter(torch.randn(64, 5)), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.rows(self.inner(self.table), x.shape[1]) + self.table.mean(0)


@pytest.mark.parametrize("prove", [True, False])
@pytest.mark.parametrize(
    "rows", [lambda t, n: t[:n], lambda t, n: t[-n:], lambda t, n: t[: n // 2].sum(0), lambda t, n: t[n]]
)
@pytest.mark.parametrize("batch", [2, 1500])  # of a large example only smaller sizes are tried
def test_positions_that_no_tried_size_reads_stay(
    rows: Callable[[Tensor, int], Tensor], prove: bool, batch: int
) -> None:
    torch.manual_seed(0)
    model = Table(rows)
    symmetry = trace(model, torch.randn(batch, 4, 5), prove=prove)
    for length in (4, 11, 40, 63):
        same_function(model, symmetry, torch.randn(2, length, 5, dtype=torch.float64))


def test_rows_that_a_fixed_slice_leaves_out_still_move() -> None:
    """A slice that is the same at every size takes no symmetry away."""

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(5, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.outer(self.inner(x).relu()) + nn.functional.linear(x, self.inner.weight[:3])

    model = Shared()
    symmetry = trace(model, torch.randn(2, 5))
    assert any(axis.group.name == "positive monomial" and axis.size == 3 for axis in symmetry.axes)
    same_function(model, symmetry, torch.randn(7, 5, dtype=torch.float64))


def test_rows_of_tokens_are_not_alike_at_other_sizes() -> None:
    """Of one row, repeated, a claim about what mixes rows would never be refuted."""

    def mixing_rows(net: Net, ids: Tensor) -> Tensor:
        h = net.table(ids).relu()
        return net.o(h.transpose(0, 2).reshape(h.shape))

    torch.manual_seed(0)
    example = Example.of(torch.tensor([[4, 7, 1]]))
    for other in other_sizes(lambda _: True, example):
        (ids,) = other.args
        assert set(ids.unique().tolist()) <= {1, 4, 7}
        assert len(ids) < 3 or len(ids.unique(dim=0)) > 1
    only = Example.of(torch.full((1, 3), 5))  # of one token, those before it are known to be tokens too
    assert any(len(other.args[0].unique()) > 1 for other in other_sizes(lambda _: True, only))
    picky = other_sizes(lambda other: bool((other.args[0] == 5).all()), only)  # and if not, it is kept
    assert picky and all((other.args[0] == 5).all() for other in picky)
    model = Net(mixing_rows, table=nn.Embedding(8, 4), o=nn.Linear(4, 3))
    symmetry = trace(model, example)
    for rows, length in ((1, 3), (3, 2), (4, 3), (5, 6)):
        same_function(model, symmetry, torch.randint(8, (rows, length)))


def test_the_first_element_leaves_nothing_where_it_was() -> None:
    """Of two places, fair draws are the identity half of the time: what stays is not tried."""
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 3))
    structure = trace(model, torch.randn(2, 3)).structure
    orbit = structure.classes.orbit
    several = np.array([(orbit == o).sum() == 2 for o in orbit])
    assert several.sum() == 4
    for seed in range(8):
        element = sample(structure, np.random.default_rng(seed), restless=True)
        assert (element.relabel != np.arange(structure.classes.count))[several].all()
        assert (element.sign < 0).any()


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64]
)
@pytest.mark.parametrize("entries", [(0, 0), (1, 1), (3, 3), (1, 7)])
def test_whole_numbers_of_every_kind_are_drawn(dtype: torch.dtype, entries: tuple[int, int]) -> None:
    x, generator = torch.tensor(entries).to(dtype), torch.Generator().manual_seed(0)
    new = drawn(x, "their neighbours", generator)
    assert (new.dtype, new.shape) == (x.dtype, x.shape) and int(new.long().max()) <= max(1, *entries)


def test_a_lone_time_is_drawn_without_counting_up_to_it() -> None:
    assert drawn(torch.full((2,), 10**15), "their neighbours", torch.Generator()).dtype == torch.long

"""The list of symmetries that hold, item by item: each is in the group, or it is a listed open question.

Every model is small and in float64; what is claimed is acted with, and must leave the output to 1e-10.
`OPEN` names what holds and is not claimed (or not all of it): docs/theory.md lists the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import Symmetry, act
from intertwine.graph.export import export
from intertwine.symmetry.transform import EVERY_PART

THEORY = Path(__file__).parents[2] / "docs" / "theory.md"


class Net(nn.Module):
    """Parts by name, and what is done with them."""

    def __init__(
        self, forward: Callable[[Any, Tensor], Tensor], parts: dict[str, nn.Module | Tensor]
    ) -> None:
        super().__init__()
        self.does = forward
        for name, part in parts.items():
            setattr(self, name, part if isinstance(part, nn.Module) else nn.Parameter(part))

    def forward(self, x: Tensor) -> Tensor:
        return self.does(self, x)


@dataclass(frozen=True)
class Case:
    """A model, an input, and the groups of the axes whose names begin so."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    groups: dict[str, str]


def net(forward: Callable[[Any, Tensor], Tensor], **parts: tuple[int, ...] | Callable[[], nn.Module]) -> Any:
    """A maker of `Net`: layers by function, parameters by shape."""

    def make() -> Net:
        return Net(forward, {n: p() if callable(p) else torch.randn(p) for n, p in parts.items()})

    return make


def layer(*args: int) -> Callable[[], nn.Module]:
    return lambda: nn.Linear(*args)


def one(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64)


def whitened(h: Tensor) -> Tensor:
    return h @ torch.linalg.inv(h.mT @ h + 0.1 * one(4))


def heads(mix: Callable[[Any, Tensor, Tensor, Tensor], Tensor], **parts: Any) -> Any:
    """Two heads of three channels; mix says what queries, keys and values become."""

    def forward(m: Any, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (2, 3)).transpose(1, 2) for f in (m.q, m.k, m.v))
        return m.o(mix(m, q, k, v).transpose(1, 2).flatten(2))

    return net(forward, q=layer(5, 6), k=layer(5, 6), v=layer(5, 6), o=layer(6, 2), **parts)


def routed(m: Any, x: Tensor) -> Tensor:
    """All experts, weighted by the two best scores."""
    weight, choice = m.router(x).softmax(-1).topk(2, -1)
    gate = torch.zeros(x.shape[0], 3).to(x).scatter(1, choice, weight)
    hidden = torch.einsum("bi,eih->beh", x, m.up).relu()
    return torch.einsum("beh,eho,be->bo", hidden, m.down, gate)


def picked(m: Any, x: Tensor) -> Tensor:
    """The matrices of the two best experts, looked up for every row."""
    weight, choice = m.router(x).softmax(-1).topk(2, -1)
    hidden = torch.einsum("bi,bkih->bkh", x, m.up[choice]).relu()
    return torch.einsum("bkh,bkho,bk->bo", hidden, m.down[choice], weight / weight.sum(-1, keepdim=True))


def marked(m: Any, x: Tensor) -> Tensor:
    """All experts, those of the two best scores marked."""
    choice = m.router(x).topk(2, -1).indices
    hidden = torch.einsum("bi,eih->beh", x, m.up).relu()
    return torch.einsum("beh,eho,be->bo", hidden, m.down, F.one_hot(choice, 3).sum(1).to(x))


def winners(m: Any, x: Tensor) -> Tensor:
    """The two largest features alone, as in a sparse autoencoder."""
    feature = m.first(x)
    best, place = feature.topk(2, -1)
    return m.last(torch.zeros_like(feature).scatter(-1, place, best.relu()))


def soft(m: Any, x: Tensor) -> Tensor:
    hidden = torch.einsum("bi,eih->beh", x, m.up).relu()
    return torch.einsum("beh,eho,be->bo", hidden, m.down, m.router(x).softmax(-1))


def listed(m: Any, x: Tensor) -> Tensor:
    gate = m.router(x).softmax(-1)
    return gate[:, :1] * m.down0(m.up0(x).relu()) + gate[:, 1:] * m.down1(m.up1(x).relu())


def with_memory(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    keys, values = (t.expand(k.shape[0], -1, -1, -1) for t in (m.keys, m.values))
    return (q @ torch.cat([k, keys], 2).mT).softmax(-1) @ torch.cat([v, values], 2)


def states(m: Any, x: Tensor) -> Tensor:
    """A diagonal state space: three states a channel."""
    h, out = torch.zeros(x.shape[0], 4, 3).to(x), []
    for u in m.first(x).unbind(1):
        h = h * m.decay.sigmoid() + u[..., None] * m.write
        out.append((h * m.read).sum(-1))
    return m.last(torch.stack(out, 1))


def nearest(m: Any, x: Tensor) -> Tensor:
    return m.last(m.book[torch.cdist(m.first(x), m.book).argmin(-1)])


def zeroed(m: Any, x: Tensor) -> Tensor:
    h = m.first(x).relu().clone()
    h[x.sum(-1) > 0] = 0
    return m.last(h)


def by_expert(m: Any, x: Tensor) -> Tensor:
    """As lists of experts are written by hand: each takes the rows that chose it, however many."""
    weight, choice = m.router(x).topk(1, -1)
    out = torch.zeros(x.shape[0], 2).to(x)
    for k, (up, down) in enumerate(((m.up0, m.down0), (m.up1, m.down1))):
        rows = torch.where(choice[:, 0] == k)[0]
        out = out.index_add(0, rows, down(up(x[rows]).relu()) * weight[rows])
    return out


def by_head(m: Any, x: Tensor) -> Tensor:
    q, k, v = (torch.einsum("bti,hic->bhtc", x, w) for w in (m.q, m.k, m.v))
    return torch.einsum("bhtc,hco->bto", (q @ k.mT).softmax(-1) @ v, m.o)


ROWS, TOKENS, PIXELS = (4, 5), (2, 6, 5), (2, 3, 3, 3)
CASES = {
    "recurrent layers": Case(
        net(lambda m, x: m.last(m.rnn(m.first(x).relu())[0]), first=layer(5, 4), last=layer(6, 2),
            rnn=lambda: nn.LSTM(4, 3, 2, bidirectional=True, batch_first=True)),
        TOKENS, {"first": "positive monomial", "rnn.weight_ih_l0": "signed permutation"},
    ),
    "recurrent cells": Case(
        net(lambda m, x: m.last(m.cell(x)), cell=lambda: nn.GRUCell(5, 3), last=layer(3, 2)),
        ROWS, {"cell.weight_ih": "signed permutation"},
    ),
    "stream before an RMS norm with gains": Case(
        net(lambda m, x: m.last(m.norm(m.first(x))), first=layer(5, 6), last=layer(6, 2),
            norm=lambda: nn.RMSNorm(6)),
        ROWS, {"first": "monomial"},
    ),
    "stream before a layer norm": Case(
        net(lambda m, x: m.last(F.layer_norm(m.first(x), (6,))), first=layer(5, 6), last=layer(6, 2)),
        ROWS, {"first": "permutation"},
    ),
    "experts in one tensor, mixed": Case(
        net(soft, router=layer(5, 3), up=(3, 5, 4), down=(3, 4, 2)), ROWS,
        {"router": "permutation", "up.2": "positive monomial in each of 3 blocks"},
    ),
    "experts chosen by topk": Case(
        net(routed, router=layer(5, 3), up=(3, 5, 4), down=(3, 4, 2)), ROWS,
        {"router": "permutation", "up.2": "positive monomial in each of 3 blocks"},
    ),
    "experts that are looked up": Case(
        net(picked, router=layer(5, 3), up=(3, 5, 4), down=(3, 4, 2)), ROWS,
        {"router": "permutation", "up.2": "positive monomial in each of 3 blocks"},
    ),
    "experts that are marked": Case(
        net(marked, router=layer(5, 3), up=(3, 5, 4), down=(3, 4, 2)), ROWS,
        {"router": "permutation", "up.2": "positive monomial in each of 3 blocks"},
    ),
    "the largest features": Case(
        net(winners, first=layer(5, 4), last=layer(4, 2)), ROWS, {"first": "permutation"},
    ),
    "experts that are modules": Case(
        net(listed, router=layer(5, 2), up0=layer(5, 4), up1=layer(5, 4), down0=layer(4, 2),
            down1=layer(4, 2)),
        ROWS, {"up0": "positive monomial", "up1": "positive monomial"},
    ),
    "heads with gains": Case(
        heads(lambda m, q, k, v: ((q * m.gain) @ k.mT).softmax(-1) @ v, gain=(2, 1, 1)), TOKENS,
        {"q": "general linear", "q/blocks": "monomial", "v": "general linear"},
    ),
    "talking heads": Case(
        heads(lambda m, q, k, v: m.talk((q @ k.mT).movedim(1, -1)).movedim(-1, 1).softmax(-1) @ v,
              talk=layer(2, 2)),
        TOKENS, {"q": "general linear", "v": "general linear"},
    ),
    "a contraction written as a sum of products": Case(
        net(lambda m, x: (m.first(x) * m.other(x)).sum(-1), first=layer(5, 6), other=layer(5, 6)),
        ROWS, {"first": "general linear"},
    ),
    "lengths written as a sum of products": Case(
        net(lambda m, x: m.last((h := m.first(x)) / (h * h).sum(-1, keepdim=True)), first=layer(5, 6),
            last=layer(6, 2)),
        ROWS, {"first": "orthogonal"},
    ),
    "RMS norms written out": Case(
        net(lambda m, x: m.last((h := m.first(x)) * (h.pow(2).mean(-1, keepdim=True) + 0.1).rsqrt()),
            first=layer(5, 6), last=layer(6, 2)),
        ROWS, {"first": "orthogonal"},
    ),
    "sums of whole numbers": Case(
        net(lambda m, x: m.last(m.first(9 * x).sum(1, dtype=torch.int64).to(x)), first=layer(5, 4),
            last=layer(4, 2)),
        TOKENS, {"first": "permutation"},
    ),
    "tables of which products are summed": Case(
        net(lambda m, x: (m.first(x.abs().long() % 7) * m.other).sum(-1), other=(5, 6),
            first=lambda: nn.Embedding(7, 6)),
        ROWS, {"first": "general linear"},
    ),
    "groups of one output": Case(
        lambda: nn.Sequential(nn.Conv1d(4, 6, 1), nn.Conv1d(6, 3, 1, groups=3), nn.ReLU(),
                              nn.Conv1d(3, 2, 1)),
        (2, 4, 5), {"0": "general linear", "1": "positive monomial"},
    ),
    "weights stacked by head": Case(
        net(by_head, q=(2, 5, 3), k=(2, 5, 3), v=(2, 5, 3), o=(2, 3, 2)), TOKENS,
        {"q": "permutation", "q.2": "general linear in each of 2 blocks",
         "v.2": "general linear in each of 2 blocks"},
    ),
    "grouped linear chains": Case(
        lambda: nn.Sequential(nn.Conv1d(4, 6, 1), nn.Conv1d(6, 4, 1, groups=2), nn.Conv1d(4, 2, 1)),
        (2, 4, 5), {"0": "general linear", "1": "general linear"},
    ),
    "memory keys beside the keys": Case(
        heads(with_memory, keys=(2, 4, 3), values=(2, 4, 3)), TOKENS,
        {"q/blocks": "permutation", "q": "general linear in each of 2 blocks",
         "v": "general linear in each of 2 blocks"},
    ),
    "outer products": Case(
        net(lambda m, x: m.last((m.first(x)[..., None] * m.other(x)[..., None, :]).flatten(1)),
            first=layer(5, 3), other=layer(5, 4), last=layer(12, 2)),
        ROWS, {"first": "general linear", "other": "general linear"},
    ),
    "norms of queries and keys": Case(
        heads(lambda m, q, k, v: (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT).softmax(-1) @ v),
        TOKENS, {"q": "orthogonal", "q/blocks": "permutation", "v": "general linear"},
    ),
    "lengths of parts": Case(
        net(lambda m, x: m.last(m.first(x).unflatten(-1, (4, 3)).norm(dim=-1).relu()), first=layer(5, 12),
            last=layer(4, 2)),
        ROWS, {"first": "orthogonal", "first/blocks": "permutation"},
    ),
    "lengths of parts that cross": Case(
        net(lambda m, x: m.last(F.normalize(F.normalize(m.first(x).unflatten(-1, (4, 3)), dim=-1).flatten(1)
            .unflatten(-1, (3, 4)), dim=-1).flatten(1)), first=layer(5, 12), last=layer(12, 2)),
        ROWS, {},
    ),
    "cosines": Case(
        net(lambda m, x: F.normalize(m.first(x), dim=-1) @ F.normalize(m.book, dim=-1).T,
            first=layer(5, 6), book=(3, 6)),
        ROWS, {"first": "orthogonal"},
    ),
    "distances to a codebook": Case(
        net(lambda m, x: m.last((-torch.cdist(m.first(x), m.book)).softmax(-1) @ m.book),
            first=layer(5, 6), book=(7, 6), last=layer(6, 2)),
        ROWS, {"first": "orthogonal", "book.in": "permutation"},
    ),
    "the nearest entry of a codebook": Case(
        net(nearest, first=layer(5, 6), book=(7, 6), last=layer(6, 2)), ROWS, {"first": "orthogonal"},
    ),
    "norms over one channel": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.GroupNorm(4, 4), nn.ReLU(), nn.Conv2d(4, 2, 1)),
        PIXELS, {"0": "monomial"},
    ),
    "diagonal state spaces": Case(
        net(states, first=layer(5, 4), last=layer(4, 2), decay=(4, 3), write=(4, 3), read=(4, 3)),
        (2, 3, 5), {"first": "monomial (4 scalings, 4 signs)", "decay.1": "permutation in each of 4 blocks"},
    ),
    "axes of width 1": Case(
        lambda: nn.Sequential(nn.Linear(5, 1), nn.ReLU(), nn.Linear(1, 3)), ROWS, {"0": "positive diagonal"},
    ),
    "axes of width 1 between linear maps": Case(
        lambda: nn.Sequential(nn.Linear(5, 1), nn.Linear(1, 3)), ROWS, {"0": "nonzero diagonal"},
    ),
    "images of one channel": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 1, 3), nn.BatchNorm2d(1), nn.Tanh(), nn.Conv2d(1, 2, 1)).eval(),
        PIXELS, {"0": "nonzero diagonal (1 scaling, 2 signs)"},
    ),
    "lists of numbers as indices": Case(
        net(lambda m, x: m.last(m.first(x).relu()[:, [2, 0]]), first=layer(5, 4), last=layer(2, 2)),
        ROWS, {"first[0:3]": "positive monomial"},
    ),
    "Fourier transforms": Case(
        net(lambda m, x: m.last(torch.fft.rfft(m.first(x), dim=1).abs()), first=layer(5, 4),
            last=layer(4, 2)),
        TOKENS, {"first": "monomial"},
    ),
    "inverses": Case(
        net(lambda m, x: m.last(m.first(x) @ torch.linalg.inv(m.middle)), first=layer(5, 4), middle=(4, 4),
            last=layer(4, 2)),
        ROWS, {"first": "general linear", "middle": "general linear"},
    ),
    "systems of equations": Case(
        net(lambda m, x: m.last(torch.linalg.solve(m.middle, m.first(x).relu().mT).mT), first=layer(5, 4),
            middle=(4, 4), last=layer(4, 2)),
        ROWS, {"first": "positive monomial", "middle.1": "general linear"},
    ),
    "exponentials of matrices": Case(
        net(lambda m, x: m.last(m.first(x) @ torch.matrix_exp(m.middle)), first=layer(5, 4), middle=(4, 4),
            last=layer(4, 2)),
        ROWS, {"first": "general linear"},
    ),
    "exponentials between functions": Case(
        net(lambda m, x: m.last((m.first(x).relu() @ torch.matrix_exp(m.middle)).tanh()), first=layer(5, 4),
            middle=(4, 4), last=layer(4, 2)),
        ROWS, {"first": "permutation"},
    ),
    "traces": Case(
        net(lambda m, x: m.last(m.first(x).relu()) * m.middle.trace(), first=layer(5, 4), middle=(3, 3),
            last=layer(4, 2)),
        ROWS, {"first": "positive monomial", "middle": "general linear"},
    ),
    "diagonals of outer products": Case(
        net(lambda m, x: m.last(torch.einsum("bii->bi", m.first(x)[:, :, None] * m.other(x)[:, None])),
            first=layer(5, 4), other=layer(5, 4), last=layer(4, 2)),
        ROWS, {"first": "monomial"},
    ),
    "gains on a diagonal": Case(
        net(lambda m, x: m.last(m.first(x) @ m.gain.diag()), first=layer(5, 4), gain=(4,), last=layer(4, 2)),
        ROWS, {"first": "monomial"},
    ),
    "complex numbers": Case(
        net(lambda m, x: m.last(torch.complex(m.first(x), m.other(x)).abs()), first=layer(5, 4),
            other=layer(5, 4), last=layer(4, 2)),
        ROWS, {"first": "monomial"},
    ),
    "real parts of Fourier transforms": Case(
        net(lambda m, x: m.last(torch.fft.fft(m.first(x), dim=1).real), first=layer(5, 4), last=layer(4, 2)),
        TOKENS, {"first": "general linear"},
    ),
    "covariances that are inverted": Case(
        net(lambda m, x: m.last(whitened(m.first(x))), first=layer(5, 4), last=layer(4, 2)),
        ROWS, {"first": "orthogonal"},
    ),
    "the same after a function": Case(
        net(lambda m, x: m.last(whitened(m.first(x).relu())), first=layer(5, 4), last=layer(4, 2)),
        ROWS, {"first": "permutation"},
    ),
    "determinants of covariances": Case(
        net(lambda m, x: m.last(x) * (m.first(x).mT @ m.first(x) + one(4)).logdet(), first=layer(5, 4),
            last=layer(5, 2)),
        ROWS, {"first": "orthogonal"},
    ),
    "determinants of a matrix": Case(
        net(lambda m, x: m.last(m.first(x).relu()) * m.middle.det(), first=layer(5, 4), middle=(3, 3),
            last=layer(4, 2)),
        ROWS, {"first": "positive monomial", "middle": "general linear"},
    ),
    "a matrix beside the identity": Case(
        net(lambda m, x: m.last(m.first(x) @ (m.middle + one(4))), first=layer(5, 4), middle=(4, 4),
            last=layer(4, 2)),
        ROWS, {"first": "general linear"},
    ),
    "lengths beside the identity": Case(
        net(lambda m, x: m.last(x) * (m.middle @ m.middle.mT + one(4)).logdet(), middle=(4, 3),
            last=layer(5, 2)),
        ROWS, {"middle": "orthogonal", "middle.in": "orthogonal"},
    ),
    "scalar products of one layer with itself": Case(
        net(lambda m, x: (h := m.first(x)) @ h.mT, first=layer(5, 4)), ROWS, {"first": "orthogonal"},
    ),
    "queries that are the keys": Case(
        net(lambda m, x: m.last(((q := m.first(x)) @ q.mT).softmax(-1) @ x), first=layer(5, 4),
            last=layer(5, 2)),
        TOKENS, {"first": "orthogonal"},
    ),
    "rotations as exponentials": Case(
        net(lambda m, x: m.last(m.first(x) @ torch.matrix_exp(m.middle - m.middle.T)), first=layer(5, 4),
            middle=(4, 4), last=layer(4, 2)),
        ROWS, {"first": "orthogonal"},
    ),
    "a tied linear autoencoder": Case(
        net(lambda m, x: x @ m.middle @ m.middle.T, middle=(5, 3)), ROWS, {"middle.in": "orthogonal"},
    ),
    "singular values": Case(
        net(lambda m, x: m.last(x) * torch.linalg.svdvals(m.middle)[:2], middle=(4, 3), last=layer(5, 2)),
        ROWS, {"middle": "orthogonal", "middle.1": "orthogonal"},
    ),
    "heads and outputs in one product": Case(
        net(lambda m, x: torch.einsum("bhts,bshe,hed->btd", m.mix[None] + 0 * x.sum(),
                                      torch.einsum("btd,hde->bthe", x, m.v), m.o),
            mix=(2, 6, 6), v=(2, 5, 3), o=(2, 3, 4)),
        TOKENS, {"v.2": "general linear in each of 2 blocks"},
    ),
    "stacks that meet themselves": Case(
        net(lambda m, x: torch.einsum("bhe,che->bc", *[torch.einsum("bd,hde->bhe", x, m.u)] * 2),
            u=(3, 5, 4)),
        ROWS, {"u": "permutation", "u.2": "orthogonal in each of 3 blocks"},
    ),
    "rows picked by a mask": Case(
        net(lambda m, x: m.last(m.first(x).relu()[x.sum(-1) > 0]), first=layer(5, 4), last=layer(4, 2)),
        TOKENS, {"first": "positive monomial"},
    ),
    "rows set to zero by a mask": Case(
        net(zeroed, first=layer(5, 4), last=layer(4, 2)), TOKENS, {"first": "positive monomial"},
    ),
    "rows that two equal masks pick": Case(
        net(lambda m, x: m.last(m.first(x).relu()[x.sum(-1) > 0]) + m.other(x)[x.sum(-1) > 0],
            first=layer(5, 4), other=layer(5, 2), last=layer(4, 2)),
        TOKENS, {"first": "positive monomial"},
    ),
    "experts that run on their own rows": Case(
        net(by_expert, router=layer(5, 2), up0=layer(5, 4), up1=layer(5, 4), down0=layer(4, 2),
            down1=layer(4, 2)),
        ROWS, {"up0": "positive monomial", "up1": "positive monomial"},
    ),
    "determinants": Case(
        net(lambda m, x: m.last(torch.linalg.det(m.first(x).unflatten(-1, (2, 2)))[:, None]),
            first=layer(5, 4), last=layer(1, 2)),
        ROWS, {},
    ),
}  # fmt: skip

# Holds, and is not in the group, or not all of it.
OPEN = {
    "stream before an RMS norm with gains", "stream before a layer norm",
    "memory keys beside the keys", "the nearest entry of a codebook", "diagonal state spaces",
    "determinants",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_claimed_is_exact(name: str) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    model, x = case.make().double(), torch.randn(case.shape, dtype=torch.float64)
    symmetry = Symmetry(export(model, (x,)))
    groups = {axis.name: axis.group for axis in symmetry.axes}
    texts = {axis: {groups[axis].name, str(groups[axis])} if axis in groups else {} for axis in case.groups}
    assert all(group in texts[axis] for axis, group in case.groups.items()), texts
    with torch.no_grad():
        moved, expected = act(model, symmetry.sample(0, parts=EVERY_PART))(x), model(x)
    assert float((moved - expected).abs().max()) <= 1e-10 * float(expected.abs().max())


def test_open_questions_are_listed() -> None:
    listed_there = THEORY.read_text(encoding="utf-8")
    assert not [name for name in OPEN if f"**{name}**" not in listed_there]
    assert set(CASES) >= OPEN

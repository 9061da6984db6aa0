"""Modules that the function does not tell apart change places; those that it tells apart stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from test_complete import heads, layer, net
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import Symmetry, act, align, find_isomorphism, inspect, trace, verify
from intertwine.errors import InputError
from intertwine.graph.export import export
from intertwine.symmetry.transform import EVERY_PART

ROWS, TOKENS, IMAGES = (6, 5), (2, 4, 5), (2, 3, 4, 4)
Net = Callable[[], nn.Module]


def branch(wide: int = 2, norm: bool = False) -> nn.Module:
    between = [nn.BatchNorm1d(4)] if norm else []
    return nn.Sequential(nn.Linear(5, 4), *between, nn.ReLU(), nn.Linear(4, wide))


def listed(count: int = 3, make: Callable[[], nn.Module] = branch) -> Net:
    return lambda: nn.ModuleList([make() for _ in range(count)])


def beside(m: Any, x: Tensor) -> Tensor:
    return torch.cat([f(x) for f in m.list], -1)


def convolved(m: Any, x: Tensor) -> Tensor:
    return m.last(m.norm(torch.cat([f(x) for f in m.list], 1).relu())).mean((2, 3))


def image_branch() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))


def mixed(m: Any, x: Tensor) -> Tensor:
    gates = m.router(x).softmax(-1)
    return sum((gates[:, k, None] * f(x) for k, f in enumerate(m.list)), torch.zeros(()))


def stacked(m: Any, x: Tensor) -> Tensor:
    return (m.router(x).sigmoid()[..., None] * torch.stack([f(x) for f in m.list], 1)).sum(1)


def products(m: Any, x: Tensor) -> Tensor:
    every = torch.stack([f(x) for f in m.list], 1)
    once = torch.einsum("be,bed->bd", m.router(x).softmax(-1), every)
    return once * (m.scores(x)[:, None] @ every)[:, 0]


def masked(m: Any, x: Tensor, **how: Any) -> Tensor:
    """As exportable lists of experts are written: every expert on every row, times what it is chosen for."""
    weight, choice = m.router(x).softmax(-1).topk(2, -1, **how)
    weight = weight / weight.sum(-1, keepdim=True)
    return sum(
        ((weight * (choice == k)).sum(-1, keepdim=True) * f(x) for k, f in enumerate(m.list)), x[:, :2]
    )


def marked(m: Any, x: Tensor) -> Tensor:
    choice = m.router(x).topk(2, -1).indices
    chosen, out = F.one_hot(choice, 3).permute(2, 1, 0), torch.zeros(len(x), 2).to(x)
    for k, f in enumerate(m.list):
        out = out.index_add(0, torch.arange(len(x)), f(x) * chosen[k].sum(0)[:, None])
    return out


def scattered(m: Any, x: Tensor) -> Tensor:
    """With a shared bias of the scores, as in DeepSeek's routing, and a shared expert."""
    scores = m.router(x).sigmoid()
    choice = (scores + m.shift).topk(2, -1).indices
    weight = scores.gather(1, choice)
    gates = torch.zeros_like(scores).scatter(1, choice, weight / weight.sum(-1, keepdim=True))
    return sum((gates[:, k : k + 1] * f(x) for k, f in enumerate(m.list)), m.shared(x))


def rows_of_each(m: Any, x: Tensor) -> Tensor:
    """Every expert takes the rows that chose it, however many they are."""
    weight, choice = m.router(x).topk(2, -1)
    out = torch.zeros(len(x), 2).to(x)
    for k, f in enumerate(m.list):
        rows, place = torch.where(choice == k)
        out = out.index_add(0, rows, f(x[rows]) * weight[rows, place, None])
    return out


def by_name(m: Any, x: Tensor) -> Tensor:
    gate = m.router(x).softmax(-1)
    return gate[:, :1] * m.down0(m.up0(x).relu()) + gate[:, 1:] * m.down1(m.up1(x).relu())


def lists_of_heads(m: Any, x: Tensor) -> Tensor:
    each = zip(m.q, m.k, m.v, strict=True)
    return m.last(torch.cat([(q(x) @ k(x).mT).softmax(-1) @ v(x) for q, k, v in each], -1))


def attention() -> nn.Module:
    made: nn.Module = heads(lambda m, q, k, v: (q @ k.mT).softmax(-1) @ v)()
    return made


THREE: dict[str, Any] = {"list": listed(), "router": layer(5, 3)}
linears = listed(3, lambda: nn.Linear(5, 3))
HOLDS: dict[str, tuple[Net, tuple[int, ...], int]] = {
    "a sum of branches": (net(lambda m, x: sum(f(x) for f in m.list), list=listed()), ROWS, 3),
    "branches with batch norms": (
        net(lambda m, x: m.last(beside(m, x)), list=listed(make=lambda: branch(norm=True)), last=layer(6, 2)),
        ROWS, 3,
    ),
    "normed side by side": (
        net(lambda m, x: m.last(m.norm(beside(m, x)).relu()), list=listed(), last=layer(6, 2),
            norm=lambda: nn.LayerNorm(6)),
        ROWS, 3,
    ),
    "convolutions side by side": (
        net(convolved, list=listed(make=image_branch), norm=lambda: nn.BatchNorm2d(6),
            last=lambda: nn.Conv2d(6, 2, 3, padding=1)),
        IMAGES, 3,
    ),
    "all mixed": (net(mixed, **THREE), ROWS, 3),
    "a stack that is summed": (net(stacked, **THREE), ROWS, 3),
    "a stack in products": (net(products, **THREE, scores=layer(5, 3)), ROWS, 3),
    "the largest, compared": (net(masked, **THREE), ROWS, 3),
    "the largest, marked": (net(marked, **THREE), ROWS, 3),
    "the largest, scattered": (net(scattered, **THREE, shift=(3,), shared=layer(5, 2)), ROWS, 3),
    "told by a number in the name": (
        net(by_name, router=layer(5, 2), up0=layer(5, 4), up1=layer(5, 4), down0=layer(4, 2),
            down1=layer(4, 2)),
        ROWS, 2,
    ),
    "heads in three lists": (
        net(lists_of_heads, q=linears, k=linears, v=linears, last=layer(9, 2)), TOKENS, 3,
    ),
    "attentions": (net(lambda m, x: sum(f(x) for f in m.list), list=listed(2, attention)), TOKENS, 2),
    "experts on their own rows": (net(rows_of_each, **THREE), ROWS, 3),
    "twin critics": (
        net(lambda m, x: torch.minimum(m.q1(x), m.q2(x)), q1=branch, q2=branch), ROWS, 2,
    ),
    "the largest of three": (
        net(lambda m, x: torch.maximum(torch.maximum(*(f(x) for f in m.list[:2])), m.list[2](x)),
            list=listed()),
        ROWS, 3,
    ),
    "products of three": (
        net(lambda m, x: m.list[0](x) * (m.list[1](x) * m.list[2](x)), list=listed()), ROWS, 3,
    ),
    "two lists beside an MLP": (
        net(lambda m, x: m.head(sum(b(a(x).relu()).relu() for a, b in zip(m.up, m.down, strict=True))),
            up=listed(3, lambda: nn.Linear(5, 4)), down=listed(3, lambda: nn.Linear(4, 6)),
            head=lambda: nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2))),
        ROWS, 3,
    ),
    "both factors": (
        net(lambda m, x: m.last(m.a(x) * m.b(x)), a=layer(5, 4), b=layer(5, 4), last=layer(4, 2)), ROWS, 2,
    ),
}  # fmt: skip


def chained(m: Any, x: Tensor) -> Tensor:
    for f in m.list:
        x = x + f(x)
    return x


def first_best(m: Any, x: Tensor) -> Tensor:
    """Of equal scores argmax takes the first."""
    best = m.router(x).relu().argmax(-1, keepdim=True)
    return sum(((best == k) * f(x) for k, f in enumerate(m.list)), torch.zeros(()))


def counted(m: Any, x: Tensor) -> Tensor:
    """The number of the best expert is a number beside its output."""
    return masked(m, x) + m.router(x).topk(2, -1).indices.to(x)


def normed_twice(m: Any, x: Tensor) -> Tensor:
    """Side by side in both orders, through norms whose shift is the gain of one and the mean of the other."""
    (a, b), how = (f(x) for f in m.list), {"running_mean": m.mean, "running_var": 1 + m.gain**2}
    one = F.batch_norm(torch.cat([a, b], 1), weight=m.gain, bias=m.gain, **how)
    other = F.batch_norm(torch.cat([b, a], 1), weight=m.gain, bias=m.mean, **how)
    return m.last(one.relu()) + m.last(other.relu())


def unread(m: Any, x: Tensor) -> Tensor:
    return m.last(x.relu())


STAYS: dict[str, tuple[Net, tuple[int, ...]]] = {
    "one after the other": (net(chained, list=listed(make=lambda: branch(5))), ROWS),
    "weighted by constants": (
        net(lambda m, x: sum((1 + k) * f(x) for k, f in enumerate(m.list)), list=listed()), ROWS),
    "side by side as they are": (net(beside, list=listed()), ROWS),
    "a running sum": (
        net(lambda m, x: torch.stack([f(x) for f in m.list], 1).cumsum(1).relu().sum(1), list=listed()),
        ROWS),
    "scores that tie": (net(lambda m, x: masked(m, x.relu()), list=listed(),
                            router=lambda: nn.Linear(5, 3, bias=False)), ROWS),
    "scores after a rectifier": (
        net(lambda m, x: masked(m, x), list=listed(),
            router=lambda: nn.Sequential(nn.Linear(5, 3), nn.ReLU())), ROWS),
    "the first of the best": (net(first_best, **THREE), ROWS),
    "numbers of experts": (net(counted, **THREE), ROWS),
    "the largest in no order": (net(lambda m, x: masked(m, x, sorted=False), **THREE), ROWS),
    "norms of which one operand stands in two places": (
        net(normed_twice, list=listed(2), gain=(4,), mean=(4,), last=layer(4, 2)), ROWS),
    "modules that nothing reads": (net(unread, list=listed(), last=layer(5, 2)), ROWS),
    "the largest of a function": (
        net(lambda m, x: torch.maximum(m.a(x).tanh(), m.b(x)), a=branch, b=branch), ROWS),
    "differences": (net(lambda m, x: m.a(x) - m.b(x), a=branch, b=branch), ROWS),
    "rows in the order of experts": (
        net(lambda m, x: torch.cat([f(x[torch.where(m.router(x).topk(1, -1).indices[:, 0] == k)[0]])
                                    for k, f in enumerate(m.list)]), **THREE), ROWS),
    "queries and keys": (
        net(lambda m, x: (m.q(x) @ m.k(x).mT).softmax(-1) @ x, q=layer(5, 3), k=layer(5, 3)), TOKENS),
}  # fmt: skip


def made(make: Net, shape: tuple[int, ...]) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model, x = make().double().eval(), torch.randn(shape, dtype=torch.float64)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    return model, x


def error(model: nn.Module, other: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        return float((model(x) - other(x)).abs().max() / model(x).abs().max())


@pytest.mark.parametrize("name", HOLDS)
def test_what_changes_places_is_exact(name: str) -> None:
    """Without the proof; alone, with all other parts, composed and undone."""
    make, shape, members = HOLDS[name]
    model, x = made(make, shape)
    symmetry = Symmetry(export(model, (x,)))
    assert [family.size for family in symmetry.families] == [members]
    alone = replace(symmetry.sample(0), relabel=symmetry.identity().relabel, exchange=None)
    for order in permutations(range(members)):
        exchange = replace(symmetry.identity(), exchange=torch.tensor(order).numpy())
        assert error(model, act(model, exchange), x) < 1e-10
        both = act(model, exchange @ alone)
        torch.testing.assert_close(both.state_dict(), act(act(model, alone), exchange).state_dict())
    g, h = (symmetry.sample(seed, EVERY_PART) for seed in (1, 2))
    once, twice = act(model, h @ g), act(act(model, g), h)
    assert error(model, once, x) < 1e-10
    torch.testing.assert_close(once.state_dict(), twice.state_dict(), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(
        act(once, (h @ g).inverse()).state_dict(), model.state_dict(), rtol=1e-9, atol=1e-11
    )
    assert (g @ g.inverse()).is_identity(1e-9) and not (h @ g).is_identity()


@pytest.mark.parametrize("name", STAYS)
def test_what_the_function_tells_apart_stays(name: str) -> None:
    make, shape = STAYS[name]
    model, x = made(make, shape)
    assert not Symmetry(export(model, (x,))).families


def test_an_unlike_member_is_left_out() -> None:
    def unlike() -> nn.ModuleList:
        return nn.ModuleList([branch(), nn.Linear(5, 2), branch(), branch()])

    model, x = made(
        net(lambda m, x: sum(f(x) * (1 + (k == 3)) for k, f in enumerate(m.list)), list=unlike), ROWS
    )
    (family,) = trace(model, x).families  # the last one counts twice
    assert family.members == ("list.0", "list.2")


def test_what_moves_along_is_needed() -> None:
    """Experts that change places without the rows of the router change the function."""
    model, x = made(*HOLDS["the largest, compared"][:2])
    symmetry = trace(model, x)
    (family,) = symmetry.families
    assert {name for name, _ in family.beside} == {"router.weight", "router.bias"}
    moved = act(model, replace(symmetry.identity(), exchange=torch.tensor([1, 2, 0]).numpy()))
    assert error(model, moved, x) < 1e-10
    moved.load_state_dict(
        model.state_dict() | {n: t for n, t in moved.state_dict().items() if "router" not in n}
    )
    assert error(model, moved, x) > 1e-3


def test_acting_refutes_a_false_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a law were wrong, the modules stay, and it is said."""
    model, x = made(*STAYS["weighted by constants"])
    right, _ = made(*HOLDS["a sum of branches"][:2])
    (family,) = Symmetry(export(right, (x,))).families
    monkeypatch.setattr("intertwine.symmetry.symmetry.find_families", lambda graphs: (family,))
    with pytest.warns(Warning, match=r"list\.0, list\.1, list\.2"):
        assert not trace(model, x).families


def test_it_is_shown_verified_and_saved(tmp_path: Path) -> None:
    model, x = made(*HOLDS["branches with batch norms"][:2])
    found = inspect(model, x)
    symmetry = found.symmetry
    assert found.to_dict()["exchanges"][0]["members"] == ["list.0", "list.1", "list.2"]
    assert any("3 modules may change places: list.0" in line for line in found.remarks())
    assert "1 families" in repr(symmetry)
    assert verify(model, x, samples=3).exact
    assert "whole tensors" in symmetry.to_spec("git-re-basin").left_out["list.0, list.1, list.2"]
    element = symmetry.sample(4, EVERY_PART)
    element.save(tmp_path / "g.safetensors")
    again = trace(model, x).load(tmp_path / "g.safetensors")
    torch.testing.assert_close(act(model, again).state_dict(), act(model, element).state_dict())
    replace(element, exchange=torch.tensor([0, 0, 1]).numpy()).save(tmp_path / "wrong.safetensors")
    with pytest.raises(InputError, match="may not change places"):
        symmetry.load(tmp_path / "wrong.safetensors")


@pytest.mark.parametrize("name", ["branches with batch norms", "the largest, compared", "attentions"])
def test_a_planted_exchange_is_found(name: str) -> None:
    make, shape, members = HOLDS[name]
    model, x = made(make, shape)
    symmetry = trace(model, x)
    element = replace(symmetry.sample(5), exchange=torch.arange(members).roll(1).numpy())
    other = act(model, element)
    found = find_isomorphism(model, other, symmetry)
    assert found and found.element is not None
    assert found.element.exchange is not None and (found.element.exchange == element.exchange).all()
    assert align(model, other, symmetry).distance_after < 1e-8
    torch.testing.assert_close(
        act(model, found.element).state_dict(), other.state_dict(), rtol=1e-6, atol=1e-8
    )

"""The fast algorithm merges the same pairs as a direct transcription of the formulas, merge for merge."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from intertwine import trace, zoo
from intertwine.merging import apply_merge, plan_merge

Places = dict[str, list[tuple[str, int]]]


def vgg_like() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise((3, 8, 10, 12)):
        layers += [nn.Conv2d(fan_in, fan_out, 3, padding=1), nn.BatchNorm2d(fan_out), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5)).double()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return net.eval()


AXES: Places = {
    "0": [("0.weight", 0), ("3.weight", 1)],
    "3": [("3.weight", 0), ("6.weight", 1)],
    "6": [("6.weight", 0), ("11.weight", 1)],
}
NORMS = {"0": ("0.bias", "1"), "3": ("3.bias", "4"), "6": ("6.bias", "7")}


def naive_distances(params: dict[str, Tensor], places: Sequence[tuple[str, int]]) -> Tensor:
    """Eq. 6, with slices subtracted one pair at a time."""
    size = params[places[0][0]].shape[places[0][1]]
    table = torch.full((size, size), float("inf"), dtype=torch.float64)
    for m, n in itertools.combinations(range(size), 2):
        total = 0.0
        for name, dim in places:
            total += float((params[name].select(dim, m) - params[name].select(dim, n)).square().sum())
        table[m, n] = total
    return table


def naive_merge(params: dict[str, Tensor], axis: str, m: int, n: int, held: list[float]) -> None:
    """Eq. 7 and 10, the released code's treatment of biases and norms (sums), channel n removed."""
    size = len(held)
    keep = [c for c in range(size) if c != n]
    bias, norm = NORMS[axis]
    summed = [bias, *(f"{norm}.{x}" for x in ("weight", "bias", "running_mean", "running_var"))]
    for name, dim in [*AXES[axis], *((x, 0) for x in summed)]:
        w = params[name].movedim(dim, 0).clone()
        w[m] = w[m] + w[n] if dim == 0 else (held[m] * w[m] + held[n] * w[n]) / (held[m] + held[n])
        params[name] = w[keep].movedim(0, dim)
    held[m] += held[n]
    del held[n]


def naive_step(
    params: dict[str, Tensor], axis: str, held: list[float], names: list[int], beta: float
) -> tuple[int, int] | None:
    if len(held) < 2:
        return None
    table = naive_distances(params, AXES[axis])
    if float(table.min()) > beta * float(table[table.isfinite()].max()):
        return None
    m, n = divmod(int(table.argmin()), len(held))
    pair = (names[m], names[n])
    naive_merge(params, axis, m, n, held)
    del names[n]
    return pair


def naive(net: nn.Module, order: str, beta: float, max_ratio: float = 1.0):  # type: ignore[no-untyped-def]
    params = {k: v.detach().clone() for k, v in net.state_dict().items()}
    sizes = {a: params[p[0][0]].shape[0] for a, p in AXES.items()}
    held = {a: [1.0] * n for a, n in sizes.items()}
    names = {a: list(range(n)) for a, n in sizes.items()}
    merges: dict[str, list[tuple[int, int]]] = {a: [] for a in AXES}
    if order == "layerwise":
        for a in AXES:
            while len(merges[a]) < max_ratio * sizes[a]:
                pair = naive_step(params, a, held[a], names[a], beta)
                if pair is None:
                    break
                merges[a].append(pair)
        return merges, params
    rounds, moving = 0, True
    while moving:
        moving = False
        for a in AXES:
            pair = None
            if rounds < max_ratio * sizes[a]:
                pair = naive_step(params, a, held[a], names[a], beta)
            if pair is not None:
                merges[a].append(pair)
                moving = True
        rounds += 1
    return merges, params


@pytest.mark.parametrize("order", ["layerwise", "interleaved"])
@pytest.mark.parametrize("beta", [0.6, 0.8, 1.0])
def test_same_merges_as_the_formulas(order: str, beta: float) -> None:
    net = vgg_like()
    expected, params = naive(net, order, beta)
    plan = plan_merge(
        net, trace(net, torch.zeros(2, 3, 8, 8).double()), method="ifm", beta=beta, order=order, norm="sum"
    )
    found = {a.name: [(m.keep, m.drop) for m in a.merges] for a in plan.axes}
    assert found == expected
    assert any(found.values())
    small = apply_merge(net, plan).state_dict()
    for name, tensor in params.items():
        if tensor.is_floating_point():
            torch.testing.assert_close(small[name], tensor, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("order", ["layerwise", "interleaved"])
def test_max_ratio_stops_as_the_released_code_does(order: str) -> None:
    net = vgg_like()
    expected, _ = naive(net, order, 1.0, max_ratio=0.25)
    plan = plan_merge(
        net,
        trace(net, torch.zeros(2, 3, 8, 8).double()),
        method="ifm",
        beta=1.0,
        order=order,
        norm="sum",
        max_ratio=0.25,
    )
    assert [len(m) for m in expected.values()] == [len(a.merges) for a in plan.axes] == [2, 3, 3]


def test_the_two_orders_differ() -> None:
    """A control: otherwise the two tests above would be one."""
    net = vgg_like()
    assert naive(net, "layerwise", 0.8)[0] != naive(net, "interleaved", 0.8)[0]


def test_deep_merging_of_a_wide_layer_stays_in_step() -> None:
    """Two hundred merges on one axis: rounding must not have drifted away from fresh distances."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(20, 220), nn.ReLU(), nn.Linear(220, 9)).double()
    plan = plan_merge(
        net, trace(net, torch.zeros(1, 20).double()), method="ifm", beta=1.0, norm="sum", max_ratio=0.9
    )
    w, v = net[0].weight.detach().clone(), net[2].weight.detach().T.clone()
    held, names = [1.0] * 220, list(range(220))
    for merge in plan.axes[0].merges:
        table = torch.cdist(w, w, compute_mode="donot_use_mm_for_euclid_dist").square()
        table += torch.cdist(v, v, compute_mode="donot_use_mm_for_euclid_dist").square()
        table.fill_diagonal_(float("inf"))
        m, n = divmod(int(table.argmin()), len(names))
        assert (names[m], names[n]) == (merge.keep, merge.drop)
        assert merge.distance == pytest.approx(float(table[m, n]), rel=1e-9)
        assert merge.largest == pytest.approx(float(table[table.isfinite()].max()), rel=1e-9)
        w[m] += w[n]
        v[m] = (held[m] * v[m] + held[n] * v[n]) / (held[m] + held[n])
        held[m] += held[n]
        w, v = (torch.cat([x[:n], x[n + 1 :]]) for x in (w, v))
        del held[n], names[n]


class TwoBranches(nn.Module):
    """Channels side by side on one dimension (a concatenation), several positions a channel (a flatten)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.left, self.right = nn.Conv2d(3, 30, 3), nn.Conv2d(3, 24, 3)
        self.joined, self.head, self.out = nn.Conv2d(54, 20, 3), nn.Linear(80, 40), nn.Linear(40, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.left(x).relu(), self.right(x).relu()], 1)
        out: Tensor = self.out(self.head(self.joined(x).relu().flatten(1)).relu())
        return out


@pytest.mark.parametrize(
    ("net", "size"), [(zoo.build("resnet20"), 32), (TwoBranches(), 6)], ids=["residual", "concatenated"]
)
def test_low_rank_updates_match_a_recomputation(net: nn.Module, size: int) -> None:
    """The interleaved order against the same rule recomputed from the weights at every merge."""
    net = net.double()
    symmetry = trace(net, torch.zeros(1, 3, size, size).double())
    fast = plan_merge(net, symmetry, method="ifm", beta=1.0, order="interleaved", norm="sum", max_ratio=0.2)
    params = {k: v.detach().clone() for k, v in net.state_dict().items()}
    alive = {a.name: list(range(a.size)) for a in fast.axes}
    held = {a.name: dict.fromkeys(range(a.size), 1.0) for a in fast.axes}
    assert all(a.merges for a in fast.axes)
    for rounds in range(max(len(a.merges) for a in fast.axes)):
        for axis in fast.axes:
            if rounds >= len(axis.merges):
                continue
            merge, total = axis.merges[rounds], torch.zeros(())
            names, h = alive[axis.name], held[axis.name]
            places = [part.place(axis.size) for part in axis.places]
            for place in places:
                if params[place.param].dim() > 1:
                    rows = place.rows(params[place.param])[names]
                    squares = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
                    total = total + squares
            total.fill_diagonal_(float("inf"))
            m, n = divmod(int(total.argmin()), len(names))
            assert {names[m], names[n]} == {merge.keep, merge.drop}  # cdist is symmetric up to rounding only
            assert merge.distance == pytest.approx(float(total[m, n]), rel=1e-9)
            a, b = h[merge.keep], h[merge.drop]
            for place in places:
                w = params[place.param].movedim(place.dim, 0)
                keep, drop = place.where[merge.keep], place.where[merge.drop]
                mean = (a * w[keep] + b * w[drop]) / (a + b)
                w[keep] = mean if place.role == "in" else w[keep] + w[drop]
                w[drop] = 0.0
            h[merge.keep] += h[merge.drop]
            names.remove(merge.drop)

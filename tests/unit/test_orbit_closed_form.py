"""Elements of one orbit are found exactly, also where channels cross, split or have no unique answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import act, trace
from intertwine.aligning import align, mix
from intertwine.cli.program import main
from intertwine.errors import InputError
from intertwine.graph.alike import same_program
from intertwine.orbit import Pairing
from intertwine.orbit.closed_form import bring_onto
from intertwine.orbit.matrices import best_matrices, ranges
from intertwine.orbit.scales import solve_from
from intertwine.symmetry.scales import ScaleKind, invert_gf2
from property.architectures import Run


def pooled() -> nn.Module:
    """A flatten after a max pool: every pixel of a channel is rescaled by the batch norm on its own."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.BatchNorm1d(24), nn.Linear(24, 8), nn.GELU(), nn.Linear(8, 3),
    )  # fmt: skip


def deficient() -> nn.Module:
    """Linear axes wider than what makes them or what reads them: many matrices do the same."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(48, 4), nn.ReLU(), nn.Linear(4, 9), nn.Linear(9, 12), nn.Linear(12, 7),
        nn.Linear(7, 3),
    )  # fmt: skip


def split() -> nn.Module:
    """The two parts of a split have different groups."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        left, right = net.first(x).split([3, 5], 1)  # type: ignore[operator]
        both = torch.cat([F.leaky_relu(left), F.gelu(right)], 1)
        return net.last(net.norm(both).mean((2, 3)))  # type: ignore[operator]

    norm = nn.InstanceNorm2d(8, affine=True)
    return Run(run, first=nn.Conv2d(3, 8, 3), norm=norm, last=nn.Sequential(nn.Linear(8, 9), nn.Linear(9, 2)))


def grouped_queries() -> nn.Module:
    """The heads of a group share keys: their order and that of the dimensions of the keys cross."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        x = x.flatten(2).transpose(1, 2)
        q, k, v = (m(x).unflatten(2, (-1, 3)).transpose(1, 2) for m in (net.q, net.k, net.v))  # type: ignore[operator]
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2)
        return net.out(y).mean(1)  # type: ignore[operator]

    maps = {"q": nn.Linear(3, 12), "k": nn.Linear(3, 6), "v": nn.Linear(3, 6)}
    return Run(run, **maps, out=nn.Linear(12, 2))


def copies() -> nn.Module:
    """Two kinds of copies of the same channels, told apart by the last weight alone."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        pooled = F.hardswish(net.first(x)).mean((2, 3))  # type: ignore[operator]
        return net.last(pooled.repeat(1, 2).repeat_interleave(2, 1))  # type: ignore[operator]

    return Run(run, first=nn.Conv2d(3, 8, 3), last=nn.Linear(32, 3))


def recurrent() -> nn.Module:
    """A linear axis on both sides of one weight."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        x = net.first(x)  # type: ignore[operator]
        for _ in range(2):
            x = x + net.body(x)  # type: ignore[operator]
        return net.last(x.mean((2, 3)))  # type: ignore[operator]

    return Run(
        run, first=nn.Conv2d(3, 8, 3), body=nn.Conv2d(8, 8, 3, padding=1), last=nn.Sequential(nn.Linear(8, 2))
    )


NETS = [pooled, deficient, split, grouped_queries, copies, recurrent]


def generic(build: Callable[[], nn.Module]) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = build().double().eval()
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.dim() == 1:
                tensor.uniform_(0.5, 2) if name.endswith("var") else tensor.normal_(0.3, 0.7)
    return model, torch.randn(3, 3, 4, 4, dtype=torch.float64)


@pytest.mark.parametrize("build", NETS)
@pytest.mark.parametrize("seed", range(2))
def test_the_orbit_is_found_without_a_search(build: Callable[[], nn.Module], seed: int) -> None:
    model, x = generic(build)
    symmetry = trace(model, x)
    other = act(model, symmetry.sample(seed))
    pair = Pairing(symmetry, model, other)
    state = pair.action.state(pair.b)
    assert pair.distance() > 0.1
    assert bring_onto(pair.action, pair.a, state)
    assert pair.distance(state.element) < 1e-10
    aligned = act(other, state.element)
    with torch.no_grad():
        middle, wanted = mix([model, aligned], [0.5, 0.5])(x), model(x)
    assert float((middle - wanted).abs().max() / wanted.abs().max()) < 1e-8


def test_other_models_are_not_on_the_orbit() -> None:
    torch.manual_seed(0)
    a, b = (nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).double() for _ in range(2))
    pair = Pairing(trace(a, torch.zeros(1, 6).double()), a, b)
    assert not bring_onto(pair.action, pair.a, pair.action.state(pair.b))


def test_noise_is_not_amplified() -> None:
    model, x = generic(split)
    symmetry = trace(model, x)
    other = act(model, symmetry.sample(0))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += 1e-4 * parameter.norm() / parameter.numel() ** 0.5 * torch.randn_like(parameter)
    assert align(model, other, symmetry, restarts=0).distance_after < 1e-3


def test_matrices_of_deficient_rank_can_be_inverted() -> None:
    rng = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)  # noqa: E731
    make, read, x = draw(2, 7, 3), draw(2, 7, 2), draw(2, 7, 7)
    back = torch.linalg.inv(x).mT
    found = best_matrices((x @ make, make), (back @ read, read), orthogonal=False)
    assert torch.allclose(found @ make, x @ make, atol=1e-9)
    assert torch.allclose(torch.linalg.inv(found).mT @ read, back @ read, atol=1e-8)
    assert float(torch.linalg.cond(found).max()) < 1e4
    assert np.allclose(np.trace(ranges(make), axis1=1, axis2=2), 3)


def test_scales_say_what_they_do_not_know() -> None:
    # Unknowns scaled by t, -t and s; s has no evidence.
    kind = ScaleKind(
        np.array([[0, 1, 2]]), np.array([[1.0, 0], [-1, 0], [0, 1]]), np.array([[1, 0], [1, 0], [0, 1]])
    )
    log_scale, sign, known = solve_from(
        kind, np.array([[4.0, 1, 0]]), np.array([[1.0, 4, 0]]), np.array([[-2.0, -2, 0]])
    )
    assert np.allclose(log_scale[0, :2], [np.log(2), -np.log(2)]) and sign[0, :2].tolist() == [-1, -1]
    assert known.tolist() == [[True, True, False]]


def test_bits_are_inverted() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        rows = rng.integers(0, 2, (6, 4))
        chosen, inverse = invert_gf2(rows)
        assert (rows[chosen] @ inverse % 2 == np.eye(len(chosen))).all()
        # Every row is a sum of the chosen ones.
        assert (rows @ inverse @ rows[chosen] % 2 == rows).all()


def mlp(width: int = 16, act_: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, width), act_ or nn.ReLU(), nn.Linear(width, 3))


@pytest.mark.parametrize(
    "other, message",
    [
        (mlp(act_=nn.GELU()), "graphs of A and B differ: relu against gelu"),
        (nn.Sequential(nn.Linear(6, 16), nn.ReLU()), "graphs of A and B differ: linear against the end"),
        (mlp(17), "B does not fit: 0.weight has shape"),
        (nn.Sequential(*mlp(), nn.ReLU()), "the end against relu"),
        (nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 3)), "B does not take the inputs of A"),
    ],
)
def test_models_that_differ_are_refused(other: nn.Module, message: str) -> None:
    symmetry = trace(mlp(), torch.zeros(1, 6))
    with pytest.raises(InputError, match=message):
        align(mlp(), other, symmetry)


def test_other_settings_are_other_graphs() -> None:
    a, b = mlp(act_=nn.LeakyReLU(0.1)), mlp(act_=nn.LeakyReLU(0.2))
    symmetry = trace(a, torch.zeros(1, 6))
    with pytest.raises(InputError, match=r"leaky_relu\(linear, 0.1\) against leaky_relu\(linear, 0.2\)"):
        align(a, b, symmetry)
    assert not same_program(a, b) and same_program(a, mlp(act_=nn.LeakyReLU(0.1)))


class Written(nn.Module):
    """The net of `mlp`, written in another way."""

    def __init__(self, parts: nn.Sequential) -> None:
        super().__init__()
        for name, part in parts.named_children():
            self.add_module(name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.get_submodule("2")(F.relu(self.get_submodule("0")(x)))


def test_the_same_graph_from_other_modules_is_fine() -> None:
    symmetry = trace(a := mlp(), torch.zeros(1, 6))
    moved = act(a, symmetry.sample(0))
    assert isinstance(moved, nn.Sequential)
    assert align(a, Written(moved), symmetry).distance_after < 1e-6


def test_the_command_refuses_as_the_library_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["align", "zoo:digits-vgg", "zoo:lenet5"]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error and "differ" in error

"""Pairs of channels of rotary embeddings: complex numbers that commute with the rotation, however written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from intertwine import Symmetry, act, align, find_isomorphism, trace, verify
from intertwine.errors import Unsupported
from intertwine.graph.export import export
from intertwine.orbit.pair import Pairing
from intertwine.symmetry.transform import EVERY_PART

Turn = Callable[[Tensor, Tensor], Tensor]


def halves(y: Tensor, f: Tensor) -> Tensor:
    angle, n = torch.cat([f, f], -1), y.shape[-1] // 2
    return y * angle.cos() + torch.cat([-y[..., n:], y[..., :n]], -1) * angle.sin()


def chunks(y: Tensor, f: Tensor) -> Tensor:
    a, b = y.chunk(2, -1)
    return torch.cat([a * f.cos() - b * f.sin(), b * f.cos() + a * f.sin()], -1)


def neighbours(y: Tensor, f: Tensor) -> Tensor:
    crossed = torch.stack([-y[..., 1::2], y[..., ::2]], -1).flatten(-2)
    cos, sin = (g.repeat_interleave(2, -1) for g in (f.cos(), f.sin()))
    return y * cos + crossed * sin


def matrices(y: Tensor, f: Tensor) -> Tensor:
    table = torch.stack([f.cos(), -f.sin(), f.sin(), f.cos()], -1).unflatten(-1, (2, 2))
    pairs = y.unflatten(-1, (-1, 1, 2))
    return (table[..., 0] * pairs[..., 0] + table[..., 1] * pairs[..., 1]).flatten(-2)


def complex_numbers(y: Tensor, f: Tensor) -> Tensor:
    z = torch.view_as_complex(y.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(z * torch.polar(torch.ones_like(f), f)).flatten(-2)


def partial(y: Tensor, f: Tensor) -> Tensor:
    return torch.cat([halves(y[..., :4], f), y[..., 4:]], -1)


def unequal(y: Tensor, f: Tensor) -> Tensor:
    """No rotation: the two channels of a pair have angles of their own."""
    angle, n = torch.cat([f, 2 * f], -1), y.shape[-1] // 2
    return y * angle.cos() + torch.cat([-y[..., n:], y[..., :n]], -1) * angle.sin()


def laid_across(y: Tensor, f: Tensor) -> Tensor:
    """The same table, but along the heads for the second half: there are as many as tokens."""
    a, b = y.chunk(2, -1)
    return torch.cat([a * f.cos() - b * f.sin(), b * f.cos().unsqueeze(-2) + a * f.sin()], -1)


def reflected(y: Tensor, f: Tensor) -> Tensor:
    """Reflections: complex numbers do not commute with them."""
    a, b = y.chunk(2, -1)
    return torch.cat([a * f.cos() + b * f.sin(), a * f.sin() - b * f.cos()], -1)


class Attention(nn.Module):
    """Heads whose queries and keys are turned by their places; two query heads share keys and values."""

    def __init__(self, turn: Turn, *, width: int = 4, cut: bool = False) -> None:
        super().__init__()
        self.turn, self.width, self.cut = turn, width, cut
        self.q, self.k, self.v = nn.Linear(5, 4 * width), nn.Linear(5, 2 * width), nn.Linear(5, 2 * width)
        self.o = nn.Linear(4 * width, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (-1, self.width)).transpose(1, 2) for f in (self.q, self.k, self.v))
        angle = torch.arange(x.shape[1]).to(x)[:, None] * torch.tensor([1.0, 0.3]).to(x)
        q, k = self.turn(q, angle), self.turn(k, angle)
        if self.cut:
            q, k = q[..., 1:], k[..., 1:]
        scores = q @ k.repeat_interleave(2, 1).transpose(-1, -2)
        return self.o((scores.softmax(-1) @ v.repeat_interleave(2, 1)).transpose(1, 2).flatten(2))


TOKENS = torch.randn(2, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def claimed(model: nn.Module) -> Symmetry:
    """What the rules say, without the proof that would withdraw it."""
    return Symmetry(export(model, (TOKENS,)))


def changed(model: nn.Module, symmetry: Symmetry, parts: tuple[str, ...]) -> float:
    with torch.no_grad():
        moved = act(model, symmetry.sample(1, parts=parts))
        return float((moved(TOKENS) - model(TOKENS)).abs().max())


@pytest.mark.parametrize("turn", [halves, chunks, neighbours, matrices, complex_numbers])
def test_pairs_turn_however_the_embedding_is_written(turn: Turn) -> None:
    torch.manual_seed(0)
    model = Attention(turn).double()
    symmetry = claimed(model)
    assert symmetry.structure.turns.count == 4  # two pairs in each of two heads of keys
    assert changed(model, symmetry, ("turn",)) < 1e-12
    assert changed(model, symmetry, EVERY_PART) < 1e-12
    with torch.no_grad():  # the control: queries turn, keys do not
        moved = act(model, symmetry.sample(1, parts=("turn",)))
        moved.k.weight.copy_(model.k.weight)
        assert (moved(TOKENS) - model(TOKENS)).abs().max() > 1e-4


def test_in_the_complex_form_the_scales_come_along() -> None:
    torch.manual_seed(0)
    assert claimed(Attention(complex_numbers).double()).structure.turns.scaled.all()
    assert not claimed(Attention(halves).double()).structure.turns.scaled.any()  # the labels have them


def test_partial_rotary_keeps_the_linear_group_of_the_rest() -> None:
    torch.manual_seed(0)
    model = Attention(partial, width=7).double()
    symmetry = claimed(model)
    assert symmetry.structure.turns.count == 4
    assert any(a.group.linear == "general linear" and a.size == 6 and "k" in a.name for a in symmetry.axes)
    assert changed(model, symmetry, EVERY_PART) < 1e-12


@pytest.mark.parametrize("turn", [unequal, reflected])
def test_what_is_no_rotation_of_pairs_is_not_claimed(turn: Turn) -> None:
    assert claimed(Attention(turn).double()).structure.turns.count == 0


def test_a_table_laid_along_other_dimensions_is_another_table() -> None:
    class Square(nn.Module):
        """As many heads as tokens, so that a table of angles fits along either."""

        def __init__(self, turn: Turn) -> None:
            super().__init__()
            self.turn, self.q, self.k = turn, nn.Linear(5, 20), nn.Linear(5, 20)

        def forward(self, x: Tensor) -> Tensor:
            angle = torch.arange(5).to(x)[:, None] * torch.tensor([1.0, 0.3]).to(x)
            q, k = (self.turn(f(x).unflatten(-1, (5, 4)).transpose(1, 2), angle) for f in (self.q, self.k))
            return (q @ k.mT).sum(1)

    assert claimed(Square(chunks).double()).structure.turns.count == 10
    assert claimed(Square(laid_across).double()).structure.turns.count == 0


def test_pairs_of_which_only_one_is_read_do_not_turn() -> None:
    torch.manual_seed(0)
    model = Attention(halves, cut=True).double()
    symmetry = claimed(model)
    assert symmetry.structure.turns.count == 2
    assert changed(model, symmetry, EVERY_PART) < 1e-12


def test_elements_compose_invert_and_are_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Attention(complex_numbers).double()
    symmetry = trace(model, TOKENS)
    assert symmetry.proof is not None and not symmetry.proof.refuted
    g, h = symmetry.sample(1, parts=EVERY_PART), symmetry.sample(2, parts=EVERY_PART)
    twice, once = act(act(model, h), g).state_dict(), act(model, g @ h).state_dict()
    assert max(float((twice[n] - once[n]).abs().max()) for n in once) < 1e-12
    assert (g @ g.inverse()).is_identity(1e-9) and not g.is_identity()
    g.save(tmp_path / "g.safetensors")
    again = symmetry.load(tmp_path / "g.safetensors")
    assert (again @ g.inverse()).is_identity(1e-9)
    with pytest.raises(Unsupported, match="rotary"):
        symmetry.values["q"].act(g, torch.zeros(2, 5, 16, dtype=torch.float64))


@pytest.mark.parametrize(("turn", "width"), [(halves, 4), (complex_numbers, 4), (partial, 7)])
def test_an_image_with_other_angles_is_found(turn: Turn, width: int) -> None:
    torch.manual_seed(0)
    model = Attention(turn, width=width).double()
    symmetry = claimed(model)
    for seed in range(3):  # the third exchanges heads of the complex form
        moved = act(model, symmetry.sample(seed, parts=EVERY_PART))
        assert find_isomorphism(model, moved, symmetry, restarts=0).error <= 1e-10
    assert align(model, moved, symmetry=symmetry).distance_after <= 1e-10
    plain = find_isomorphism(model, act(model, symmetry.sample(1)), symmetry, restarts=0)
    assert plain.element is not None and plain.element.turn is None  # no angle where none is needed
    with torch.no_grad():
        moved.k.weight[0] += 1.0  # the control
    assert Pairing(symmetry, moved, model).on_orbit() is None


def test_verify_acts_on_the_pairs() -> None:
    torch.manual_seed(0)
    model = Attention(halves).double()
    symmetry = claimed(model)
    assert verify(model, TOKENS, symmetry=symmetry).exact
    where, pair, exponent = symmetry.structure.turns.places["q.weight", 0]
    wrong = {**symmetry.structure.turns.places, ("q.weight", 0): (where[:, ::-1].copy(), pair, exponent)}
    object.__setattr__(symmetry.structure.turns, "places", wrong)
    assert verify(model, TOKENS, symmetry=symmetry).verdict == "wrong"

"""Tokens with a mask, given by name: every verb that cuts, turns or differentiates a network takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import intertwine
from intertwine.stitching import stitched_model


class Reader(nn.Module):
    """Classes of sequences of tokens; a mask says which of them count."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed, self.up = nn.Embedding(11, 6), nn.Linear(6, 8)
        self.down = nn.Linear(8, 3)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        hidden = (self.up(self.embed(tokens)) * mask[..., None]).relu()
        return self.down(hidden.sum(1) / mask.sum(1, keepdim=True))


class Packed(nn.Module):
    """The same, with tokens and mask in one tensor."""

    def __init__(self, inner: Reader) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, both: Tensor) -> Tensor:
        return self.inner(both[:, 0], both[:, 1])


def inputs(count: int = 60) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(11, (count, 5), generator=generator)
    mask = torch.arange(5) <= torch.randint(5, (count, 1), generator=generator)
    return {"tokens": tokens, "mask": mask.long()}


NAMED = inputs()
LABELS = Reader()(**NAMED).argmax(1)
BOTH = torch.stack(list(NAMED.values()), 1)
DATA, PACKED = (NAMED, LABELS), (BOTH, LABELS)


def turned(by: str) -> tuple[intertwine.Rotation, intertwine.Rotation]:
    options: dict[str, Any] = {"by": by, "epochs": 1, "batch": 16}
    return (
        intertwine.rotate(Reader(), DATA, DATA, at="up", **options),
        intertwine.rotate(Packed(Reader()), PACKED, PACKED, at="inner.up", **options),
    )


@pytest.mark.parametrize("by", ["group", "orthogonal"])
def test_rotate(by: str) -> None:
    named, packed = turned(by)
    assert named.group == packed.group != "trivial"
    assert (named.before, named.broken, named.tuned) == (packed.before, packed.broken, packed.tuned)
    assert named.before == 1.0


def test_stitch() -> None:
    options: dict[str, Any] = {"kinds": ["group", "full"], "epochs": 1, "batch": 16}
    named = intertwine.stitch(Reader(), Reader(1), DATA, DATA, at="up", **options)
    packed = intertwine.stitch(Packed(Reader()), Packed(Reader(1)), PACKED, PACKED, at="inner.up", **options)
    for mine, other in zip(named.stitchings, packed.stitchings, strict=True):
        assert (mine.start, mine.reset, mine.trained) == (other.start, other.reset, other.trained)
        assert torch.equal(mine.matrix, other.matrix)
    entry = named["up", "full"]
    model = stitched_model(Reader(), Reader(1), NAMED, entry)
    worth = float((model(**NAMED).argmax(1) == LABELS).double().mean())
    base = (named.accuracy_a + named.accuracy_b) / 2
    assert entry.trained == pytest.approx(100 * (base - worth))


REVERSED = {name: NAMED[name] for name in ("mask", "tokens")}


def test_the_order_of_names_is_no_matter() -> None:
    """Tokens and masks are of one shape and kind: a graph, whose inputs have places, would take either."""
    report = intertwine.stitch(Reader(), Reader(1), DATA, (REVERSED, LABELS), at="up", kinds=["full"])
    model = stitched_model(Reader(), Reader(1), NAMED, report["up", "full"])
    assert torch.equal(model(**NAMED), model(**REVERSED))
    symmetry = intertwine.trace(Reader(), {name: each[:2] for name, each in NAMED.items()})
    one, other = (
        intertwine.compare(Reader(), Reader(1), data, "cka", symmetry=symmetry).matched("cka")
        for data in (NAMED, REVERSED)
    )
    assert one == other
    with pytest.raises(intertwine.IntertwineError, match="traced with"):
        intertwine.compare(
            Reader(), Reader(1), {"ids": NAMED["tokens"], "mask": NAMED["mask"]}, symmetry=symmetry
        )


def test_test_inputs_of_other_names_are_refused() -> None:
    other = {"tokens": NAMED["tokens"], "weight": NAMED["mask"]}, LABELS
    with pytest.raises(intertwine.IntertwineError, match="test inputs"):
        intertwine.stitch(Reader(), Reader(1), DATA, other, at="up")


@pytest.mark.parametrize("method", ["guided", "integrated", "occlusion"])
def test_attribute(method: str) -> None:
    options: dict[str, Any] = {"channel": [1, 2], "methods": [method], "inputs": 3, "batch": 16}
    named = intertwine.attribute(Reader(), DATA, axis="up", balance=False, **options).classes[0]
    for k, number in enumerate(named.inputs):
        one = {name: each[number : number + 1] for name, each in NAMED.items()}
        held = {"mask": one["mask"]}  # of every row, the mask of this one
        alone = intertwine.attribute(
            Reader(),
            one["tokens"],
            axis="up",
            example=(one["tokens"],),
            kwargs=held,
            balance=False,
            **options,
        ).classes[0]
        assert named.scores[k] == pytest.approx(alone.scores[0], rel=1e-5)
        assert np.allclose(named.heats[method][k], alone.heats[method][0], rtol=1e-4, atol=1e-6)
    hidden = NAMED["mask"][list(named.inputs)] == 0
    assert (named.heats[method][hidden.numpy()] == 0).all()


class Scored(nn.Module):
    """As Hugging Face's do: a mapping with its scores by name."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Reader()

    def forward(self, tokens: Tensor, mask: Tensor) -> dict[str, Tensor]:
        return {"logits": self.inner(tokens, mask)}


@pytest.mark.parametrize("model", [Reader, Scored])
def test_explore(model: type[nn.Module]) -> None:
    options: dict[str, Any] = {"plane": "random", "points": 3, "dim": 1}
    named = intertwine.explore(model(), inputs(2), data=DATA, **options)
    packed = intertwine.explore(Packed(Reader()), BOTH[:2], data=PACKED, **options)
    assert (named.landscape.values == packed.landscape.values).all()
    by_class = intertwine.explore(model(), inputs(2), data=DATA, loss="cross_entropy", **options)
    assert np.isfinite(by_class.landscape.values).all()


def test_explore_draws_inputs_by_name_and_leaves_masks_open() -> None:
    example = {"tokens": NAMED["tokens"][:2], "mask": torch.ones(2, 5, dtype=torch.long)}
    options: dict[str, Any] = {"points": 3, "limit": 20, "optimizer": "lbfgs", "steps": 200}
    found = intertwine.explore(Reader().double(), example, tolerance=1e-3, **options)
    assert found.known is not None and found.known.known_loss < 1e-20

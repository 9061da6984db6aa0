"""Recipes: what ships is what the sources say, and a mistake in a file is told with its line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intertwine.errors import InputError, NotFound
from intertwine.training import parse_recipe, read_recipe, recipe_names
from intertwine.training.recipe import Optimizer, Recipe, Resolution, Schedule, from_dict
from intertwine.training.schedule import factor, scale_at

GOOD = "epochs: 10\nbatch: 32\noptimizer: {name: sgd, learning_rate: 0.1}\n"


def test_ifm_is_the_source() -> None:
    """Source 000, appendix D."""
    recipe = read_recipe("ifm")
    assert (recipe.epochs, recipe.optimizer.momentum, recipe.optimizer.weight_decay) == (150, 0.9, 1e-4)
    rates = [0.1 * factor(recipe.schedule, epoch, 150) for epoch in (0, 79, 80, 119, 120, 149)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert recipe.augment.flip and not recipe.augment.translate


def test_godfrey_is_the_source() -> None:
    """Source 002, D.1."""
    recipe = read_recipe("godfrey")
    assert (recipe.optimizer.name, recipe.optimizer.learning_rate, recipe.batch) == ("adam", 1e-3, 32)
    assert len(recipe.schedule.drops) == 4 and len({*recipe.schedule.drops} | {0, 50}) == 6
    assert {
        b - a for a, b in zip((0, *recipe.schedule.drops), (*recipe.schedule.drops, 50), strict=True)
    } == {10}
    assert factor(recipe.schedule, 49, 50) == 0.5**4
    assert recipe.augment.translate == 2 and recipe.augment.flip and recipe.keep == "best"


def test_lenet_is_the_source() -> None:
    """Source 004, table 1."""
    recipe = read_recipe("lenet-genni")
    assert (recipe.batch, recipe.limit, recipe.optimizer) == (256, 8192, Optimizer("sgd", 0.001))


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_are_plain_data(name: str) -> None:
    recipe = read_recipe(name)
    assert from_dict(recipe.to_dict()) == recipe and recipe.about


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        (GOOD + "epoch: 3\n", "unknown key 'epoch'", 4),
        (GOOD + "augment:\n  flips: true\n", "unknown key 'flips' in augment", 5),
        ("epochs: ten\nbatch: 32\n", "epochs must be a whole number, not 'ten'", 1),
        ("epochs: 10\nbatch: 32.5\n", "batch must be a whole number", 2),
        ("epochs: 10\nbatch: true\n", "batch must be a whole number", 2),
        ("batch: 32\n", "has no 'epochs'", 1),
        (GOOD + "augment: yes\n", "augment must be a mapping", 4),
        (GOOD + "schedule:\n  kind: steps\n  drops: 3\n", "drops must be a list", 6),
        (GOOD + "schedule:\n  kind: stepwise\n", "kind is 'stepwise'", 5),
        (GOOD + "checkpoints: [0, 11]\n", "checkpoints [11] lie outside", 4),
        (GOOD + "label_smoothing: -1\n", "label_smoothing must be a number from 0 to 1", 4),
        ("epochs: 0\nbatch: 32\n", "epochs must be a whole number from 1 to", 1),
        (GOOD + "epochs: 4\n", "'epochs' appears twice", 4),
        (GOOD + "resolution:\n  - {start: 0.5, scale: 1.0}\n", "resolution must start at 0", 4),
        (GOOD + "optimizer: [\n", "not YAML", 5),
        ("", "the file is empty", None),
        ("- 1\n", "must be a mapping", 1),
    ],
)  # fmt: skip
def test_mistakes_name_their_line(text: str, what: str, line: int | None) -> None:
    with pytest.raises(InputError) as caught:
        parse_recipe(text, "my.yml")
    assert what in caught.value.what
    assert caught.value.where == ("my.yml" if line is None else f"my.yml, line {line}")


def test_a_near_miss_is_named() -> None:
    with pytest.raises(InputError, match="unknown key") as caught:
        parse_recipe(GOOD + "optimiser: {}\n")
    assert "did you mean optimizer?" in caught.value.do


def test_missing_recipes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file") as caught:
        read_recipe(tmp_path / "none.yml")
    assert str(tmp_path) in caught.value.where
    with pytest.raises(NotFound) as unknown:
        read_recipe("ifn")
    assert "ifm" in unknown.value.do


def test_numbers_without_a_dot_are_numbers() -> None:
    """YAML 1.1 reads 1e-4 as text."""
    text = "epochs: 1\nbatch: 2\noptimizer: {weight_decay: 1e-4, learning_rate: 1}\n"
    assert parse_recipe(text).optimizer == Optimizer(learning_rate=1.0, weight_decay=1e-4)


def test_the_digest_names_the_content() -> None:
    recipe = read_recipe("fast")
    assert dataclasses.replace(recipe, about="another text").digest() == recipe.digest()
    changed = [dataclasses.replace(recipe, batch=63), dataclasses.replace(recipe, keep="best")]
    assert len({recipe.digest(), *(r.digest() for r in changed)}) == 3


@given(
    st.sampled_from(["constant", "steps", "one-cycle", "cosine"]), st.floats(0, 0.9), st.floats(0, 1),
    st.integers(1, 200),
)  # fmt: skip
def test_the_learning_rate_stays_between_zero_and_the_recipe(
    kind: str, warmup: float, final: float, epochs: int
) -> None:
    schedule = Schedule(kind, tuple(range(1, epochs, 7)), 0.5, warmup, final)  # type: ignore[arg-type]
    rates = [factor(schedule, epochs * i / 50, epochs) for i in range(51)]
    assert all(0 <= rate <= 1 for rate in rates)
    top = max(range(51), key=rates.__getitem__)
    assert rates[top:] == sorted(rates[top:], reverse=True)
    if kind in ("one-cycle", "cosine"):
        assert rates[-1] == pytest.approx(final) and rates[: top + 1] == sorted(rates[: top + 1])


def test_images_grow() -> None:
    steps = [Resolution(0, 0.5), Resolution(0.3, 0.75), Resolution(0.7, 1.0)]
    assert [scale_at(steps, share) for share in (0, 0.29, 0.3, 0.69, 0.7, 0.99)] == [
        0.5,
        0.5,
        0.75,
        0.75,
        1,
        1,
    ]
    assert scale_at([], 0.1) == 1


def test_every_field_reaches_the_digest() -> None:
    """A field that the digest forgot would let a sweep reuse what it must not."""
    keys = set(read_recipe("fast").to_dict())
    assert keys == {field.name for field in dataclasses.fields(Recipe)}

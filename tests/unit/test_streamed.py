"""Images that stay in their files: the same numbers as in memory, and an error where memory is needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from intertwine import zoo
from intertwine.cli.program import main
from intertwine.data import Streamed, evaluate, load_data
from intertwine.errors import DataError
from intertwine.training import Splits, load_splits, read_recipe, train
from intertwine.training.recipe import Augment

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("lightning_fabric")


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """DIR/train and DIR/test of two classes: 8x8 noise, brighter on the left or on the right."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 24), ("test", 10)):
        for label, name in enumerate(("left", "right")):
            place = tmp_path / "images" / split / name
            place.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 120, (8, 8, 3), dtype=np.uint8)
                pixels[:, 4 * label : 4 * label + 4] += 120
                Image.fromarray(pixels).save(place / f"{number}.png")
    return tmp_path / "images"


def both(folder: Path) -> tuple[Splits, Splits]:
    spec = f"imagefolder:{folder}"
    return load_splits(spec, normalize="cifar10"), load_splits(spec, normalize="cifar10", memory=0)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))


def test_the_same_images(folder: Path) -> None:
    whole, streamed = both(folder)
    assert isinstance(streamed.train, Streamed) and not isinstance(whole.train, Streamed)
    assert streamed.train.shape == whole.train.shape == (3, 8, 8)
    chosen = torch.tensor([5, 0, 41])
    assert torch.equal(streamed.train.rows(chosen), whole.train.images[chosen])
    for (a, x), (b, y) in zip(streamed.test.batches(7), whole.test.batches(7), strict=True):
        assert torch.equal(a, b) and torch.equal(x, y)
    assert torch.equal(streamed.train.take(30).head(40), whole.train.images[:30])
    assert evaluate(net(), streamed.test) == evaluate(net(), whole.test)


def test_training_ends_with_the_same_bits(folder: Path, tmp_path: Path) -> None:
    recipe = replace(
        read_recipe("digits"), epochs=3, batch=10, augment=Augment(flip=True, translate=1), limit=45
    )
    runs = [train(net(), data, recipe, tmp_path / str(k)) for k, data in enumerate(both(folder))]
    assert runs[0].weights.read_bytes() == runs[1].weights.read_bytes()
    assert not torch.equal(zoo.read_weights(runs[0].weights)["0.weight"], net()[0].weight)  # it did train


def test_what_needs_all_images_says_so(folder: Path) -> None:
    with pytest.raises(DataError, match=r"48 images of \(3, 8, 8\) .* streamed"):
        _ = both(folder)[1].train.images


def test_sizes_that_differ(folder: Path) -> None:
    Image.new("RGB", (9, 9)).save(folder / "train" / "left" / "3.png")
    data = load_data(f"imagefolder:{folder}", split="train", memory=0)
    with pytest.raises(DataError, match="size"):
        data.rows(torch.arange(48))
    assert load_data(f"imagefolder:{folder}", split="train", memory=0, size=8).rows(torch.arange(9)).shape[0]


def test_changed_files_are_another_data_set(folder: Path) -> None:
    before = both(folder)[1].digest
    assert both(folder)[1].digest == before
    Image.new("RGB", (8, 8)).save(folder / "train" / "left" / "3.png")
    assert both(folder)[1].digest != before


def test_a_parquet_file(tmp_path: Path, folder: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    files = sorted((folder / "test").rglob("*.png"))
    rows = {"image": [{"bytes": f.read_bytes(), "path": f.name} for f in files],
            "label": [int(f.parent.name == "right") for f in files]}  # fmt: skip
    parquet.write_table(arrow.table(rows), tmp_path / "a.parquet")
    spec = f"parquet:{tmp_path / 'a.parquet'}"
    assert torch.equal(load_data(spec, memory=0).head(99), load_data(spec).images)


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.yml").write_text("epochs: 1\nbatch: 16\noptimizer: {learning_rate: 0.01}\n")
    arguments = ["train", "mlp", "--data", f"imagefolder:{folder}", "--recipe", str(tmp_path / "r.yml")]
    assert main([*arguments, "--memory", "1B", "-o", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] >= 0

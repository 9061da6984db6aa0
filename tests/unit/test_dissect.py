"""Dissection against its definition, its exact invariance, its rotations and its readers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from stitch_nets import residual
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import act, dissect, trace
from intertwine.cli import main
from intertwine.data.concept_set import Annotation, ConceptSet
from intertwine.data.concepts import load_concepts
from intertwine.data.shapes import CATEGORIES, NAMES, THINGS, draw, shapes
from intertwine.errors import DataError, NotFound, Unsupported
from intertwine.inside.network import Network
from intertwine.inside.quantile import Quantile
from intertwine.inside.rotations import Geodesic, random_rotation

pytestmark = pytest.mark.usefixtures("one_thread")


def net(seed: int = 0, units: int = 6) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, units, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(units, units, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(units * 64, 3),
    ).eval()  # fmt: skip


def by_hand(model: nn.Sequential, data: ConceptSet, matrix: np.ndarray | None, q: float) -> np.ndarray:
    """IoU as F.1 says, image by image and concept by concept."""
    maps = model[:5](data.rows(range(len(data)))).detach().double().numpy()
    if matrix is not None:
        maps = np.einsum("nchw,cd->ndhw", maps, matrix)
    units, (height, width) = maps.shape[1], data.shape[1:]
    both = np.zeros((units, len(data.names)))
    union = np.zeros((units, len(data.names)))
    for k in range(units):
        level = np.quantile(maps[:, k], q)
        for i in range(len(data)):
            large = F.interpolate(
                torch.from_numpy(maps[i : i + 1, k : k + 1]), (height, width), mode="bilinear"
            )
            seen = large[0, 0].numpy() > level
            found = data.annotation(i)
            for c, kind in enumerate(data.categories):
                if kind in found.categories:
                    marked = (found.planes == c).any(0) | (c in found.whole)
                    both[k, c] += (seen & marked).sum()
                    union[k, c] += (seen | marked).sum()
    return both / np.maximum(union, 1)


@pytest.mark.parametrize("rotated", [False, True])
def test_iou_is_that_of_the_definition(rotated: bool) -> None:
    data = shapes(9, 16)
    found = dissect(net(), data, "4", rotate="orthogonal", powers=(0, 1), quantile=0.9, batch=4)
    reading = found.readings[1 if rotated else 0]
    row = dict(zip(found.tables()[0].columns, found.tables()[0].rows[int(rotated)], strict=True))
    assert row["basis"] == ("Q^1" if rotated else "own") and row["interpretable"] == len(reading.detectors)
    expected = by_hand(net(), data, random_rotation(6, 0) if rotated else None, 0.9)
    assert np.allclose(reading.iou, expected.max(1), atol=2e-3)  # a pixel on the threshold may differ
    assert (reading.iou > 0).sum() >= 3
    assert (np.take_along_axis(expected, reading.concept[:, None], 1)[:, 0] >= expected.max(1) - 2e-3).all()


def planted() -> tuple[nn.Module, ConceptSet]:
    """A unit that is the mask of one concept, one that is noise; images whose red channel is the mask."""
    rng = np.random.default_rng(0)
    masks = np.zeros((200, 16, 16), bool)
    for mask in masks[:6]:
        y, x = rng.integers(0, 12, 2)
        mask[y : y + 4, x : x + 4] = True
    images = rng.integers(0, 200, (200, 3, 16, 16)).astype(np.uint8)
    images[:, 0] = np.where(masks, 255, images[:, 0] // 4)
    model = nn.Sequential(nn.Conv2d(3, 2, 1, bias=False), nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])[..., None, None])

    dust = rng.random((200, 16, 16)) < 0.01

    def annotation(i: int) -> Annotation:
        plane = np.where(masks[i], 0, np.where(dust[i], 1, -1))
        return Annotation(plane[None], (), frozenset({"object"}))

    names, kinds = ("blob", "dust"), ("object", "object")
    return model, ConceptSet("planted", 200, (3, 16, 16), names, kinds, images.__getitem__, annotation)


def test_a_planted_detector_is_found_and_noise_is_not() -> None:
    model, data = planted()
    (reading,) = dissect(model, data, "1", quantile=0.998).readings
    assert reading.detectors.tolist() == [0] and reading.names[reading.concept[0]] == "blob"
    assert reading.iou[0] > 0.9 and reading.iou[1] < 0.04
    assert reading.concepts_by_category() == {"object": 1}


def test_an_element_of_the_layers_group_changes_nothing_and_a_rotation_does() -> None:
    data, model = shapes(24, 16), net(1)
    own, *moved = dissect(model, data, "4", rotate="group", draws=3, quantile=0.98).readings
    for reading in moved:
        assert sorted(reading.iou.tolist()) == sorted(own.iou.tolist())  # to the last bit
        assert reading.detected() == own.detected()
        assert not np.array_equal(reading.iou, own.iou)  # units did move
    turned = dissect(model, data, "4", rotate="orthogonal", powers=(1,), quantile=0.98).readings[0]
    assert sorted(turned.iou.tolist()) != sorted(own.iou.tolist())


def test_acting_on_the_weights_changes_no_iou() -> None:
    data, model = shapes(24, 16), net(2).double()
    g = trace(model, torch.zeros(1, 3, 16, 16).double()).sample(0)
    first, second = (dissect(m, data, "4", quantile=0.98).readings[0] for m in (model, act(model, g)))
    assert np.allclose(np.sort(first.iou), np.sort(second.iou), atol=1e-3)


@pytest.mark.parametrize("q", [0.5, 0.9, 0.995])
def test_the_running_quantile_is_exact(q: float) -> None:
    numbers = torch.randn(3001, 5, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    running = Quantile(q, len(numbers))
    for part in numbers.split(97):
        running.add(part)
    assert torch.allclose(running.value(), numbers.quantile(q, dim=0), atol=1e-7)
    assert running._kept is not None and len(running._kept) <= (1 - q) * 3001 + 2


def test_powers_of_a_rotation() -> None:
    for size in (2, 7, 64):
        q = random_rotation(size, 3)
        path = Geodesic(q)
        assert np.linalg.det(q) == pytest.approx(1) and np.allclose(q @ q.T, np.eye(size))
        assert np.allclose(path.power(1), q) and np.allclose(path.power(0.3) @ path.power(0.7), q)
        half = path.power(0.5)
        assert np.allclose(half @ half.T, np.eye(size)) and np.linalg.det(half) == pytest.approx(1)
        # the shortest path: half of it turns every plane by half its angle
        assert np.abs(path.angles).max() <= np.pi and np.trace(half) > np.trace(q) - 1e-9
    turn = np.diag([-1.0, -1.0, 1.0])
    assert np.allclose(Geodesic(turn).power(0.5) @ Geodesic(turn).power(0.5), turn)


def test_uniform_rotations_have_no_preferred_direction() -> None:
    mean = np.mean([random_rotation(4, seed) for seed in range(800)], 0)
    assert np.abs(mean).max() < 0.1


def test_inside_a_residual_block() -> None:
    model = residual().float()
    data = shapes(6, 16)
    found = dissect(model, data, "two.relu_1", inside=True)
    assert list(found.groups) == ["two.relu_1", "two.bn2"]
    assert Network(model, data.rows([0, 1])).branch("one.add") == "one.bn2"
    with pytest.raises(NotFound, match="not the output of a residual block"):
        dissect(model, data, "bn", inside=True)


class Tokens(nn.Module):
    """A token transformer: a class token and a grid of patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.first = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(1, 1, 8))
        self.one, self.two, self.head = nn.Linear(8, 12), nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(x), -1, -1), tokens], 1)
        return self.head(self.two(F.gelu(self.one(tokens)))[:, 0])


def test_tokens_are_a_grid_without_the_class_token() -> None:
    found = dissect(Tokens().eval(), shapes(5, 16), "gelu")
    assert found.readings[0].units == 12


def test_values_without_a_grid_are_refused() -> None:
    class Odd(Tokens):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(
                self.two(F.gelu(self.one(self.patch(x).flatten(2).transpose(1, 2)[:, :7])))[:, 0]
            )

    with pytest.raises(Unsupported, match="no grid"):
        dissect(Odd().eval(), shapes(4, 16), "gelu")


def test_activations_in_a_file_are_those_in_memory() -> None:
    data = shapes(8, 16)
    small, large = (dissect(net(), data, "4", memory=m).readings[0].iou for m in (0, 1 << 30))
    assert np.array_equal(small, large)


def test_shapes_are_what_they_say() -> None:
    image, found, thing = draw(5, 48)
    again, _, _ = draw(5, 48)
    assert np.array_equal(image, again) and image.dtype == np.uint8
    seen = {NAMES[c] for c in np.unique(found.planes) if c >= 0}
    assert THINGS[thing] in seen
    for plane, kind in zip(found.planes, ("colour", "texture", "part", "object"), strict=True):
        assert {CATEGORIES[c] for c in np.unique(plane) if c >= 0} <= {kind}
    # a part lies inside its object, and everything that has an object has a colour
    assert (found.planes[3][found.planes[2] >= 0] >= 0).all()
    assert ((found.planes[0] >= 0) == (found.planes[3] >= 0)).all()
    counts = [draw(i, 16)[2] for i in range(200)]
    assert min(np.bincount(counts)) > 20


def write_png(path: Path, pixels: np.ndarray) -> None:
    from PIL import Image

    Image.fromarray(pixels).save(path)


def broden(folder: Path) -> Path:
    """Two images: masks of objects at half size and of parts, a scene; in the second only a texture."""
    (folder / "images").mkdir(parents=True)
    for i in range(2):
        write_png(folder / "images" / f"{i}.png", np.full((16, 16, 3), 40 * i + 20, np.uint8))
    objects, parts = np.zeros((8, 8, 3), np.uint8), np.zeros((16, 16, 3), np.uint8)
    objects[:4, :, 0] = 1
    objects[4:, :, 0], objects[4:, :, 1] = 44, 1  # label 300 = 44 + 256
    parts[:2, :2, 0] = 2
    write_png(folder / "images" / "0_object.png", objects)
    write_png(folder / "images" / "0_part.png", parts)
    tables = {
        "index.csv": [
            "image,split,ih,iw,sh,sw,color,object,part,scene,texture",
            "0.png,train,16,16,8,8,,0_object.png,0_part.png,7,",
            "1.png,val,16,16,8,8,,,,,9",
        ],
        "category.csv": ["name,first,last,count,frequency", *(f"{c},0,0,1,1" for c in
                         ("color", "object", "part", "scene", "texture"))],
        "label.csv": ["number,name,category,frequency,coverage,syns", "1,sky,object(2),1,1,",
                      "2,wheel,part(3);object(1),1,1,",
                      "300,sea,object(1),1,1,", "7,street,scene(1),1,1,", "9,dotted,texture(1),1,1,"],
    }  # fmt: skip
    for name, lines in tables.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def test_the_broden_layout(tmp_path: Path) -> None:
    data = load_concepts(str(broden(tmp_path / "broden")))
    assert data.names == ("sky", "wheel", "sea", "street", "dotted") and data.shape == (3, 16, 16)
    assert data.categories == ("object", "part", "object", "scene", "texture")
    first, second = data.annotation(0), data.annotation(1)
    assert first.planes.shape == (2, 16, 16) and first.whole == (3,)
    assert (first.planes[0][:8] == 0).all() and (first.planes[0][8:] == 2).all()
    assert (first.planes[1] == 1).sum() == 4 and (first.planes[1] >= 0).sum() == 4
    assert second.whole == (4,) and second.categories == {"texture"} and not len(second.planes)
    assert dissect(net(), data, "4").readings[0].units == 6


def test_folders_and_parquet(tmp_path: Path) -> None:
    for part in ("images", "masks", "scenes/beach", "scenes/forest"):
        (tmp_path / part).mkdir(parents=True)
    mask = np.zeros((16, 16), np.uint8)
    mask[4:8] = 1
    for i in range(3):
        write_png(tmp_path / "images" / f"{i}.png", np.full((16, 16, 3), 30 * i, np.uint8))
        write_png(tmp_path / "masks" / f"{i}.png", mask)
    (tmp_path / "classes.txt").write_text("void\nroad\n")
    for name in ("beach", "forest"):
        write_png(tmp_path / "scenes" / name / "a.png", np.full((16, 16, 3), 90, np.uint8))
    data = load_concepts(f"{tmp_path}+{tmp_path / 'scenes'}")
    assert data.names == ("void", "road", "beach", "forest") and len(data) == 5
    assert data.categories == ("object", "object", "scene", "scene")
    assert set(np.unique(data.annotation(0).planes)) == {-1, 1} and data.annotation(4).whole == (3,)
    write_png(tmp_path / "masks" / "0.png", mask[:, :12])
    with pytest.raises(DataError, match="is 12x16, its image 16x16"):
        load_concepts(str(tmp_path)).annotation(0)
    (tmp_path / "masks" / "0.png").unlink()
    with pytest.raises(DataError, match=r"no mask 0\.png"):
        load_concepts(str(tmp_path))


def test_parquet(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    write_png(tmp_path / "i.png", np.full((16, 16, 3), 30, np.uint8))
    write_png(tmp_path / "m.png", np.eye(16, dtype=np.uint8))
    image, mask = ({"bytes": (tmp_path / f"{n}.png").read_bytes(), "path": ""} for n in "im")
    table = arrow.table({"image": [image, image], "mask": [mask, mask]})
    parquet.write_table(table.replace_schema_metadata({"classes": "ground,line"}), tmp_path / "a.parquet")
    data = load_concepts(f"part={tmp_path / 'a.parquet'}")
    assert data.names == ("ground", "line") and data.categories == ("part", "part")
    assert (data.annotation(1).planes[0] == np.eye(16)).all()
    labelled = arrow.table({"image": [image], "label": [1]}).replace_schema_metadata({"classes": "a,b"})
    parquet.write_table(labelled, tmp_path / "b.parquet")
    assert load_concepts(f"texture={tmp_path / 'b.parquet'}").annotation(0).whole == (1,)


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no concepts at"):
        load_concepts(str(tmp_path / "absent"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="there are no images"):
        load_concepts(str(tmp_path / "empty"))
    with pytest.raises(NotFound, match="no layer named 'nine'"):
        dissect(net(), shapes(4, 16), "nine")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text(
        "from torch import nn\n"
        "def factory():\n"
        "    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(980, 2))\n"
    )
    page = tmp_path / "page.html"
    command = ["dissect", f"{tmp_path / 'model.py'}:factory", "--input", "1x3x16x16", "--at", "1"]
    rest = [
        "--concepts",
        "shapes:10:16",
        "--rotate",
        "orthogonal",
        "--powers",
        "0:1:0.5",
        "--json",
        "-o",
        str(page),
    ]
    assert main([*command, *rest]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [r["alpha"] for r in printed["readings"]] == [0, 0.5, 1] and printed["groups"]["1"].startswith(
        "perm"
    )
    text = page.read_text()
    assert "data:image/png;base64," in text and "Interpretable units" in text
    assert main([*command, "--concepts", "nowhere"]) == 2
    assert "no concepts at" in capsys.readouterr().err


def test_images_are_grey_for_a_network_that_takes_one_channel() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2)).eval()
    concepts = load_concepts("shapes:6:8")
    found = dissect(net, concepts, "1", example=torch.zeros(1, 1, 8, 8))
    assert found.readings[0].units == 4
    assert np.array_equal(concepts.grey().image(0)[0], concepts.image(0).mean(0).round())

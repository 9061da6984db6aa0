"""DATA strings: every source from small files made here, and every bad one as a clear error."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from intertwine.data import Dataset, load_data, named, parse_normalize
from intertwine.data.batches import Batches
from intertwine.errors import DataError, InputError, NotFound

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)  # N x H x W x C, all sizes different
LABELS = np.array([2, 0, 1, 2, 1, 0])
EXPECTED = torch.from_numpy(PIXELS.transpose(0, 3, 1, 2).copy()).float() / 255


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, lossless=True)
    return buffer.getvalue()


def write_parquet(path: Path, images: list[object], labels: object = LABELS, column: str = "img") -> Path:
    metadata = {b"huggingface": b'{"info": {"features": {"label": {"names": ["cat", "dog", "elk"]}}}}'}
    table = pa.table({column: images, "label": labels}).replace_schema_metadata(metadata)
    pq.write_table(table, path, row_group_size=2)
    return path


def test_digits_split_is_fixed_disjoint_and_complete() -> None:
    train, test, everything = (load_data("digits", split=split) for split in ("train", "test", "all"))
    assert (len(train), len(test), len(everything)) == (1297, 500, 1797)
    assert test.images.shape[1:] == (1, 8, 8)
    assert float(everything.images.min()) == 0.0
    assert float(everything.images.max()) == 1.0
    assert torch.cat([test.images, train.images]).equal(everything.images)
    assert test.classes == tuple("0123456789")
    # the shipped checkpoints were trained on it: it must not move with a numpy or scikit-learn release
    assert test.labels[:12].tolist() == [2, 8, 2, 6, 6, 7, 1, 9, 8, 5, 2, 8]
    assert train.labels[:12].tolist() == [9, 1, 5, 2, 2, 1, 9, 8, 4, 3, 3, 0]
    with pytest.raises(DataError, match="validation"):
        load_data("digits", split="validation")


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
@pytest.mark.parametrize("layout", ["struct", "bytes"])
@pytest.mark.parametrize("column", ["img", "image"])
def test_parquet(tmp_path: Path, kind: str, layout: str, column: str) -> None:
    blobs = [encoded(p, kind) for p in PIXELS]
    images: list[object] = [{"bytes": b, "path": None} for b in blobs] if layout == "struct" else list(blobs)
    data = load_data(f"parquet:{write_parquet(tmp_path / 'd.parquet', images, column=column)}")
    assert data.images.equal(EXPECTED)
    assert data.labels.tolist() == LABELS.tolist()
    assert data.classes == ("cat", "dog", "elk")


def test_limit_and_batches(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "d.parquet", [encoded(p) for p in PIXELS])
    data = load_data(f"parquet:{path}", limit=5, batch=2)
    assert data.images.equal(EXPECTED[:5])
    assert [len(labels) for _, labels in data.batches()] == [2, 2, 1]
    assert torch.cat([images for images, _ in data.batches(3)]).equal(data.images)
    assert data.take(3).images.equal(EXPECTED[:3])
    assert len(load_data(f"parquet:{path}", limit=99)) == 6


@pytest.mark.parametrize(
    ("text", "mean", "std"),
    [
        ("cifar10", (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
        ("cifar10-legacy", (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        ("imagenet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("0.5,0.25,0/1,2,4", (0.5, 0.25, 0.0), (1.0, 2.0, 4.0)),
    ],
)
def test_normalisation(tmp_path: Path, text: str, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    np.savez(tmp_path / "d.npz", images=PIXELS, labels=LABELS)
    got = load_data(f"npz:{tmp_path / 'd.npz'}", normalize=text).images
    for channel in range(3):
        assert torch.allclose(got[:, channel], (EXPECTED[:, channel] - mean[channel]) / std[channel])
    assert parse_normalize("none") is None


@pytest.mark.parametrize(
    "text", ["", "cifar", "1,2/3", "1,2,3", "1/0", "1/-1", "a/b", "nan/1", "1/2/3", "1/inf"]
)
def test_bad_normalisation(text: str) -> None:
    with pytest.raises(InputError, match="cannot read the normalisation"):
        load_data("digits", normalize=text)


def test_normalisation_must_fit_the_channels(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="3 means"):
        load_data("digits", normalize="cifar10")
    assert float(load_data("digits", normalize="0.5/0.5").images.min()) == -1.0


@pytest.mark.parametrize(
    "names", [("images", "labels"), ("x", "y"), ("x_test", "y_test"), ("data", "targets")]
)
def test_npz_names(tmp_path: Path, names: tuple[str, str]) -> None:
    np.savez(tmp_path / "d.npz", **{names[0]: PIXELS, names[1]: LABELS[:, None]})
    assert load_data(f"npz:{tmp_path / 'd.npz'}").images.equal(EXPECTED)


def test_npz_layouts_and_splits(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    floats = RNG.normal(size=(6, 3, 5, 4))
    np.savez(path, x_train=floats, y_train=LABELS, x_test=floats[:2, 0], y_test=LABELS[:2])
    train, test = load_data(f"npz:{path}", split="train"), load_data(f"npz:{path}")
    assert train.images.equal(torch.from_numpy(floats).float())
    assert test.images.shape == (2, 1, 5, 4)
    np.savez(path, x=RNG.normal(size=(6, 7)), y=LABELS)
    assert load_data(f"npz:{path}").images.shape == (6, 7)


def bad_npz() -> list[tuple[dict[str, np.ndarray], str]]:
    nan = PIXELS.astype(np.float32)
    nan[0, 0, 0, 0] = np.nan
    return [
        ({"images": PIXELS}, "labels"),
        ({"labels": LABELS}, "images"),
        ({"images": PIXELS, "labels": LABELS[:3]}, "6 images"),
        ({"images": PIXELS, "labels": LABELS - 1}, "from 0"),
        ({"images": PIXELS, "labels": LABELS / 2}, "float64"),
        ({"images": nan, "labels": LABELS}, "NaN"),
        ({"images": PIXELS.astype(np.int32), "labels": LABELS}, "int32"),
        ({"images": PIXELS[:0], "labels": LABELS[:0]}, "empty"),
        ({"images": PIXELS[None], "labels": LABELS[:1]}, "shape"),
        ({"images": np.array([object()]), "labels": LABELS}, "Python objects"),
    ]


@pytest.mark.parametrize(("arrays", "says"), bad_npz())
def test_bad_npz(tmp_path: Path, arrays: dict[str, np.ndarray], says: str) -> None:
    np.savez(tmp_path / "d.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(DataError) as info:
        load_data(f"npz:{tmp_path / 'd.npz'}")
    assert says in str(info.value)


def write_folder(root: Path) -> Path:
    for index, (pixels, label) in enumerate(zip(PIXELS, LABELS, strict=True)):
        folder = root / ("ant", "bee", "cow")[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    (root / "ant" / "notes.txt").write_text("not an image")
    return root


@pytest.mark.parametrize("split", ["", "test"])
def test_imagefolder(tmp_path: Path, split: str) -> None:
    write_folder(tmp_path / "d" / split)
    data = load_data(f"imagefolder:{tmp_path / 'd'}")
    order = np.argsort(LABELS, kind="stable")
    assert data.images.equal(EXPECTED[torch.from_numpy(order)])
    assert data.labels.tolist() == sorted(LABELS.tolist())
    assert data.classes == ("ant", "bee", "cow")
    assert load_data(f"imagefolder:{tmp_path / 'd'}", limit=3).labels.tolist() == [0, 1, 2]


def test_images_of_different_sizes_need_a_size(tmp_path: Path) -> None:
    root = write_folder(tmp_path)
    Image.new("RGB", (40, 20), (255, 0, 0)).save(root / "bee" / "wide.png")
    with pytest.raises(DataError, match="--size"):
        load_data(f"imagefolder:{root}")
    data = load_data(f"imagefolder:{root}", size=8)
    assert data.images.shape == (7, 3, 8, 8)
    red = data.images[data.labels == 1][-1]
    assert red[0].eq(1).all()
    assert not red[1:].any()


def test_grey_and_palette_images(tmp_path: Path) -> None:
    grey = PIXELS[..., 0]
    path = write_parquet(tmp_path / "g.parquet", [encoded(p) for p in grey])
    assert load_data(f"parquet:{path}").images.equal(EXPECTED[:, :1])
    mixed = [encoded(grey[0]), *(encoded(p) for p in PIXELS[1:])]
    path = write_parquet(tmp_path / "m.parquet", mixed)
    assert load_data(f"parquet:{path}").images[0].equal(EXPECTED[0, :1].expand(3, -1, -1))


def write_idx(path: Path, array: np.ndarray) -> None:
    content = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_fashion_mnist(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grey = PIXELS[..., 0].copy()
    write_idx(tmp_path / f"t10k-images-idx3-ubyte{suffix}", grey)
    write_idx(tmp_path / f"t10k-labels-idx1-ubyte{suffix}", LABELS.astype(np.uint8))
    data = load_data(f"fashion-mnist:{tmp_path}")
    assert data.images.equal(EXPECTED[:, :1])
    assert data.classes[9] == "Ankle boot"
    assert len(load_data(f"fashion-mnist:{tmp_path}", limit=2)) == 2
    monkeypatch.setattr(named, "FASHION_FOLDERS", ("/nowhere", str(tmp_path)))
    assert load_data("fashion-mnist").images.equal(data.images)
    with pytest.raises(DataError, match="train-images") as info:
        load_data(f"fashion-mnist:{tmp_path}", split="train")
    assert str(tmp_path) in str(info.value)


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\x08", b"\0\0\x0d\x01\0\0\0\x01\0", b"\0\0\x08\x01\0\0\0\x09\0"]
)
def test_bad_idx(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(content)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(content)
    with pytest.raises(DataError, match="cannot read"):
        load_data(f"fashion-mnist:{tmp_path}")


def test_torchvision_dataset(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    grey = RNG.integers(0, 256, (6, 28, 28), dtype=np.uint8)
    for stem in ("t10k", "train"):
        write_idx(raw / f"{stem}-images-idx3-ubyte", grey)
        write_idx(raw / f"{stem}-labels-idx1-ubyte", LABELS.astype(np.uint8))
    data = load_data(f"torchvision:MNIST:{tmp_path}", limit=4)
    assert data.images.equal(torch.from_numpy(grey[:4, None]).float() / 255)
    assert data.labels.tolist() == LABELS[:4].tolist()
    assert data.classes[0] == "0 - zero"


def test_torchvision_dataset_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing is downloaded") as info:
        load_data(f"torchvision:CIFAR10:{tmp_path}")
    assert str(tmp_path) in str(info.value)
    with pytest.raises(NotFound, match="CIFAR11"):
        load_data(f"torchvision:CIFAR11:{tmp_path}")


@pytest.mark.parametrize(
    "spec", ["", "digit", "digits:x", "parquet", "parquet:", "npz:", "torchvision:CIFAR10"]
)
def test_bad_specs(spec: str) -> None:
    with pytest.raises(DataError, match="parquet:FILE"):
        load_data(spec)


@pytest.mark.parametrize("kind", ["parquet", "npz", "imagefolder"])
def test_missing_files_say_where(tmp_path: Path, kind: str) -> None:
    with pytest.raises(DataError, match="no such") as info:
        load_data(f"{kind}:{tmp_path / 'nothing'}")
    assert str(tmp_path / "nothing") in str(info.value)


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_corrupt_files(tmp_path: Path, kind: str) -> None:
    (tmp_path / "d").write_bytes(b"PAR1 garbage PAR1")
    with pytest.raises(DataError, match="cannot read"):
        load_data(f"{kind}:{tmp_path / 'd'}")


def test_bad_parquet(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "d.parquet", [encoded(PIXELS[0]), *[b"no image"] * 5])
    with pytest.raises(DataError, match="row 1"):
        load_data(f"parquet:{path}")
    path = write_parquet(tmp_path / "d.parquet", [encoded(p) for p in PIXELS], column="picture")
    with pytest.raises(DataError, match="picture"):
        load_data(f"parquet:{path}")
    path = write_parquet(tmp_path / "d.parquet", [None, *(encoded(p) for p in PIXELS[1:])])
    with pytest.raises(DataError, match="no image or no label"):
        load_data(f"parquet:{path}")
    path = write_parquet(tmp_path / "d.parquet", [encoded(p) for p in PIXELS], labels=LABELS + 3)
    with pytest.raises(DataError, match="only 3 class names"):
        load_data(f"parquet:{path}")


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one folder a class"):
        load_data(f"imagefolder:{tmp_path}")


@pytest.mark.parametrize("name", ["limit", "batch", "size"])
@pytest.mark.parametrize("value", [0, -3])
def test_sizes_must_be_positive(name: str, value: int) -> None:
    with pytest.raises(InputError, match=name):
        load_data("digits", **{name: value})  # type: ignore[arg-type]


def test_nothing_is_written_beside_the_data(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "d.parquet", [encoded(p) for p in PIXELS])
    before = sorted(tmp_path.iterdir()), path.read_bytes()
    assert isinstance(load_data(f"parquet:{path}"), Dataset)
    assert (sorted(tmp_path.iterdir()), path.read_bytes()) == before


def test_batches_of_several_forms_are_refused() -> None:
    x, y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
    for data, says in (
        ([x, x, torch.zeros(4, 2)], "rows of 2 and of 3"),
        ([(x, y), x], "with labels, another a tensor"),
        ([(x, y), (x, "labels")], "with labels, another a tensor"),
        ([{"a": x}, {"b": x}], "the inputs a, another the inputs b"),
        ([{"a": x}, {"a": torch.zeros(4, 2)}], "rows of 2 and of 3"),
    ):
        with pytest.raises(DataError, match=says):
            Batches(data).whole()

"""Readers of files: parquet in the Hugging Face image layout, npz, a folder of class folders, idx."""

from __future__ import annotations

import gzip
import json
import struct
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from intertwine.data.dataset import Raw
from intertwine.data.decode import decode
from intertwine.data.streamed import Encoded
from intertwine.errors import DataError, MissingExtra

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
_IMAGE_COLUMNS = ("img", "image", "images")
_LABEL_COLUMNS = ("label", "labels", "fine_label", "target", "y")


def assert_file(path: Path, kind: str) -> None:
    """Raise DataError that says where it looked."""
    if not path.is_file():
        raise DataError(f"no such {kind} file: {path}", where=str(path.absolute()))


def read_parquet(path: Path, *, limit: int | None, size: int | None) -> Encoded:
    """A column of {bytes, path} structs (or of bytes) and a column of integer labels."""
    assert_file(path, "parquet")
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise MissingExtra("pyarrow is not installed", do='pip install "intertwine[vision]"') from error
    try:
        file = parquet.ParquetFile(path)
        names = file.schema_arrow.names
        image = _column(_IMAGE_COLUMNS, names, path)
        label = _column(_LABEL_COLUMNS, names, path)
        rows: list[dict[str, Any]] = []
        for batch in file.iter_batches(batch_size=1000, columns=[image, label]):
            rows += batch.to_pylist()
            if limit is not None and len(rows) >= limit:
                break
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"cannot read {path}: {error}", do="the file is corrupt or not parquet") from error
    rows = rows[:limit]
    if any(row[label] is None or row[image] is None for row in rows):
        raise DataError("some rows have no image or no label", where=str(path))
    blobs = [row[image]["bytes"] if isinstance(row[image], dict) else row[image] for row in rows]
    items = [(f"row {i} of {path.name}", blob) for i, blob in enumerate(blobs)]
    names = _class_names(file.schema_arrow.metadata, label)
    return Encoded(items, np.array([row[label] for row in rows]), names, size)


def _column(candidates: tuple[str, ...], names: list[str], path: Path) -> str:
    for name in candidates:
        if name in names:
            return name
    raise DataError(
        f"{path.name} has no column called {' or '.join(candidates)}",
        where=str(path),
        do=f"it has {', '.join(names)}",
    )


def _class_names(metadata: dict[bytes, bytes] | None, label: str) -> tuple[str, ...] | None:
    """The names in the Hugging Face description of the label column, where there are any."""
    try:
        names = json.loads((metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
        return tuple(map(str, names))
    except (KeyError, TypeError, ValueError):
        return None


def read_npz(path: Path, *, split: str, limit: int | None) -> Raw:
    """Arrays called images/labels, x/y or data/targets, or the same with _train and _test; uint8 or float."""
    assert_file(path, "npz")
    try:
        with np.load(path, allow_pickle=False) as archive:
            x = _array(archive, ("images", "x", "X", "data"), split, path)
            y = _array(archive, ("labels", "y", "Y", "targets"), split, path)
            images, labels = (np.atleast_1d(archive[key])[:limit] for key in (x, y))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"cannot read {path}: {error}", do="the file is corrupt, or holds Python objects"
        ) from error
    if not (np.issubdtype(images.dtype, np.floating) or images.dtype == np.uint8):
        raise DataError(
            f"images of dtype {images.dtype}", where=str(path), do="store uint8 (0..255) or floats"
        )
    if labels.shape[1:] == (1,):  # a column, as Keras stores CIFAR
        labels = labels[:, 0]
    return Raw(_channels_first(images), labels)


def _array(archive: Any, names: tuple[str, ...], split: str, path: Path) -> str:
    for name in names:
        for key in (f"{name}_{split}", f"{split}_{name}", name):
            if key in archive.files:
                return key
    raise DataError(
        f"{path.name} has no array called {' or '.join(names)}",
        where=str(path),
        do=f"it has {', '.join(archive.files)}",
    )


def _channels_first(images: np.ndarray) -> np.ndarray:
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[3] in (1, 3) and images.shape[1] not in (1, 3):
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images


def read_imagefolder(root: Path, *, split: str, limit: int | None, size: int | None) -> Encoded:
    """DIR/class/image, or DIR/split/class/image; a limit takes files evenly, not only the first classes."""
    if not root.is_dir():
        raise DataError(f"no such folder: {root}", where=str(root.absolute()))
    if (root / split).is_dir():
        root = root / split
    classes = sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    files = [
        (path, label)
        for label, name in enumerate(classes)
        for path in sorted((root / name).rglob("*"))
        if path.suffix.lower() in IMAGE_SUFFIXES
    ]
    if not files:
        raise DataError(
            f"no images in {root}", do="expected one folder a class: DIR/cat/1.png, DIR/dog/7.jpg, ..."
        )
    if limit is not None and limit < len(files):
        files = [files[index * len(files) // limit] for index in range(limit)]
    items = [(str(path), path) for path, _ in files]
    return Encoded(items, np.array([label for _, label in files]), tuple(classes), size)


def read_idx(path: Path, *, limit: int | None = None) -> np.ndarray:
    """An unsigned-byte array in the idx format of MNIST, gzipped or not."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            zeros, kind, ndim = struct.unpack(">HBB", file.read(4))
            if zeros or kind != 8 or not 1 <= ndim <= 4:
                raise ValueError("it does not start as an idx file of bytes does")
            shape = struct.unpack(f">{ndim}I", file.read(4 * ndim))
            count = shape[0] if limit is None else min(limit, shape[0])
            content = file.read(count * int(np.prod(shape[1:], dtype=np.int64)))
        return np.frombuffer(content, np.uint8).reshape(count, *shape[1:]).copy()
    except (OSError, EOFError, ValueError, struct.error) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def read_items(items: Any, *, limit: int | None, size: int | None) -> Raw:
    """The (image, label) pairs of a torchvision data set."""
    pairs = list(islice((items[i] for i in range(len(items))), limit))
    pixels = decode(((f"item {i}", image) for i, (image, _) in enumerate(pairs)), size)
    classes = getattr(items, "classes", None)
    return Raw(pixels, np.array([label for _, label in pairs]), tuple(map(str, classes)) if classes else None)

"""Readers of files: parquet in the Hugging Face image layout, npz, a folder of class folders, idx."""

from __future__ import annotations

import gzip
import json
import math
import struct
import warnings
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from intertwine.data.dataset import Raw
from intertwine.data.decode import decode
from intertwine.data.streamed import Encoded
from intertwine.errors import DataError, MissingExtra
from intertwine.reading import check_memory, existing_file, files_below, parsing
from intertwine.text import quoted

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
_IMAGE_COLUMNS = ("img", "image", "images")
_LABEL_COLUMNS = ("label", "labels", "fine_label", "target", "y")
_TEXT_COLUMNS = ("text", "content", "sentence")


def read_parquet(path: Path, *, limit: int | None, size: int | None) -> Encoded:
    """A column of {bytes, path} structs (or of bytes) and a column of integer labels."""
    path = existing_file(path, "parquet file", DataError)
    with parsing(path, DataError, do="the file is corrupt or not parquet"):
        file = _open_parquet(path)
        image = _column(_IMAGE_COLUMNS, file.schema_arrow.names, path)
        label = _column(_LABEL_COLUMNS, file.schema_arrow.names, path)
        _check_columns(file, image, label, path)
        rows: list[dict[str, Any]] = []
        for batch in file.iter_batches(batch_size=1000, columns=[image, label]):
            rows += batch.to_pylist()
            if limit is not None and len(rows) >= limit:
                break
        rows = rows[:limit]
        blobs = [row[image]["bytes"] if isinstance(row[image], dict) else row[image] for row in rows]
        labels = [row[label] for row in rows]
        names = _class_names(file.schema_arrow.metadata, label)
    if any(value is None for value in [*blobs, *labels]):
        raise DataError("some rows have no image or no label", where=str(path))
    items = [(f"row {i} of {path.name}", blob) for i, blob in enumerate(blobs)]
    # uint64 holds every integer of parquet that is not negative; what is too large is complained of later
    kind = np.int64 if min(labels, default=0) < 0 else np.uint64
    return Encoded(items, np.array(labels, dtype=kind), names, size)


def _open_parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise MissingExtra("pyarrow is not installed", do='pip install "intertwine[vision]"') from error
    return parquet.ParquetFile(path)


def has_text(path: Path) -> bool:
    """Whether a parquet file holds text and no images."""
    with parsing(path, DataError, do="the file is corrupt or not parquet"):
        names = _open_parquet(path).schema_arrow.names
    return not set(names) & set(_IMAGE_COLUMNS) and bool(set(names) & set(_TEXT_COLUMNS))


def text_column(path: Path) -> Iterator[str]:
    """The rows of a column of text, some thousand at a time, each ended by a line's end."""
    file = _open_parquet(path)
    name = _column(_TEXT_COLUMNS, file.schema_arrow.names, path)
    for batch in file.iter_batches(batch_size=4096, columns=[name]):
        yield "".join(f"{row}\n" for row in batch.column(0).to_pylist() if row)


def _check_columns(file: Any, image: str, label: str, path: Path) -> None:
    """Labels are integers, images are bytes or {bytes, ...}, and both fit memory once unpacked."""
    from pyarrow import types

    schema = file.schema_arrow
    kind = schema.field(label).type
    if not types.is_integer(kind):
        raise DataError(f"the column {label!r} holds {kind}, not integer labels", where=str(path))
    kind = schema.field(image).type
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    if not (types.is_binary(kind) or types.is_large_binary(kind)):
        raise DataError(
            f"the column {image!r} holds {kind}, not encoded images",
            where=str(path),
            do="store {bytes, path} structs, as Hugging Face does",
        )
    groups = range(file.metadata.num_row_groups)
    unpacked = sum(file.metadata.row_group(i).total_byte_size for i in groups)
    check_memory(unpacked, f"what {path} unpacks to", DataError)


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
    path = existing_file(path, "npz file", DataError)
    do = "the file is corrupt, or holds Python objects"
    with parsing(path, DataError, do=do), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not zipfile.is_zipfile(path):
            raise ValueError("it is not a zip archive of arrays, as numpy.savez writes it")
        with np.load(path, allow_pickle=False) as archive:
            x = _array(archive, ("images", "x", "X", "data"), split, path)
            y = _array(archive, ("labels", "y", "Y", "targets"), split, path)
            for key in (x, y):
                _check_size(archive, key, path)
            images, labels = (np.atleast_1d(archive[key])[:limit] for key in (x, y))
    if not (np.issubdtype(images.dtype, np.floating) or images.dtype == np.uint8):
        raise DataError(
            f"images of dtype {images.dtype}", where=str(path), do="store uint8 (0..255) or floats"
        )
    if labels.shape[1:] == (1,):  # a column, as Keras stores CIFAR
        labels = labels[:, 0]
    return Raw(_channels_first(images), labels)


def _check_size(archive: Any, key: str, path: Path) -> None:
    """The array that the header of a member promises fits memory, and the member holds that much."""
    name = key if key in archive.zip.namelist() else f"{key}.npy"
    with archive.zip.open(name) as member:
        version = np.lib.format.read_magic(member)
        form = np.lib.format
        read = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
        shape, _, dtype = read(member)
    size = math.prod(shape) * dtype.itemsize
    check_memory(size, f"the array {key!r} of {path.name}", DataError)
    if size > archive.zip.getinfo(name).file_size:
        raise DataError(f"the array {key!r} of {path.name} is cut off", where=str(path))


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
    with parsing(f"the folder {quoted(str(root))}", DataError):
        if not root.is_dir():
            raise DataError(f"no such folder: {root}", where=str(root.absolute()))
        if split and (root / split).is_dir():
            root = root / split
        classes = sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
        files = [
            (path, label)
            for label, name in enumerate(classes)
            for path in files_below(root / name, IMAGE_SUFFIXES, DataError)
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
    path = existing_file(path, "idx file", DataError)
    opener = gzip.open if path.suffix == ".gz" else open
    with parsing(path, DataError), opener(path, "rb") as file:
        zeros, kind, ndim = struct.unpack(">HBB", file.read(4))
        if zeros or kind != 8 or not 1 <= ndim <= 4:
            raise ValueError("it does not start as an idx file of bytes does")
        shape = struct.unpack(f">{ndim}I", file.read(4 * ndim))
        count = shape[0] if limit is None else min(limit, shape[0])
        size = count * math.prod(shape[1:])
        check_memory(size, f"the {count:,} arrays of {path}", DataError)
        content = file.read(size)
        return np.frombuffer(content, np.uint8).reshape(count, *shape[1:]).copy()


def read_items(items: Any, *, limit: int | None, size: int | None) -> Raw:
    """The (image, label) pairs of a torchvision data set."""
    pairs = list(islice((items[i] for i in range(len(items))), limit))
    pixels = decode(((f"item {i}", image) for i, (image, _) in enumerate(pairs)), size)
    classes = getattr(items, "classes", None)
    return Raw(pixels, np.array([label for _, label in pairs]), tuple(map(str, classes)) if classes else None)

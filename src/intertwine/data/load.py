"""Turn a DATA string into a Dataset.

digits                       scikit-learn's 1x8x8 digits, in the package's dependencies
parquet:FILE                 Hugging Face image layout: {bytes, path} structs and labels
npz:FILE                     arrays images and labels (or x and y, ...)
imagefolder:DIR              DIR/class/image
torchvision:NAME:ROOT        a data set that torchvision knows, already in ROOT
fashion-mnist[:DIR]          the four idx files
"""

from __future__ import annotations

import numpy as np
import torch

from intertwine import numbers
from intertwine.data.dataset import Dataset, Raw, assert_labels, assert_well_formed
from intertwine.data.files import read_imagefolder, read_npz, read_parquet
from intertwine.data.named import read_digits, read_fashion_mnist, read_torchvision
from intertwine.data.normalize import normalize_, parse_normalize
from intertwine.data.streamed import Encoded, Streamed
from intertwine.errors import DataError
from intertwine.reading import check_memory, memory_bytes, user_path
from intertwine.text import quoted

SOURCES = (
    "digits",
    "parquet:FILE",
    "npz:FILE",
    "imagefolder:DIR",
    "torchvision:NAME:ROOT",
    "fashion-mnist[:DIR]",
)


def load_data(
    spec: str,
    *,
    normalize: str = "none",
    limit: int | None = None,
    batch: int = 256,
    split: str = "test",
    size: int | None = None,
    memory: float | None = None,
) -> Dataset:
    """The data set of a DATA string, in memory; image files that would take more than `memory` are streamed.

    Bytes become floats in [0, 1], then `normalize` applies. `limit` keeps the first N (of an image folder:
    N spread evenly). `split` is train or test where the source has both. `size` resizes and crops image
    files. `memory` is in bytes, half of the machine's unless given.

    >>> data = load_data("digits", limit=5)
    >>> tuple(data.images.shape), len(data.classes)
    ((5, 1, 8, 8), 10)
    """
    for name, value in (("limit", limit), ("batch", batch), ("size", size)):
        if value is not None:
            numbers.count(value, name)
    statistics = parse_normalize(normalize)
    raw = _read(spec, split=split, limit=limit, size=size)
    if isinstance(raw, Encoded):
        if not len(raw.items):
            raise DataError("the data set is empty", where=spec)
        needed = 4 * len(raw.items) * raw.sample()[0].size
        if needed > (0.5 * memory_bytes() if memory is None else memory):
            assert_labels(raw.labels, raw.classes, spec)
            labels, classes = _labels(raw)
            return Streamed(spec, raw, labels, classes, batch, statistics)
        raw = Raw(raw.decoded(), raw.labels, raw.classes)
    assert_well_formed(raw, spec)
    check_memory(4.0 * raw.images.size, f"the images of {spec}", DataError, "give --limit N")
    # numpy converts what torch does not know: long doubles, the other byte order. The copy is ours to change.
    images = torch.from_numpy(np.array(raw.images, dtype=np.float32, order="C"))
    if raw.images.dtype == np.uint8:
        images.div_(255)
    images = normalize_(images, statistics)
    if not torch.isfinite(images).all():
        raise DataError("normalised, some image values are NaN or infinite", where=spec)
    return Dataset(spec, images, *_labels(raw), batch)


def _labels(raw: Raw | Encoded) -> tuple[torch.Tensor, tuple[str, ...]]:
    labels = torch.from_numpy(raw.labels.astype(np.int64))
    return labels, raw.classes or tuple(map(str, range(int(labels.max()) + 1)))


def _read(spec: str, *, split: str, limit: int | None, size: int | None) -> Raw | Encoded:
    kind, _, rest = spec.partition(":")
    if kind == "digits" and not rest:
        return read_digits(split=split, limit=limit)
    if kind == "fashion-mnist":
        return read_fashion_mnist(rest, split=split, limit=limit)
    if kind == "torchvision" and ":" in rest:
        name, _, root = rest.partition(":")
        return read_torchvision(name, root, split=split, limit=limit, size=size)
    if rest and kind == "parquet":
        return read_parquet(user_path(rest, DataError), limit=limit, size=size)
    if rest and kind == "npz":
        return read_npz(user_path(rest, DataError), split=split, limit=limit)
    if rest and kind == "imagefolder":
        return read_imagefolder(user_path(rest, DataError), split=split, limit=limit, size=size)
    raise DataError(f"cannot read the data source {quoted(spec)}", do=f"write one of {', '.join(SOURCES)}")

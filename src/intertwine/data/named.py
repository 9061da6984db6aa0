"""Data sets known by name: digits, Fashion-MNIST and torchvision's. Nothing is downloaded."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np

from intertwine.data.dataset import Raw
from intertwine.data.files import read_idx, read_items
from intertwine.errors import DataError, NotFound

FASHION_CLASSES = tuple(
    "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot".split(",")
)
# Where Debian's dataset-fashion-mnist and common scripts put the four idx files.
FASHION_FOLDERS = (
    "/usr/share/datasets/fashion-mnist",
    "~/data/fashion-mnist",
    "~/data/FashionMNIST/raw",
    "data/fashion-mnist",
    "data/FashionMNIST/raw",
)
_DIGITS_TEST = 500


def read_digits(*, split: str, limit: int | None) -> Raw:
    """1,797 images of 1x8x8 in [0, 1]; 500 of them, drawn once and for all, are the test split."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    # RandomState's stream is frozen by numpy's promise, so the split is the same everywhere and for ever
    order = np.random.RandomState(0).permutation(len(bunch.target))
    parts = {"test": order[:_DIGITS_TEST], "train": order[_DIGITS_TEST:], "all": order}
    if split not in parts:
        raise DataError(f"digits has no split {split!r}", do="use train, test or all")
    chosen = parts[split][:limit]
    images = (bunch.images[chosen, None] / 16).astype(np.float32)
    return Raw(images, bunch.target[chosen].astype(np.int64), tuple(map(str, bunch.target_names)))


def read_fashion_mnist(folder: str, *, split: str, limit: int | None) -> Raw:
    """The idx files of Fashion-MNIST in `folder`, or where they usually are."""
    stem = "train" if split == "train" else "t10k"
    folders = [Path(f).expanduser() for f in ([folder] if folder else FASHION_FOLDERS)]
    for place in folders:
        images = _idx_file(place, f"{stem}-images-idx3-ubyte")
        labels = _idx_file(place, f"{stem}-labels-idx1-ubyte")
        if images and labels:
            pixels, targets = read_idx(images, limit=limit), read_idx(labels, limit=limit)
            return Raw(pixels[:, None], targets.astype(np.int64), FASHION_CLASSES)
    raise DataError(
        f"no Fashion-MNIST {stem} files (looked in {', '.join(map(str, folders))})",
        do=f"put {stem}-images-idx3-ubyte.gz and {stem}-labels-idx1-ubyte.gz in DIR, give fashion-mnist:DIR, "
        "or install Debian's dataset-fashion-mnist",
    )


def _idx_file(folder: Path, stem: str) -> Path | None:
    candidates = (folder / f"{stem}.gz", folder / stem)
    return next((path for path in candidates if path.is_file()), None)


def read_torchvision(name: str, root: str, *, split: str, limit: int | None, size: int | None) -> Raw:
    """`torchvision.datasets.NAME(ROOT)` of files that are already there."""
    from intertwine.data.vision_shim import import_vision

    datasets = import_vision("torchvision.datasets")
    if name not in datasets.__all__ or not inspect.isclass(getattr(datasets, name, None)):
        raise NotFound(
            f"torchvision has no data set {name!r}", do="write it as torchvision does: CIFAR10, MNIST, ..."
        )
    factory = getattr(datasets, name)
    parameters = inspect.signature(factory).parameters
    kwargs: dict[str, Any] = {"root": root}
    if "download" in parameters:
        kwargs["download"] = False
    if "train" in parameters:
        kwargs["train"] = split == "train"
    elif "split" in parameters:
        kwargs["split"] = split
    try:
        items = factory(**kwargs)
        return read_items(items, limit=limit, size=size)
    except DataError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"cannot read torchvision:{name} from {root}: {reason}",
            where=str(Path(root).absolute()),
            do="put the files there as torchvision's documentation says (nothing is downloaded)",
        ) from error

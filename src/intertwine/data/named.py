"""Data sets known by name: digits, Fashion-MNIST and torchvision's. Nothing is downloaded."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np

from intertwine.data.dataset import Raw
from intertwine.data.files import read_idx, read_items
from intertwine.errors import DataError, NotFound
from intertwine.reading import parsing, user_path
from intertwine.text import quoted

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
# Those that read no pickles, or only after comparing their hash: data never runs code.
VISION = tuple(
    "Caltech101 Caltech256 CIFAR10 CIFAR100 Country211 DTD EMNIST EuroSAT FashionMNIST FGVCAircraft "
    "Flowers102 Food101 GTSRB ImageNet Imagenette KMNIST MNIST Omniglot OxfordIIITPet QMNIST RenderedSST2 "
    "SEMEION StanfordCars STL10 SUN397 SVHN USPS".split()
)


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
    folders = [user_path(f, DataError) for f in ([folder] if folder else FASHION_FOLDERS)]
    for place in folders:
        images = _idx_file(place, f"{stem}-images-idx3-ubyte")
        labels = _idx_file(place, f"{stem}-labels-idx1-ubyte")
        if images and labels:
            pixels, targets = read_idx(images, limit=limit), read_idx(labels, limit=limit)
            if pixels.ndim != 3:
                raise DataError(f"{images} holds arrays of shape {pixels.shape[1:]}, not images")
            return Raw(pixels[:, None], targets.astype(np.int64), FASHION_CLASSES)
    raise DataError(
        f"no Fashion-MNIST {stem} files (looked in {', '.join(map(str, folders))})",
        do=f"put {stem}-images-idx3-ubyte.gz and {stem}-labels-idx1-ubyte.gz in DIR, give fashion-mnist:DIR, "
        "or install Debian's dataset-fashion-mnist",
    )


def _idx_file(folder: Path, stem: str) -> Path | None:
    candidates = (folder / f"{stem}.gz", folder / stem)
    with parsing(f"the folder {quoted(str(folder))}", DataError):
        return next((path for path in candidates if path.exists()), None)


def read_torchvision(name: str, root: str, *, split: str, limit: int | None, size: int | None) -> Raw:
    """`torchvision.datasets.NAME(ROOT)` of files that are already there."""
    from intertwine.vision_shim import import_vision

    datasets = import_vision("torchvision.datasets")
    if name not in VISION:
        raise NotFound(
            f"torchvision has no data set {quoted(name)} of labelled images that can be read safely",
            do=f"write one of {', '.join(VISION)}",
        )
    factory = getattr(datasets, name)
    parameters = inspect.signature(factory).parameters
    kwargs: dict[str, Any] = {"root": str(user_path(root or ".", DataError))}
    if "download" in parameters:
        kwargs["download"] = False
    if "train" in parameters:
        kwargs["train"] = split == "train"
    elif "split" in parameters:
        kwargs["split"] = split
    do = "put the files there as torchvision's documentation says (nothing is downloaded)"
    with parsing(f"torchvision:{name} from {root}", DataError, do=do):
        return read_items(factory(**kwargs), limit=limit, size=size)

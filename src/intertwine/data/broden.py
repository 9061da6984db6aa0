"""The Broden layout of Bau et al. 2017, written from its description.

    DIR/index.csv      image,split,ih,iw,sh,sw,CATEGORY,...   one row an image
    DIR/category.csv   name,...                               the categories
    DIR/label.csv      number,name,category,...               0 is nothing; category "object(12);part(3)"
    DIR/images/        images, and masks as PNG: a label is red + 256 green

A cell of a category is empty (not looked for), holds numbers of labels of the whole image, or names of masks;
several are separated by semicolons.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from intertwine.data.concept_set import Annotation, ConceptSet
from intertwine.data.decode import decode
from intertwine.data.masks import mask_labels
from intertwine.errors import DataError
from intertwine.reading import existing_file, parsing

_SAME = {"color": "colour"}
_FIELDS = {"image", "split", "ih", "iw", "sh", "sw"}


def read_broden(folder: Path, *, size: int | None = None, limit: int | None = None) -> ConceptSet:
    """The images of a folder in the Broden layout and every label of label.csv."""
    index, labels = _rows(folder / "index.csv"), _rows(folder / "label.csv")
    known = [row["name"] for row in _rows(folder / "category.csv")]
    missing = [c for c in known if index and c not in index[0]]
    if missing:
        raise DataError(f"index.csv has no column {missing[0]!r}", where=str(folder))
    index = index[:limit]
    number = {int(row["number"]): i for i, row in enumerate(labels)}
    kinds = tuple(_category(row["category"]) for row in labels)
    cells = [{c: row[c].split(";") for c in known if row[c]} for row in index]

    def image(i: int) -> np.ndarray:
        path = _picture(folder, index[i]["image"])
        result: np.ndarray = decode([(path.name, path)], size, 3)[0]
        return result

    shape = image(0).shape if index else (3, 0, 0)

    def annotation(i: int) -> Annotation:
        planes, whole = [], []
        for parts in cells[i].values():
            for part in parts:
                if part.isdecimal():
                    whole.append(number[int(part)])
                else:
                    mask = _picture(folder, part)
                    raw = mask_labels(mask, (shape[1], shape[2]), wide=True, crop=size)
                    table = np.full(int(raw.max()) + 1, -1)
                    for label in np.unique(raw):
                        table[label] = number.get(int(label), -1) if label else -1
                    planes.append(table[raw])
        found = np.stack(planes) if planes else np.zeros((0, *shape[1:]), np.int64)
        return Annotation(found, tuple(whole), frozenset(_SAME.get(c, c) for c in cells[i]))

    names = tuple(row["name"] for row in labels)
    repeated = {name for name, times in Counter(names).items() if times > 1}
    names = tuple(f"{n} ({k})" if n in repeated else n for n, k in zip(names, kinds, strict=True))
    return ConceptSet(str(folder), len(index), shape, names, kinds, image, annotation).checked()


def _category(text: str) -> str:
    """The most frequent category of a label: "object(12);part(3)" is an object."""
    counts: dict[str, int] = {}
    for part in text.split(";"):
        name, _, times = part.partition("(")
        counts[name.strip()] = int(times.rstrip(")") or 1) if times else 1
    best = max(counts, key=lambda name: counts[name])
    return _SAME.get(best, best)


def _rows(path: Path) -> list[dict[str, Any]]:
    existing_file(path, "table of the Broden layout", DataError)
    with parsing(path, DataError), path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
        if any(value is None for row in rows for value in row.values()):
            raise DataError(f"{path.name} of the Broden layout has rows that are cut off", where=str(path))
        return rows


def _picture(folder: Path, name: str) -> Path:
    """An image or a mask, which lies below DIR/images: a table of others names no other files."""
    path = folder / "images" / name
    if Path(name).is_absolute() or ".." in Path(name).parts or not path.is_file():
        raise DataError(f"no such image: {path}")
    return path

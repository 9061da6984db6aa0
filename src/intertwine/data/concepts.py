"""Turn a CONCEPTS string into images with marked concepts.

shapes[:COUNT[:SIZE]]   pictures made by code (see `data.shapes`)
DIR                     the Broden layout (index.csv), or DIR/images and DIR/masks with equal names and
                        DIR/classes.txt, or DIR/class/image: labels of whole images
FILE.parquet            columns image and mask (names in the metadata `classes`), or image and label

KIND=PLACE names the category: object for masks and scene for labels unless given (texture=dtd.parquet).
Several are joined by "+".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from intertwine.data.broden import read_broden
from intertwine.data.concept_set import Annotation, ConceptSet, join
from intertwine.data.decode import decode
from intertwine.data.files import IMAGE_SUFFIXES
from intertwine.data.masks import mask_labels
from intertwine.data.normalize import parse_normalize
from intertwine.data.shapes import shapes
from intertwine.errors import DataError, MissingExtra
from intertwine.numbers import Whole, pixels
from intertwine.reading import check_memory, existing_file, parsing, read_text, user_path
from intertwine.text import quoted

T = TypeVar("T")

_count = Whole(1, 1_000_000)  # of pictures that are made by code
_MOST_CLASSES = 1_000_000
_NOTHING = ("void", "unlabelled", "unlabeled", "ignore", "none")


def load_concepts(
    spec: str, *, normalize: str = "none", size: int | None = None, limit: int | None = None
) -> ConceptSet:
    """The concept set of a CONCEPTS string.

    >>> load_concepts("shapes:20:32").names[:3]
    ('red', 'green', 'blue')
    """
    with parsing(f"the concepts {quoted(spec)}", DataError):
        parts = [_read(part, size, limit).checked() for part in spec.split("+")]
        found = join(parts)
        found = found if limit is None else found.take(limit * len(parts))
        found = replace(found, image=_guarded(found.image), annotation=_guarded(found.annotation))
        return replace(found, statistics=parse_normalize(normalize))


def _guarded(read: Callable[[int], T]) -> Callable[[int], T]:
    """A reader of the i-th image, or of what is marked in it, that raises errors of ours."""

    def guarded(i: int) -> T:
        with parsing(f"image {i} of the concepts", DataError):
            return read(i)

    return guarded


def _read(spec: str, size: int | None, limit: int | None) -> ConceptSet:
    category, _, place = spec.rpartition("=")
    kind, *numbers = place.split(":")
    if kind == "shapes":
        given = [limits(n) for limits, n in zip((_count, pixels), numbers, strict=False)]
        if len(numbers) > len(given):
            raise DataError(f"cannot read {quoted(place)}", do="write shapes, shapes:500 or shapes:500:64")
        count, side = [*given, *(500, 64)[len(given) :]]
        return shapes(count if limit is None else min(count, limit), size or side)
    path = user_path(place, DataError)
    if path.suffix == ".parquet":
        return _parquet(path, category, size, limit)
    if (path / "index.csv").is_file():
        return read_broden(path, size=size, limit=limit)
    if (path / "images").is_dir() and (path / "masks").is_dir():
        return _folder(path, category or "object", size, limit)
    if path.is_dir():
        return _labelled_folder(path, category or "scene", size, limit)
    raise DataError(
        f"no concepts at {place!r}",
        where=str(path.absolute()),
        do="give shapes, a folder (Broden, images and masks, or class folders), or a parquet file",
    )


def _parquet(path: Path, category: str, size: int | None, limit: int | None) -> ConceptSet:
    existing_file(path, "parquet file", DataError)
    try:
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise MissingExtra("pyarrow is not installed", do='pip install "intertwine[vision]"') from error
    with parsing(path, DataError, do="the file is corrupt or not parquet"):
        facts = parquet.read_metadata(path)
        unpacked = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
        check_memory(unpacked, f"what {path} unpacks to", DataError)
        table = parquet.read_table(path)
    columns = set(table.column_names)
    marks = "mask" if "mask" in columns else "label"
    if "image" not in columns or marks not in columns:
        raise DataError(f"{path.name} needs columns image and mask, or image and label", where=str(path))
    rows: list[dict[str, Any]] = table.select(["image", marks]).slice(0, limit).to_pylist()
    names = (table.schema.metadata or {}).get(b"classes", b"").decode().split(",")
    images = [row["image"]["bytes"] for row in rows]
    if marks == "label":
        labels = [int(row["label"]) for row in rows]
        return _labelled(str(path), images, labels, names, category or "scene", size)
    masks = [row["mask"]["bytes"] for row in rows]
    return _masked(str(path), images, masks, names, category or "object", size)


def _folder(folder: Path, category: str, size: int | None, limit: int | None) -> ConceptSet:
    images = sorted(p for p in (folder / "images").iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)[:limit]
    masks = [folder / "masks" / f"{p.stem}.png" for p in images]
    absent = [m for m in masks if not m.is_file()]
    if absent:
        raise DataError(f"no mask {absent[0].name} for its image", where=str(folder / "masks"))
    listed = folder / "classes.txt"
    names = read_text(listed, "list of classes", DataError).split("\n") if listed.exists() else []
    return _masked(str(folder), images, masks, [n.strip() for n in names if n.strip()], category, size)


def _labelled_folder(folder: Path, category: str, size: int | None, limit: int | None) -> ConceptSet:
    names = sorted(p.name for p in folder.iterdir() if p.is_dir())
    found = [
        (path, k)
        for k, name in enumerate(names)
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in IMAGE_SUFFIXES
    ]
    chosen = found if limit is None else found[:: max(1, len(found) // limit)][:limit]
    return _labelled(str(folder), [p for p, _ in chosen], [k for _, k in chosen], names, category, size)


def _labelled(
    name: str, images: list[Any], labels: list[int], names: list[str], category: str, size: int | None
) -> ConceptSet:
    if min(labels, default=0) < 0:
        raise DataError(f"the label {min(labels)} is negative", where=name)
    known = _filled(names, max(labels, default=-1) + 1)
    found = _images(name, images, size)

    def annotation(i: int) -> Annotation:
        return Annotation(np.zeros((0, *found(0).shape[1:]), np.int64), (labels[i],), frozenset({category}))

    return _set(name, images, found, known, category, annotation)


def _masked(
    name: str, images: list[Any], masks: list[Any], names: list[str], category: str, size: int | None
) -> ConceptSet:
    found = _images(name, images, size)

    def labels(i: int) -> np.ndarray:
        _, height, width = found(i).shape
        return mask_labels(masks[i], (height, width), crop=size, name=f"{i} of {Path(name).name}")

    largest = (
        max((int(labels(i).max()) for i in range(len(masks))), default=-1)
        if not any(names)
        else len(names) - 1
    )
    known = _filled(names, largest + 1)
    nothing = np.array([-1 if n in _NOTHING else k for k, n in enumerate(known)])

    def annotation(i: int) -> Annotation:
        raw = labels(i)
        if raw.min() < 0 or raw.max() >= len(known):
            wrong = raw.min() if raw.min() < 0 else raw.max()
            raise DataError(f"mask {i} holds the class {wrong}, but there are {len(known)} names", where=name)
        return Annotation(nothing[raw][None], (), frozenset({category}))

    return _set(name, images, found, known, category, annotation)


def _images(name: str, images: list[Any], size: int | None) -> Any:
    if not images:
        raise DataError("there are no images", where=name)
    return lambda i: decode([(f"image {i} of {Path(name).name}", images[i])], size, 3)[0]


def _filled(names: list[str], count: int) -> tuple[str, ...]:
    if count > _MOST_CLASSES:
        raise DataError(f"a label of {count - 1:,}: there can be {_MOST_CLASSES:,} classes at most")
    given = [n for n in names if n]
    return tuple(given + [f"class {k}" for k in range(len(given), count)])


def _set(
    name: str, images: list[Any], found: Any, names: tuple[str, ...], category: str, annotation: Any
) -> ConceptSet:
    kinds = (category,) * len(names)
    return ConceptSet(name, len(images), found(0).shape, names, kinds, found, annotation)

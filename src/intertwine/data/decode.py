"""Decode many image files (PNG, JPEG, WebP, ...) into one uint8 array with Pillow."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from intertwine.errors import DataError, MissingExtra
from intertwine.reading import check_memory, existing_file, parsing

# Formats of pictures; Pillow would hand other files to other programs (PostScript) or rarely used decoders.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MOST_PIXELS = 2**26  # below the number at which Pillow itself warns

Item: TypeAlias = bytes | Path | Any  # bytes of a file, a file, or a PIL image


def pillow() -> Any:
    """PIL.Image, or MissingExtra."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise MissingExtra("Pillow is not installed", do='pip install "intertwine[vision]"') from error
    return Image


def decode(
    items: Iterable[tuple[str, Item]], size: int | None = None, channels: int | None = None
) -> np.ndarray:
    """N x C x H x W; C is `channels`, or else 1 if every image is grey and 3 otherwise.

    With `size` the short side is resized to it and the centre is cut out. Without it all images must agree.
    """
    images, used = [], 0
    for name, item in items:
        image = _open(name, item, size)
        used += 3 * image.width * image.height
        check_memory(used, "the images", DataError, "give --limit N, or --size N")
        images.append((name, image))
    if not images:
        raise DataError("there are no images to decode")
    if channels is None:
        channels = 1 if all(image.mode == "L" for _, image in images) else 3
    images = [(name, image.convert("L" if channels == 1 else "RGB")) for name, image in images]
    sizes = {image.size for _, image in images}
    if len(sizes) > 1:
        listed = ", ".join(f"{w}x{h}" for w, h in sorted(sizes)[:4])
        raise DataError(
            f"the images differ in size ({listed}, ...)", do="give --size N to resize and crop them"
        )
    pixels = np.stack([np.asarray(image, dtype=np.uint8) for _, image in images])
    return pixels[:, None] if pixels.ndim == 3 else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))


def open_image(name: str, item: Item) -> Any:
    """The image, in whatever mode it is stored; its size is looked at before anything is unpacked."""
    Image = pillow()
    if isinstance(item, Image.Image):
        return item
    if isinstance(item, Path):
        existing_file(item, "image", DataError)
    with parsing(name, DataError):
        # closed here: a folder may hold more images than a process may open
        source = item if isinstance(item, Path) else io.BytesIO(item)
        with Image.open(source, formats=FORMATS) as file:
            if file.width * file.height > MOST_PIXELS:
                raise DataError(
                    f"{name} has {file.width:,} x {file.height:,} pixels, more than {MOST_PIXELS:,}"
                )
            return file.copy()


def _open(name: str, item: Any, size: int | None) -> Any:
    image = open_image(f"the image {name}", item)
    with parsing(f"the image {name}", DataError):
        image = image.convert("L" if image.mode in ("1", "L") else "RGB")
        return image if size is None else _resize_and_crop(image, size)


def _resize_and_crop(image: Any, size: int) -> Any:
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    if width * height > MOST_PIXELS:
        raise DataError(
            f"an image of {image.width:,} x {image.height:,} pixels resized to {width:,} x {height:,}",
            do="give a smaller --size, or leave such images out",
        )
    left, top = (width - size) // 2, (height - size) // 2
    return image.resize((width, height), pillow().Resampling.BILINEAR).crop(
        (left, top, left + size, top + size)
    )

"""Mask images as arrays of labels at the size of their image; a mask that cannot belong to it is an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from intertwine.data.decode import open_image, pillow
from intertwine.errors import DataError


def mask_labels(
    item: bytes | Path,
    size: tuple[int, int],
    *,
    wide: bool = False,
    crop: int | None = None,
    name: str = "mask",
) -> np.ndarray:
    """H x W labels, resized without mixing them. wide: a label is red + 256 green.

    size: that of the image after it was resized to a short side of `crop` and cut, if it was; the mask is
    treated in the same way. A mask of another shape than its image raises DataError.
    """
    Image = pillow()
    name = item.name if isinstance(item, Path) else name
    image = open_image(f"the mask {name}", item)
    height, width = size
    if crop is None:
        if abs(image.width * height - image.height * width) > max(image.size):
            raise DataError(
                f"the mask {name} is {image.width}x{image.height}, its image {width}x{height}",
                so="they cannot be laid over each other",
                do="give masks of the image's size, or of the same shape at another scale",
            )
        resized = image.resize((width, height), Image.Resampling.NEAREST)
    else:
        scale = crop / min(image.size)
        large = [max(crop, round(side * scale)) for side in image.size]
        left, top = (large[0] - crop) // 2, (large[1] - crop) // 2
        resized = image.resize(tuple(large), Image.Resampling.NEAREST).crop(
            (left, top, left + crop, top + crop)
        )
    if wide:
        pixels = np.asarray(resized.convert("RGB"), dtype=np.int64)
        return pixels[..., 0] + 256 * pixels[..., 1]
    if resized.mode not in ("L", "P", "1", "I", "I;16"):
        raise DataError(
            f"the mask {name} has colours ({resized.mode})", do="store class numbers as grey values"
        )
    return np.asarray(resized, dtype=np.int64)

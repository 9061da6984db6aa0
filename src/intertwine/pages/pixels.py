"""Arrays as pictures inside a page: PNG bytes made with zlib alone, and heat over an image."""

from __future__ import annotations

import base64
import html
import struct
import zlib

import numpy as np

# From nothing to much, and for negative numbers: what is seen speaks against the class.
_WARM = np.array([[255, 255, 255], [254, 204, 92], [240, 59, 32], [128, 0, 38]], float)
_COLD = np.array([[255, 255, 255], [158, 202, 225], [49, 130, 189], [8, 48, 107]], float)


def png(pixels: np.ndarray) -> bytes:
    """H x W x 3 bytes as a PNG file.

    >>> png(np.zeros((2, 3, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + body


def image_tag(pixels: np.ndarray, *, width: int, title: str = "") -> str:
    """An <img> that holds the picture itself, enlarged without smoothing."""
    data = base64.b64encode(png(np.ascontiguousarray(pixels, np.uint8))).decode()
    return (
        f'<img src="data:image/png;base64,{data}" width="{width}" alt="{html.escape(title)}" '
        f'title="{html.escape(title)}" style="image-rendering:pixelated;border-radius:3px">'
    )


def to_pixels(
    image: np.ndarray, statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None
) -> np.ndarray:
    """C x H x W floats as H x W x 3 bytes: normalisation undone if known, else stretched to 0..255."""
    image = np.asarray(image, float)
    if statistics is not None:
        mean, std = (np.array(values)[:, None, None] for values in statistics)
        image = image * std + mean
    elif image.min() < 0 or image.max() > 1:
        image = (image - image.min()) / max(float(np.ptp(image)), 1e-12)
    colour = image[:3] if image.shape[0] >= 3 else np.repeat(image[:1], 3, 0)
    return (colour.clip(0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0)


def colours(heat: np.ndarray) -> np.ndarray:
    """Numbers in [-1, 1] -> ... x 3 colours: white for 0, yellow to red above, blue below."""
    place = np.abs(heat).clip(0, 1) * (len(_WARM) - 1)
    low = np.minimum(place.astype(int), len(_WARM) - 2)
    part = (place - low)[..., None]
    table = np.where((heat >= 0)[..., None, None], _WARM, _COLD)
    picked = np.take_along_axis(table, low[..., None, None], -2)[..., 0, :]
    above = np.take_along_axis(table, low[..., None, None] + 1, -2)[..., 0, :]
    result: np.ndarray = picked * (1 - part) + above * part
    return result


def scaled(heat: np.ndarray) -> np.ndarray:
    """Divided by its 99.5th percentile of size, so that one pixel does not hide all others."""
    top = float(np.quantile(np.abs(heat), 0.995)) if heat.size else 0.0
    top = top or float(np.abs(heat).max(initial=0.0))
    return heat / top if top > 0 else np.zeros_like(heat)


def overlay(pixels: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """Heat over a pale grey copy of the image; where there is none the image shows through."""
    grey = pixels.mean(2, keepdims=True).repeat(3, 2) * 0.55 + 255 * 0.45
    share = np.abs(heat).clip(0, 1)[..., None] ** 0.7
    result: np.ndarray = (grey * (1 - share) + colours(heat) * share).round().astype(np.uint8)
    return result


def spotlight(pixels: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The image where the mask is set, dark elsewhere."""
    return np.where(mask[..., None], pixels, (pixels * 0.22).astype(np.uint8))

"""`shapes`: pictures made by code, of coloured and textured things made of parts, with exact masks.

Every picture has a scene (day, night, desert, room), one thing of five (house, car, tree, fish, lamp) and one
plain figure (disc, square or triangle). The body of each has a colour and perhaps a texture. Picture i of a
seed is always the same one, so nothing is stored and nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from intertwine.data.concept_set import Annotation, ConceptSet

COLOURS = {
    "red": (205, 50, 45), "green": (60, 160, 70), "blue": (55, 90, 200), "yellow": (230, 200, 60),
    "white": (235, 235, 235), "black": (30, 30, 35),
}  # fmt: skip
TEXTURES = ("striped", "chequered", "dotted")
THINGS = ("house", "car", "tree", "fish", "lamp")
FIGURES = ("disc", "square", "triangle")
PARTS = ("roof", "door", "wheel", "window", "trunk", "crown", "tail", "eye", "shade", "stand")
SCENES = {"day": (150, 200, 240), "night": (20, 24, 60), "desert": (238, 205, 150), "room": (200, 180, 190)}
_KINDS = {"colour": tuple(COLOURS), "texture": TEXTURES, "part": PARTS, "object": THINGS + FIGURES,
          "scene": tuple(SCENES)}  # fmt: skip
NAMES = tuple(name for names in _KINDS.values() for name in names)
CATEGORIES = tuple(kind for kind, names in _KINDS.items() for _ in names)
_NUMBER = {name: i for i, name in enumerate(NAMES)}
_PLANES = ("colour", "texture", "part", "object")


@dataclass
class _Canvas:
    """A picture that is being drawn, in a square of side 1, and one plane of marks a category."""

    size: int
    rng: np.random.Generator
    pixels: np.ndarray = field(init=False)
    planes: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.pixels = np.zeros((self.size, self.size, 3))
        self.planes = np.full((len(_PLANES), self.size, self.size), -1, np.int16)
        self.y, self.x = (np.mgrid[: self.size, : self.size] + 0.5) / self.size

    def box(self, left: float, top: float, right: float, bottom: float) -> np.ndarray:
        result: np.ndarray = (self.x >= left) & (self.x < right) & (self.y >= top) & (self.y < bottom)
        return result

    def disc(self, x: float, y: float, radius: float, flat: float = 1.0) -> np.ndarray:
        result: np.ndarray = (self.x - x) ** 2 + ((self.y - y) / flat) ** 2 < radius**2
        return result

    def triangle(self, left: float, right: float, top: float, bottom: float, tip: float) -> np.ndarray:
        """A base at the bottom, a tip at the top."""
        share = (self.y - top) / max(bottom - top, 1e-9)
        inside = (share >= 0) & (share < 1)
        edges = self.x > tip + (left - tip) * share, self.x < tip + (right - tip) * share
        result: np.ndarray = inside & edges[0] & edges[1]
        return result

    def paint(self, mask: np.ndarray, colour: str, texture: str | None, **marks: str) -> None:
        """Colour a region and mark it; a texture darkens a pattern of it. What was there is covered."""
        base = np.array(COLOURS[colour], float) + self.rng.normal(0, 6, 3)
        self.pixels[mask] = base
        if texture is not None:
            period = 0.14
            u, v = self.x / period, self.y / period
            dark = {
                "striped": (u + v) % 1 < 0.5,
                "chequered": (np.floor(2 * u) + np.floor(2 * v)) % 2 == 0,
                "dotted": ((u % 1 - 0.5) ** 2 + (v % 1 - 0.5) ** 2) < 0.09,
            }[texture]
            self.pixels[mask & dark] = base * 0.45 if base.mean() > 90 else base + 110
        found = (
            {"colour": colour, **marks}
            if texture is None
            else {"colour": colour, "texture": texture, **marks}
        )
        for plane, kind in enumerate(_PLANES):
            self.planes[plane][mask] = _NUMBER[found[kind]] if kind in found else -1


def _thing(
    canvas: _Canvas, kind: str, x: float, y: float, s: float, colour: str, texture: str | None
) -> None:
    other = "white" if colour != "white" else "black"
    if kind == "house":
        canvas.paint(canvas.box(x - s, y - 0.5 * s, x + s, y + s), colour, texture, object=kind)
        roof = canvas.triangle(x - 1.2 * s, x + 1.2 * s, y - 1.3 * s, y - 0.5 * s, x)
        canvas.paint(roof, "red", None, object=kind, part="roof")
        canvas.paint(
            canvas.box(x - 0.25 * s, y + 0.2 * s, x + 0.25 * s, y + s), other, None, object=kind, part="door"
        )
    elif kind == "car":
        body = canvas.box(x - 1.3 * s, y, x + 1.3 * s, y + 0.7 * s)
        canvas.paint(
            body | canvas.box(x - 0.7 * s, y - 0.6 * s, x + 0.7 * s, y), colour, texture, object=kind
        )
        canvas.paint(
            canvas.box(x - 0.5 * s, y - 0.45 * s, x + 0.5 * s, y), other, None, object=kind, part="window"
        )
        for side in (-0.75, 0.75):
            canvas.paint(
                canvas.disc(x + side * s, y + 0.75 * s, 0.36 * s), "black", None, object=kind, part="wheel"
            )
    elif kind == "tree":
        canvas.paint(
            canvas.box(x - 0.2 * s, y, x + 0.2 * s, y + 1.2 * s), "black", None, object=kind, part="trunk"
        )
        canvas.paint(canvas.disc(x, y - 0.3 * s, 0.9 * s), "green", texture, object=kind, part="crown")
    elif kind == "fish":
        canvas.paint(canvas.disc(x, y, 1.2 * s, 0.55), colour, texture, object=kind)
        reach = (canvas.x - x - 0.9 * s) / (0.8 * s)
        tail = (reach > 0) & (reach < 1) & (np.abs(canvas.y - y) < 0.6 * s * reach)
        canvas.paint(tail, colour, None, object=kind, part="tail")
        canvas.paint(canvas.disc(x - 0.7 * s, y - 0.1 * s, 0.15 * s), other, None, object=kind, part="eye")
    else:
        stand = canvas.box(x - 0.1 * s, y - 0.2 * s, x + 0.1 * s, y + 1.2 * s)
        canvas.paint(stand, "black", None, object=kind, part="stand")
        shade = canvas.triangle(x - 0.8 * s, x + 0.8 * s, y - 1.1 * s, y - 0.1 * s, x)
        canvas.paint(shade, colour, texture, object=kind, part="shade")


def draw(number: int, size: int, seed: int = 0) -> tuple[np.ndarray, Annotation, int]:
    """Picture `number`: C x H x W bytes, what is marked in it, and which of the five things it shows.

    >>> image, found, thing = draw(0, 32)
    >>> image.shape, sorted(found.categories), THINGS[thing] in [NAMES[i] for i in np.unique(found.planes[3])]
    ((3, 32, 32), ['colour', 'object', 'part', 'scene', 'texture'], True)
    """
    rng = np.random.default_rng([seed, number])
    canvas = _Canvas(size, rng)
    scene = list(SCENES)[rng.integers(len(SCENES))]
    canvas.pixels[:] = np.array(SCENES[scene], float) * (1 - 0.25 * canvas.y[..., None])
    thing = int(rng.integers(len(THINGS)))
    for kind in (FIGURES[rng.integers(len(FIGURES))], THINGS[thing]):  # the thing may cover the figure
        colour = list(COLOURS)[rng.integers(len(COLOURS))]
        texture = TEXTURES[rng.integers(len(TEXTURES))] if rng.random() < 0.5 else None
        x, y = rng.uniform(0.25, 0.75, 2)
        s = rng.uniform(0.13, 0.22)
        if kind == "disc":
            canvas.paint(canvas.disc(x, y, s), colour, texture, object=kind)
        elif kind == "square":
            canvas.paint(canvas.box(x - s, y - s, x + s, y + s), colour, texture, object=kind)
        elif kind == "triangle":
            canvas.paint(canvas.triangle(x - s, x + s, y - s, y + s, x), colour, texture, object=kind)
        else:
            _thing(canvas, kind, x, y, s, colour, texture)
    noisy = canvas.pixels + rng.normal(0, 5, canvas.pixels.shape)
    found = Annotation(canvas.planes.astype(np.int64), (_NUMBER[scene],), frozenset(_KINDS))
    return noisy.clip(0, 255).astype(np.uint8).transpose(2, 0, 1), found, thing


def shapes(count: int = 500, size: int = 64, seed: int = 0) -> ConceptSet:
    """`count` pictures of `size` pixels.

    >>> pictures = shapes(10, 32)
    >>> len(pictures), pictures.shape, pictures.rows([0, 1]).shape
    (10, (3, 32, 32), torch.Size([2, 3, 32, 32]))
    """
    made = lru_cache(maxsize=4096)(lambda i: draw(i, size, seed))
    return ConceptSet(
        f"shapes:{count}:{size}", count, (3, size, size), NAMES, CATEGORIES,
        lambda i: made(i)[0], lambda i: made(i)[1],
    )  # fmt: skip

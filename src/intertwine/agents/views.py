"""Views of a world in which nothing can change: each is drawn once.

MiniGrid draws what the agent sees cell by cell in Python, which takes most of the time of a step. Where a
grid holds nothing that can be picked up, opened or moved, the view is a function of where the agent stands
and where it looks; the first drawing is kept until the grid is another one. Other worlds are left as they
are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_STILL = {"wall", "floor", "goal", "lava"}  # nothing an agent does changes these


def remember_views(world: Any) -> None:
    """Let a MiniGridEnv draw each view of a still grid once; its observations stay the same."""
    draw = world.gen_obs
    kept: dict[tuple[int, int, int], np.ndarray] = {}
    known: dict[str, Any] = {"grid": None, "still": False, "cells": b""}

    def look() -> dict[str, Any]:
        if known["grid"] is not world.grid:  # a new episode has a new grid, often of the same cells
            cells = [cell for cell in world.grid.grid if cell is not None]
            known["still"] = all(cell.type in _STILL for cell in cells)
            encoded = world.grid.encode().tobytes()
            if encoded != known["cells"]:
                kept.clear()
            known["grid"], known["cells"] = world.grid, encoded
        if not known["still"]:
            found: dict[str, Any] = draw()
            return found
        column, row = world.agent_pos
        place = (int(column), int(row), int(world.agent_dir))
        if place not in kept:
            kept[place] = draw()["image"]
        return {
            "image": kept[place].copy(), "direction": world.agent_dir, "mission": world.mission,
        }  # fmt: skip

    world.gen_obs = look

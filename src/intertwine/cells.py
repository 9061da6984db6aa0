"""How a value stands in a table, on a page and on the terminal alike."""

from __future__ import annotations

import math
from typing import Any


def format_cell(cell: Any) -> str:
    """Floats with four significant digits, whole numbers with thousands, None and NaN as a dash.

    >>> [format_cell(cell) for cell in (1234567, 0.000012345, None, float("nan"), True)]
    ['1,234,567', '1.234e-05', '-', '-', 'yes']
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)

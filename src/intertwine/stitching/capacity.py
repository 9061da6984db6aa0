"""How many maps a class of stitches has on a grid of M / epsilon numbers an entry (E.7 of source 002).

log |G_ReLU|  = log n! + n log(M / epsilon)                         (E.29)
log |rank r|  = (2 n r - r^2) log(2 M / epsilon)                    (E.32)
"""

from __future__ import annotations

import math

from intertwine.errors import InputError


def log_group_maps(width: int, numbers: float) -> float:
    """The logarithm of the number of maps P D; numbers = M / epsilon.

    >>> round(log_group_maps(2, math.e), 6) == round(math.log(2) + 2, 6)
    True
    """
    _check(width, 1, numbers)
    return math.lgamma(width + 1) + width * math.log(numbers)


def log_rank_maps(width: int, rank: int, numbers: float) -> float:
    """The logarithm of the number of maps of rank r.

    >>> log_rank_maps(64, 1, 1e4) > log_group_maps(64, 1e4)  # E.43: more maps, and yet higher penalties
    True
    """
    _check(width, rank, numbers)
    return (2 * width * rank - rank * rank) * math.log(2 * numbers)


def _check(width: int, rank: int, numbers: float) -> None:
    if not 1 <= rank <= width or numbers < 1:
        raise InputError(f"rank {rank} of width {width} on {numbers} numbers", do="give 1 <= rank <= width")

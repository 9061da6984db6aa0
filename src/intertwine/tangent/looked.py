"""What random sets of the channels of an axis say about the whole axis.

The sets are drawn without regard to the weights and have no channel in common, m of n channels in all. What
is found in them is exact. Of what may have been missed:

    a direction of one channel           that b channels have: no set has one with C(n - b, m) / C(n, m)
    a direction of two given channels    is seen with the share of pairs that were in one set
    what takes more channels than a set  is not seen
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Any

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Looked:
    """of: channels of the axis; sets: how many of them were looked at together, each time.

    >>> Looked(512, (8, 8, 8)).channels, round(Looked(512, (8, 8, 8)).below, 3)
    (24, 0.115)
    >>> Looked(16, (16,)).whole, Looked(16, (8, 8)).below
    (True, 0.0)
    """

    of: int
    sets: tuple[int, ...]

    @property
    def channels(self) -> int:
        """How many channels were looked at."""
        return sum(self.sets)

    @property
    def whole(self) -> bool:
        """Whether all channels were looked at together: the answer is exact for the axis."""
        return self.sets == (self.of,)

    @property
    def pairs(self) -> float:
        """The share of pairs of channels that were looked at together."""
        return sum(comb(n, 2) for n in self.sets) / comb(self.of, 2) if self.of > 1 else 1.0

    @property
    def below(self) -> float:
        """With a confidence of 95 %, a direction of one channel that no set had is one of fewer channels."""
        n, m = self.of, self.channels
        if m == n:
            return 0.0
        few = (1.0 - CONFIDENCE) * comb(n, m)
        return next(b for b in range(1, n - m + 2) if comb(n - b, m) < few) / n

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "channels": self.channels,
            "of": self.of,
            "sets": list(self.sets),
            "pairs": self.pairs,
            "missed_below": self.below,
            "confidence": CONFIDENCE,
        }

    def __str__(self) -> str:
        if self.whole:
            return f"all {self.of} channels together: exact for the axis"
        sets = "one random set" if len(self.sets) == 1 else f"{len(self.sets)} random sets"
        seen = f"{self.channels} of {self.of} channels in {sets}"
        one = (
            "every direction of one channel was seen"
            if self.channels == self.of
            else f"a direction of one channel that was missed is one of fewer than {self.below:.1%} of them "
            f"(confidence {CONFIDENCE:.0%})"
        )
        return f"{seen}: {one}; {self.pairs:.1%} of the pairs were together"

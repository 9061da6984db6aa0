"""What directions that change nothing are called, and what each name says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

# kind -> what it says about the model; those in MISSED are not explained by it.
KINDS = {
    "unused": "the model never reads them",
    "rows": "rows of a table that no input looks up",
    "dead": "units that are never active on these inputs",
    "saturated": "units that are constant on these inputs",
    "linear": "units that are linear on these inputs: they may be mixed with others like them",
    "equal": "features that are equal up to a factor on these inputs",
    "unseen": "entries without effect on these inputs",
    "constant": "constants that nothing sees: softmax over keys, or a norm, takes them out again",
    "translation": "constants that may move from one layer to another",
    "statistics": "running statistics of a norm, which its gain and shift, or what reads it, can take over",
    "ones": "multiples of 1, which the norm that follows takes out again",
    "inputs": "what the weight reads does not span all its dimensions on these inputs",
    "outputs": "what the weight writes is not seen in all its dimensions on these inputs",
    "scale": "scales of channels that are alone (in a layer, a group, behind a split): they have no own axis",
    "length": "a common scale, which the norm that follows takes out again (its eps is the machine's)",
    "mixing": "matrices between channels that linear layers alone see, such as parts of a split",
    "product": "layers in a row that are affine in what they read: only what they do together is seen",
    "polynomial": "layers with gates or squares between them: only the polynomial that they are is seen",
    "function": "functions in a row: of their slopes and shifts only what they do together is seen",
    "piece": "functions on one piece for all these inputs: only the polynomial that the layers are is seen",
    "exponential": "constants before an exponential: exp(x + c) = exp(c) exp(x), which its readers take over",
    "rotary": "rotations of pairs of channels of queries and keys that a rotary embedding turns alike",
    "rotation": "matrices that keep the length that a norm sees, and that its readers undo",
    "sums": "scales of sums of channels, which what makes the channels takes as matrices in one basis",
    "norms": "the scale of a norm's gain and shift, with a constant that the next norm takes for its eps",
    "jumps": "seen only where an op jumps (rounding, argmax, a comparison): no derivative tells what they do",
    "channel": "maps of single channels beyond the group: a symmetry that was missed",
    "axis": "maps of the axis beyond its group: a symmetry that was missed",
    "open": "not explained: a symmetry that was missed, or inputs that are not enough",
}
MISSED = ("channel", "axis", "open")
MOVES = ("constant", "translation", "ones")  # what is added somewhere and taken away elsewhere


@dataclass(frozen=True)
class Direction:
    """`count` independent directions of one kind at one place: weights, and the axis if it is one."""

    kind: str
    count: int
    weights: tuple[str, ...]
    axis: str = ""

    @property
    def explained(self) -> bool:
        """Whether it is known what they are."""
        return self.kind not in MISSED

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "count": self.count,
            "axis": self.axis or None,
            "weights": list(self.weights),
            "because": KINDS[self.kind],
        }

    @property
    def place(self) -> str:
        """The axis, or the first of the weights."""
        return self.axis or ", ".join(self.weights[:4]) + (" ..." if len(self.weights) > 4 else "")

    def __str__(self) -> str:
        return f"{self.count} in {self.place}: {KINDS[self.kind]}"


def summed(found: Sequence[Direction]) -> list[Direction]:
    """One entry for each kind and place."""
    together: dict[tuple[str, str], Direction] = {}
    for d in found:
        key = (d.kind, d.axis or ", ".join(d.weights))
        old = together.get(key)
        weights = d.weights if old is None else tuple(dict.fromkeys((*old.weights, *d.weights)))
        together[key] = replace(d, count=d.count + (old.count if old else 0), weights=weights)
    return list(together.values())

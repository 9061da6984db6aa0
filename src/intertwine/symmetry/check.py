"""Whether a relabelling of classes keeps every fact of the ledger: the definition of a symmetry, read off
again.

The solver decides by colours and blocks which classes may be exchanged; this looks at the result alone.
Labels are moved, and then the labels of every array must be those it had, every tie must tie the same pairs,
every projection must send the same labels to the same blocks, and what is frozen must be where it was.
"""

from __future__ import annotations

import numpy as np

from intertwine.ir.ledger import Ids, Ledger
from intertwine.symmetry.classes import Classes
from intertwine.symmetry.colours import joined, mix, numbered


class FactChecker:
    """All facts of one ledger as hashed multisets of tuples of labels, one for each fact."""

    def __init__(self, ledger: Ledger, classes: Classes) -> None:
        self.classes = classes
        left = [*ledger.arrays, *(t.left for t in ledger.ties), *(c for c, _ in ledger.projections)]
        right = [*ledger.arrays, *(t.right for t in ledger.ties), *(p for _, p in ledger.projections)]
        self.left, self.right, self.fact = joined(left), joined(right), numbered(left)
        self.facts = len(left)
        self.frozen = joined([f.labels for f in ledger.freezes])

    def broken(self, relabel: Ids) -> Ids:
        """The classes at fault: those that moved and take part in a fact that no longer holds."""
        image = self.classes.image(relabel)
        wrong = self._sums(np.arange(len(image))) != self._sums(image)
        labels = np.concatenate([self.left[wrong[self.fact]], self.right[wrong[self.fact]], self.frozen])
        moved = labels[image[labels] != labels]
        return np.unique(self.classes.of[moved])

    def _sums(self, image: Ids) -> np.ndarray:
        pairs = mix((mix(image[self.left]) + (image[self.right] << 1).view(np.uint64)).view(np.int64))
        total = np.zeros(self.facts, np.uint64)
        np.add.at(total, self.fact, pairs)
        return total

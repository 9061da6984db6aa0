"""Sizes that depend on the data: how many rows a mask picks, how many tokens an expert gets.

The graph gives them a letter. Here each letter is a prime that divides no other size of the graph, so that
nothing fits it by chance, and a view that mixes such rows with channels cuts between all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy
import torch
from torch import fx

_FIRST = 11  # smaller ones divide too much


class UnknownSizes:
    """The sizes of one graph.

    >>> UnknownSizes([22, 26]).of(5), UnknownSizes([22, 26])._prime(sympy.Symbol("u0"))
    (5, 17)
    """

    def __init__(self, known: Iterable[int]) -> None:
        self._known = [size for size in known if size]
        self._primes = dict[sympy.Symbol, int]()

    def of(self, size: int | torch.SymInt) -> int | None:
        """A size as a number; None where its letters say no such."""
        if isinstance(size, int):
            return size
        letters = size.node.expr
        found = letters.xreplace({s: sympy.Integer(self._prime(s)) for s in letters.free_symbols})
        return int(found) if found.is_Integer and found >= 0 else None

    def _prime(self, letter: sympy.Symbol) -> int:
        if letter not in self._primes:
            prime = sympy.nextprime(max((_FIRST - 1, *self._primes.values())))
            while any(size % prime == 0 for size in self._known):
                prime = sympy.nextprime(prime)
            self._primes[letter] = prime
        return self._primes[letter]


def depends_on_data(node: fx.Node) -> bool:
    """Whether data decides about the size of what a node returns."""
    value: Any = node.meta.get("val")
    made = value if isinstance(value, (list, tuple)) else [value]
    return any(not isinstance(s, int) for v in made if isinstance(v, torch.Tensor) for s in v.shape)

"""Random group elements: permutations inside blocks, solutions of the scale equations, matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intertwine.ir.ledger import Ids
from intertwine.symmetry.colours import mix
from intertwine.symmetry.scales import ScaleKind
from intertwine.symmetry.structure import Structure
from intertwine.symmetry.transform import PARTS, Element, identity


def sample(
    structure: Structure,
    rng: np.random.Generator,
    parts: tuple[str, ...] = PARTS,
    spread: float = 0.4,
    *,
    held: Ids | None = None,
    kinds: Sequence[ScaleKind] | None = None,
    restless: bool = False,
) -> Element:
    """A random element: uniform permutations, log-normal scales of width `spread`, fair signs, matrices.

    held: classes that keep their places. kinds: the rescalings to draw from, if not all. restless: whatever
    may change places does, and every kind of sign changes somewhere; of two places a fair draw leaves half
    as they are, and what stays is not tried.
    """
    base, held = identity(structure), np.zeros(0, np.int64) if held is None else held
    moves = "permutation" in parts
    relabel = sample_relabel(structure, rng, held, restless) if moves else base.relabel
    log_scale, sign = sample_scales(
        structure, rng, spread if "scale" in parts else 0.0, "sign" in parts, kinds, restless
    )
    linear = dict(base.linear)
    if "linear" in parts:
        for orbit, axis in structure.linear.items():
            if axis.fibres.flat[0] in held:
                continue
            shape = (len(axis.fibres), axis.fibres.shape[1], axis.fibres.shape[1])
            left, _ = np.linalg.qr(rng.standard_normal(shape))
            if not axis.orthogonal:
                right, _ = np.linalg.qr(rng.standard_normal(shape))
                stretch = np.exp(spread * rng.standard_normal(shape[:2]))
                left = (left * stretch[:, None, :]) @ right
            linear[orbit] = left
    turn = structure.turns.draw(rng, spread) if "turn" in parts and structure.turns.count else None
    exchange = None
    if "exchange" in parts and structure.exchanges.count:
        exchange = structure.exchanges.draw(rng, restless)
    return Element(structure, relabel, log_scale, sign, linear, turn, exchange)


def sample_parts(
    structure: Structure, rng: np.random.Generator, classes: Ids, spread: float = 0.4
) -> Element:
    """A random element that moves, rescales and mixes the chosen classes only, and what lies in their
    blocks."""
    chosen = np.zeros(structure.classes.count, bool)
    chosen[classes] = True
    whole = sample(structure, rng, PARTS, spread, held=np.flatnonzero(~chosen))
    owner = structure.component_class[structure.component]
    ours = (owner >= 0) & chosen[owner]
    plain = identity(structure)
    linear = {
        orbit: matrix if chosen[structure.linear[orbit].fibres.flat[0]] else plain.linear[orbit]
        for orbit, matrix in whole.linear.items()
    }
    log_scale, sign = np.where(ours, whole.log_scale, 0.0), np.where(ours, whole.sign, 1.0)
    return Element(structure, whole.relabel, log_scale, sign, linear)


def fibre_keys(structure: Structure) -> Ids:
    """Class -> a key that it shares with those that it may change places with, inside its blocks."""
    keys: Ids = structure.classes.blocks_key() + mix(structure.classes.orbit + (1 << 43))
    return keys


def sample_relabel(
    structure: Structure, rng: np.random.Generator, held: Ids | None = None, restless: bool = False
) -> Ids:
    """A random permutation of classes, but for those held: outer blocks first, then freely in each fibre;
    restless: in a cycle through the whole fibre."""
    c = structure.classes
    relabel, home = np.arange(c.count), fibre_keys(structure)
    ordered = np.zeros(c.count, bool)
    for axis in structure.linear.values():
        ordered[axis.fibres] = True  # a matrix does what a permutation would: keep the order inside a fibre
    if held is not None:
        ordered[held] = True
    for depth in np.unique(c.depth):
        chosen = np.flatnonzero(c.depth == depth)
        kind = mix(c.orbit[chosen] + (1 << 43))
        here, there = home[chosen], c.blocks_key(relabel)[chosen] + kind
        still = ordered[chosen]
        shuffle = np.where(still, np.arange(len(chosen)), rng.permutation(len(chosen)))
        a = np.lexsort((shuffle if restless else np.arange(len(chosen)), here))
        b = np.lexsort((shuffle, there))
        if not np.array_equal(here[a], there[b]):
            raise AssertionError("blocks of one orbit have different contents")
        if restless:
            b = np.where(still[b], b, b[_next_in_run(there[b])])
        relabel[chosen[b]] = chosen[a]
    return relabel


def _next_in_run(keys: Ids) -> Ids:
    """The place after each, and after the last of a run of equal keys its first.

    >>> _next_in_run(np.array([7, 7, 7, 2])).tolist()
    [1, 2, 0, 3]
    """
    first = np.r_[True, keys[1:] != keys[:-1]]
    after = np.arange(len(keys)) + 1
    after[np.r_[first[1:], True]] = np.flatnonzero(first)
    return after


def sample_scales(
    structure: Structure,
    rng: np.random.Generator,
    spread: float,
    signs: bool,
    kinds: Sequence[ScaleKind] | None = None,
    restless: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Random solutions of the scale equations, as log-scale and sign of every position."""
    total = len(structure.scalings.kind_of)
    log_scale, sign = np.zeros(total), np.ones(total)
    for kind in structure.scalings.kinds if kinds is None else kinds:
        if spread and kind.real.shape[1]:
            free = spread * rng.standard_normal((len(kind.scales), kind.real.shape[1]))
            log_scale[kind.scales] = free @ kind.real.T
        if signs and kind.sign.shape[1]:
            flips = rng.integers(0, 2, (len(kind.scales), kind.sign.shape[1]))
            if restless and not flips.any():
                flips[:] = 1
            sign[kind.scales] = 1 - 2 * ((flips @ kind.sign.T) % 2)
    at, moves = structure.scales, structure.rescaled
    return np.where(moves, log_scale[at], 0.0), np.where(moves, sign[at], 1.0)

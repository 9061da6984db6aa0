"""Modules side by side that the function does not tell apart: experts, branches, heads in a list.

A permutation of the group moves positions inside tensors. Here whole modules change places, with all their
weights and buffers, and what is told by their order moves along: the rows of a router, the columns of what
reads their outputs side by side.

1. Candidates are read off the names: modules of one container (or of several containers, entry by entry)
   whose weights have the same names and shapes, and by the same ops go the same way to the outputs.
2. The graph is read as expressions (`rules.expressions`). A position of another weight that meets one member
   alone is that member's.
3. The graph is read again with two members exchanged, and what is theirs. Equal expressions of all outputs
   prove that nothing has changed; what cannot be told by laws is not claimed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import fx
from torch.utils._pytree import tree_leaves

from intertwine.graph.export import Traced
from intertwine.ir.ledger import Ids
from intertwine.rules.expressions import UNORDERED, Expressions, Spot, Terms
from intertwine.rules.laws import ADDED_AT
from intertwine.rules.registry import facts
from intertwine.rules.tails import op_of
from intertwine.symmetry.members import Family
from intertwine.symmetry.pairs import Slot

_Weight = tuple[tuple[str, ...], str]  # the rest of its name, and the first name of the tensor
_UNREAD = -1  # the way of a weight that no op reads
_KINDS = 4  # members that are like none of so many others are left alone


def find_families(graphs: Sequence[Traced]) -> tuple[Family, ...]:
    """What may change places in all graphs of one model."""
    candidates = _candidates(graphs[0])
    if not candidates:
        return ()
    sizes = frozenset(candidate.size for candidate in candidates)
    readings = [_Checked(traced, sizes) for traced in graphs]
    found, taken = list[Family](), set[str]()
    for candidate in candidates:
        if taken.isdisjoint(name for names in candidate.tensors for name in names):
            for family in readings[0].families(candidate):
                if all(other.holds(family) for other in readings[1:]):
                    found.append(family)
                    taken.update(name for names in family.tensors for name in names)
    return tuple(_commuting(found))


def _commuting(families: list[Family]) -> Iterator[Family]:
    """Those of which no weight that moves along belongs to another family or moves along twice."""
    seen = {name for family in families for names in family.tensors for name in names}
    for family in families:
        if seen.isdisjoint(name for name, _ in family.beside):
            seen |= {name for name, _ in family.beside}
            yield family


# -- candidates ---------------------------------------------------------------------------------------------


def _candidates(traced: Traced) -> list[Family]:
    """Members by their names, whose weights have equal names, shapes and ways to the outputs; outer ones
    first."""
    ways = _ways(traced)
    held = set(ways)
    groups: dict[tuple[str, ...], dict[str, list[tuple[tuple[str, ...], str]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for name, first in traced.alias.items():
        if first not in held:
            continue
        parts = name.split(".")
        for depth, part in enumerate(parts):
            above, rest = parts[:depth], parts[depth + 1 :]
            groups["entries", *above][part].append((tuple(rest), first))
            word, number = re.fullmatch(r"(?s)(.*?)([0-9]*)", part).groups()  # type: ignore[union-attr]
            if word and number:  # up0 and down0 beside up1 and down1, or up0 and up1 beside down0 and down1
                groups["numbers", *above][number].append(((word, *rest), first))
                groups["words", *above][word].append(((number, *rest), first))
            if not word and above:  # up.0 and down.0 beside up.1 and down.1
                groups["lists", *above[:-1]][part].append(((above[-1], *rest), first))
    families = dict[tuple[tuple[str, ...], ...], Family]()
    names = {"entries": "{}", "numbers": "*{}", "lists": "*.{}", "words": "{}*"}
    order = list(names)
    for (kind, *above), members in sorted(groups.items(), key=lambda g: (order.index(g[0][0]), len(g[0]))):
        alike: dict[tuple[object, ...], list[tuple[str, tuple[str, ...]]]] = defaultdict(list)
        shared = _shared(members.values())
        lists = _of_alike(traced, ways, members) if kind == "lists" else None
        for member, weights in members.items():
            told = [w for w in weights if lists is None or w[0][0] in lists]
            own = sorted((rest, first) for rest, first in told if first not in shared)
            key = tuple((rest, traced.shapes.get(first), ways[first]) for rest, first in own)
            name = ".".join([*above, names[kind].format(member)])
            alike[key].append((name, tuple(first for _, first in own)))
        for listed in alike.values():
            tensors = tuple(own for _, own in listed)
            flat = [name for own in tensors for name in own]
            read = any(ways[name] != _UNREAD for name in flat)
            if len(listed) > 1 and read and len(set(flat)) == len(flat):
                families.setdefault(tensors, Family(tuple(name for name, _ in listed), tensors, {}))
    return list(families.values())


def _of_alike(
    traced: Traced, ways: Mapping[str, int], members: Mapping[str, Sequence[_Weight]]
) -> frozenset[str]:
    """The lists of which some two entries are alike: the layers of an MLP beside them are none."""
    entries: dict[str, dict[str, list[object]]] = defaultdict(lambda: defaultdict(list))
    for member, weights in members.items():
        for rest, first in sorted(weights):
            entries[rest[0]][member].append((rest, traced.shapes.get(first), ways[first]))
    kinds = {name: [tuple(entry) for entry in of.values()] for name, of in entries.items()}
    return frozenset(name for name, found in kinds.items() if len(set(found)) < len(found))


def _ways(traced: Traced) -> dict[str, int]:
    """Weight -> a number for the ops that lie between it and the outputs, whatever they are given besides.

    Sums are passed through: of f + g + h each is a term, whichever is added first; so are products and maxima
    of several.
    """
    numbers, way, found = dict[object, int](), dict[fx.Node, frozenset[object]](), dict[str, int]()
    for node in reversed(traced.graph.nodes):
        steps: Counter[object] = Counter()
        for user in node.users:
            if user.op == "output":
                steps["output"] += 1
                continue
            op = op_of(user)
            if facts(user).adds or (op in ADDED_AT and user.args[0] is node):
                steps.update(dict(way[user]))  # type: ignore[arg-type]
                continue
            kind = UNORDERED.get(op)
            if kind is not None and all(UNORDERED.get(op_of(next_one)) == kind for next_one in user.users):
                steps.update(dict(way[user]))  # type: ignore[arg-type]
                continue
            for k, argument in enumerate((*user.args, *user.kwargs.values())):
                if node in _nodes(argument):
                    after = numbers.setdefault(way[user], len(numbers))
                    steps[kind or op, 0 if kind else k, after] += 1
        way[node] = frozenset(steps.items())
        if node.op == "placeholder" and node.name in traced.weights:
            number = numbers.setdefault(way[node], len(numbers)) if node.users else _UNREAD
            found[traced.weights[node.name]] = number
    return found


def _nodes(argument: object) -> set[fx.Node]:
    return {leaf for leaf in tree_leaves(argument) if isinstance(leaf, fx.Node)}


def _shared(members: Iterable[Sequence[_Weight]]) -> set[str]:
    """Weights that several members have in common."""
    owners: dict[str, int] = defaultdict(int)
    for weights in members:
        for first in {first for _, first in weights}:
            owners[first] += 1
    return {first for first, count in owners.items() if count > 1}


# -- the proof ----------------------------------------------------------------------------------------------


class _Checked:
    """One graph, read as it is; and whether an exchange leaves its outputs as they are."""

    def __init__(self, traced: Traced, sizes: frozenset[int]) -> None:
        self.traced, self.sizes, self.terms = traced, sizes, Terms()
        self.base = Expressions(traced, self.terms, sizes)
        self._own = len(self.terms.parts)  # those that follow are of weights that have changed places

    def families(self, candidate: Family) -> Iterator[Family]:
        """The members of a candidate in sets that may be permuted."""
        family = replace(candidate, beside=self._beside(candidate))
        kinds = list[list[int]]()
        for k in range(family.size):
            for kind in kinds[:_KINDS]:
                if self._exchanges(_part(family, [kind[0], k])):
                    kind.append(k)
                    break
            else:
                kinds.append([k])
        for kind in kinds:
            part = _part(family, kind)
            if len(kind) > 1:
                yield part

    def holds(self, family: Family) -> bool:
        """Whether every member may change places with the first one."""
        return all(self._exchanges(_part(family, [0, k])) for k in range(1, family.size))

    def _exchanges(self, pair: Family) -> bool:
        """Whether the outputs stay when two members change places."""
        exchanged = pair.exchanged([1, 0])
        after = Expressions(self.traced, self.terms, self.sizes, exchanged, self.base)
        before = dict(enumerate(self.base.outputs))
        written = {name: k for k, name in self.traced.written.items()}
        for k, number in enumerate(after.outputs):
            name = self.traced.written.get(k)
            if name in exchanged.slots:
                return False  # what is written into it would have to be told position by position
            source = written.get(exchanged.tensors.get(name, name)) if name is not None else k
            if source is None or number != before[source]:
                return False
        return True

    def _beside(self, family: Family) -> dict[Slot, Ids]:
        """The positions of other weights that meet one member alone, where all members have as many."""
        owner = {name: k for k, names in enumerate(family.tensors) for name in names}
        owned: dict[Slot, list[list[int]]] = {}
        for (name, dim, place), member in _owners(self.terms, self._own, owner).items():
            owned.setdefault((name, dim), [[] for _ in family.members])[member].append(place)
        return {
            slot: np.array([sorted(places) for places in each])
            for slot, each in owned.items()
            if len({len(places) for places in each}) == 1
        }


def _part(family: Family, chosen: Sequence[int]) -> Family:
    """Some of the members."""
    rows = np.asarray(chosen)
    return Family(
        tuple(family.members[k] for k in chosen),
        tuple(family.tensors[k] for k in chosen),
        {slot: where[rows] for slot, where in family.beside.items()},
    )


def _owners(terms: Terms, count: int, owner: Mapping[str, int]) -> dict[Spot, int]:
    """Position of another weight -> the one member that it is met by, wherever it is met by one alone.

    count: of the expressions that are looked at.
    """
    bit_of, spots = dict[Spot, int](), list[Spot]()
    members, beside = list[int](), list[int]()
    met: dict[int, int] = defaultdict(int)  # member -> bits of the positions
    for number, parts in enumerate(terms.parts[:count]):
        mine = theirs = 0
        weight = terms.weight.get(number)
        if weight is not None and weight in owner:
            mine = 1 << owner[weight]
        elif weight is not None:
            for spot in terms.spots.get(number, ()):
                if spot not in bit_of:
                    bit_of[spot] = len(spots)
                    spots.append(spot)
                theirs |= 1 << bit_of[spot]
        for part in parts:
            mine |= members[part]
            theirs |= beside[part]
        members.append(mine)
        beside.append(theirs)
        if mine and theirs and not mine & (mine - 1):
            met[mine.bit_length() - 1] |= theirs
    once = several = 0
    for bits in met.values():
        several |= once & bits
        once |= bits
    found = dict[Spot, int]()
    for member, bits in met.items():
        alone = bits & ~several
        while alone:
            low = alone & -alone
            found[spots[low.bit_length() - 1]] = member
            alone ^= low
    return found

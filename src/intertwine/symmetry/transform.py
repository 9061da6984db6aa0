"""Group elements: compose, invert, save, and act on weights.

The convention, stated once. An element acts on a weight dimension by first multiplying (scales, signs,
matrices), then moving: position p goes to `destination[p]`, so

    new[destination[p]] = factor[p] * old[p]        and, as an index,  new = (factor * old)[source].

`a @ b` is "first b, then a". A batch norm's running variance is scaled about -eps: (v + eps) f - eps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from intertwine.checks import checked
from intertwine.errors import InputError
from intertwine.files import write_tensors
from intertwine.ir.ledger import Ids
from intertwine.reading import parsing, read_safetensors
from intertwine.rules.expressions import Exchanged
from intertwine.symmetry.check import FactChecker
from intertwine.symmetry.colours import mix
from intertwine.symmetry.conjugate import Conjugation
from intertwine.symmetry.positions import in_front, put_back, taken
from intertwine.symmetry.structure import Structure

PARTS = ("permutation", "scale", "sign", "linear")
# With the pairs of rotary embeddings and modules that change places, which other tools leave as they are.
EVERY_PART = (*PARTS, "turn", "exchange")
_LARGEST_LOG = 300.0  # of a scale: exp of it is a number, and so is its inverse
_LARGEST_CONDITION = 1e14


@dataclass(frozen=True, eq=False)
class Element:
    """One symmetry of one model.

    relabel: class -> class. log_scale, sign: per position of every slot. linear: orbit -> (blocks, n, n).
    turn: log w of every pair of channels of a rotary embedding (`symmetry.turns`); None: none turns.
    exchange: member -> its place, of modules that change places after all that (`symmetry.exchange`); None:
    none do.
    """

    structure: Structure
    relabel: Ids
    log_scale: np.ndarray
    sign: np.ndarray
    linear: Mapping[int, np.ndarray]
    turn: np.ndarray | None = None
    exchange: Ids | None = None

    def __repr__(self) -> str:
        moved = int((self.relabel != np.arange(len(self.relabel))).sum())
        rescaled = int(((np.abs(self.log_scale) > 1e-12) | (self.sign < 0)).sum())
        turned = sum(not np.allclose(m, np.eye(m.shape[-1])) for m in self.linear.values())
        placed = 0 if self.exchange is None else int((self.exchange != np.arange(len(self.exchange))).sum())
        counts = f"channels moved: {moved}, positions rescaled: {rescaled}, axes turned: {turned}"
        return f"Element({counts}{f', modules exchanged: {placed}' if placed else ''})"

    def __matmul__(self, first: Element) -> Element:
        """`self @ first`: the element that acts as `first`, then as `self`."""
        if first.structure is not self.structure:
            raise InputError(
                "the two elements belong to different models", do="compose elements of one Symmetry"
            )
        if self.exchange is not None or first.exchange is not None:
            return _exchanged_by_both(self, first)
        move = destinations(self.structure, first.relabel)
        linear = {}
        for orbit, matrix in first.linear.items():
            after = self.linear[orbit][fibre_map(self.structure, orbit, first.relabel)]
            linear[orbit] = after @ matrix
        return Element(
            self.structure,
            self.relabel[first.relabel],
            first.log_scale + self.log_scale[move],
            first.sign * self.sign[move],
            linear,
            _turned_by_both(self, first, move),
        )

    def inverse(self) -> Element:
        """The element that undoes this one."""
        if self.exchange is not None:
            back = np.argsort(self.exchange)
            return replace(conjugate(replace(self, exchange=None).inverse(), self.exchange), exchange=back)
        move = destinations(self.structure, self.relabel)
        back = np.empty_like(self.relabel)
        back[self.relabel] = np.arange(len(back))
        log_scale, sign = np.empty_like(self.log_scale), np.empty_like(self.sign)
        log_scale[move], sign[move] = -self.log_scale, self.sign
        linear = {}
        for orbit, matrix in self.linear.items():
            target = fibre_map(self.structure, orbit, self.relabel)
            undone = np.empty_like(matrix)
            undone[target] = np.linalg.inv(matrix)
            linear[orbit] = undone
        turn = None
        if self.turn is not None:
            turn = np.empty_like(self.turn)
            turn[self.structure.turns.moved(self.structure.span, move)] = -self.turn
        return Element(self.structure, back, log_scale, sign, linear, turn)

    def is_identity(self, tolerance: float = 1e-12) -> bool:
        """Whether this element moves nothing."""
        return bool(
            (self.relabel == np.arange(len(self.relabel))).all()
            and (np.abs(self.log_scale) <= tolerance).all()
            and (self.sign == 1).all()
            and all(np.abs(m - np.eye(m.shape[-1])).max() <= tolerance for m in self.linear.values())
            and (self.turn is None or (np.abs(np.exp(self.turn) - 1) <= tolerance).all())
            and (self.exchange is None or (self.exchange == np.arange(len(self.exchange))).all())
        )

    @checked
    def save(self, path: str | Path) -> None:
        """Write a safetensors file whose JSON header says what it is."""
        tensors = {
            "relabel": torch.from_numpy(self.relabel.copy()),
            "log_scale": torch.from_numpy(self.log_scale.copy()),
            "sign": torch.from_numpy(self.sign.copy()),
            **{f"linear.{k}": torch.from_numpy(np.ascontiguousarray(m)) for k, m in self.linear.items()},
        }
        if self.turn is not None:
            tensors["turn"] = torch.from_numpy(np.stack([self.turn.real, self.turn.imag]))
        if self.exchange is not None:
            tensors["exchange"] = torch.from_numpy(self.exchange.copy())
        header = {"format": "intertwine element 1", "structure": fingerprint(self.structure)}
        write_tensors(path, tensors, {"intertwine": json.dumps(header)})


def load_element(structure: Structure, path: str | Path) -> Element:
    """Read what `Element.save` wrote, for the same model."""
    metadata, stored = read_safetensors(path, "saved group element")
    with parsing(path, InputError, so="it is not a saved group element"):  # some kinds numpy does not have
        header = json.loads(metadata.get("intertwine", "{}"))
        tensors = {name: tensor.numpy() for name, tensor in stored.items()}
    if not isinstance(header, dict) or header.get("structure") != fingerprint(structure):
        raise InputError(
            f"{path} was saved for another model",
            so="its channels cannot be matched to this one's",
            do="load it with the Symmetry of the model it was sampled from",
        )
    _check_tensors(structure, tensors, str(path))
    linear = {int(k.removeprefix("linear.")): v for k, v in tensors.items() if k.startswith("linear.")}
    turn = tensors["turn"][0] + 1j * tensors["turn"][1] if "turn" in tensors else None
    base = tensors["relabel"], tensors["log_scale"], tensors["sign"]
    return Element(structure, *base, linear, turn, tensors.get("exchange"))


def _check_tensors(structure: Structure, tensors: Mapping[str, np.ndarray], path: str) -> None:
    """The names, shapes and kinds of numbers that the identity has, all of them finite."""
    like = identity(structure)
    wanted = {"relabel": like.relabel, "log_scale": like.log_scale, "sign": like.sign}
    wanted |= {f"linear.{orbit}": matrix for orbit, matrix in like.linear.items()}
    if "turn" in tensors and structure.turns.count:
        wanted["turn"] = np.zeros((2, structure.turns.count))
    if "exchange" in tensors and structure.exchanges.count:
        wanted["exchange"] = structure.exchanges.identity()
    for name in sorted({*wanted, *tensors}):
        if name not in wanted or name not in tensors:
            raise InputError(f"{path} {'lacks' if name in wanted else 'has an unknown'} tensor {name!r}")
        found, right = tensors[name], wanted[name]
        if found.shape != right.shape or found.dtype.kind != right.dtype.kind:
            raise InputError(f"{path}: {name} is {found.dtype}{found.shape}, not {right.dtype}{right.shape}")
        if not np.isfinite(found).all():
            raise InputError(f"{path}: {name} holds NaN or infinite numbers")
    if not np.array_equal(np.sort(tensors["relabel"]), like.relabel) or not (abs(tensors["sign"]) == 1).all():
        raise InputError(f"{path} is not a group element: not a permutation, or signs other than 1 and -1")
    orbit, relabel = structure.classes.orbit, tensors["relabel"]
    checker = FactChecker(structure.inference.ledger, structure.classes)
    if (orbit[relabel] != orbit).any() or len(checker.broken(relabel)):
        raise InputError(f"{path} is not a group element: what it moves is no symmetry")
    if "exchange" in wanted and not structure.exchanges.is_exchange(tensors["exchange"]):
        raise InputError(f"{path} is not a group element: it exchanges modules that may not change places")
    still = ~structure.rescaled
    scales, signs = tensors["log_scale"], tensors["sign"]
    if (abs(scales) > _LARGEST_LOG).any() or scales[still].any() or (signs[still] != 1).any():
        raise InputError(f"{path} is not a group element: its scales are none of the model's")
    sizes = tensors["turn"][0] if "turn" in wanted else np.zeros(0)
    if (abs(sizes) > _LARGEST_LOG).any() or sizes[~structure.turns.scaled[: len(sizes)]].any():
        raise InputError(f"{path} is not a group element: it rescales pairs that only turn")
    matrices = [matrix for name, matrix in tensors.items() if name.startswith("linear.")]
    if any((np.linalg.cond(matrix) > _LARGEST_CONDITION).any() for matrix in matrices):
        raise InputError(f"{path} is not a group element: a matrix of it has no inverse")


def fingerprint(structure: Structure) -> str:
    """A hash of the structure: equal for the same architecture, traced again."""
    ids = np.arange(structure.classes.count)
    slots = ";".join(f"{p}:{d}:{a}:{b}" for (p, d), (a, b) in structure.span.items())
    named = np.frombuffer(slots.encode(), np.uint8).astype(np.int64)
    hashes = np.concatenate([structure.place_hash(ids), mix(named + 256 * np.arange(len(named)))])
    return f"{int(hashes.sum(dtype=np.uint64)):016x}"


def identity(structure: Structure) -> Element:
    """The element that moves nothing."""
    n = len(structure.labels)
    linear = {
        o: np.tile(np.eye(axis.fibres.shape[1]), (len(axis.fibres), 1, 1))
        for o, axis in structure.linear.items()
    }
    return Element(structure, np.arange(structure.classes.count), np.zeros(n), np.ones(n), linear)


def _turned_by_both(after: Element, first: Element, move: Ids) -> np.ndarray | None:
    """log w of `after @ first`: the pairs of `after` are those that `first` has moved."""
    if after.turn is None:
        return first.turn
    there: np.ndarray = after.turn[after.structure.turns.moved(after.structure.span, move)]
    return there if first.turn is None else first.turn + there


def _exchanged_by_both(after: Element, first: Element) -> Element:
    """(e h)(d g) = (e d)(d^-1 h d) g for exchanges e and d."""
    still = after.structure.exchanges.identity()
    d, e = (still if x.exchange is None else x.exchange for x in (first, after))
    both = conjugate(replace(after, exchange=None), np.argsort(d)) @ replace(first, exchange=None)
    return replace(both, exchange=e[d])


def conjugate(element: Element, exchange: Ids) -> Element:
    """e g e^-1 for an exchange e of modules and an element g that exchanges none (`symmetry.conjugate`)."""
    structure = element.structure
    if (exchange == np.arange(len(exchange))).all():
        return element
    to = Conjugation(structure, structure.exchanges, exchange)
    relabel = np.arange(structure.classes.count)
    relabel[to.classes] = to.classes[element.relabel]
    carry(structure, relabel, np.unique(structure.coordinate_class))
    log_scale, sign = np.empty_like(element.log_scale), np.empty_like(element.sign)
    log_scale[to.position], sign[to.position] = element.log_scale, element.sign
    linear = {}
    for orbit, matrix in element.linear.items():
        goal, block, channel = to.linear[orbit]
        linear[goal] = np.empty_like(matrix)
        # Rows and columns of a block have the order of its image.
        for k, here in enumerate(matrix):
            linear[goal][block[k]][np.ix_(channel[k], channel[k])] = here
    turn = None
    if element.turn is not None:
        turn = np.empty_like(element.turn)
        turn[to.pairs] = element.turn
    return Element(structure, relabel, log_scale, sign, linear, turn)


def destinations(structure: Structure, relabel: Ids) -> Ids:
    """Where every position goes, as an index into the same long list of positions."""
    result: Ids = structure.position_of[structure.classes.image(relabel)[structure.labels]]
    return result


def fibre_map(structure: Structure, orbit: int, relabel: Ids) -> Ids:
    """Block -> block of a linear axis under a relabelling."""
    fibres = structure.linear[orbit].fibres
    block = {int(f[0]): i for i, f in enumerate(fibres)}
    return np.array([block[int(relabel[f[0]])] for f in fibres])


class Action:
    """An element made ready to act on weights one at a time: g . theta costs the memory of one weight."""

    def __init__(self, element: Element) -> None:
        self.element, s = element, element.structure
        self._move = destinations(s, element.relabel)
        self._factor = torch.from_numpy(np.exp(element.log_scale) * element.sign)
        exchange = element.exchange
        self._exchanged = Exchanged() if exchange is None else s.exchanges.exchanged(exchange)
        self._linear = {o: torch.from_numpy(np.array(m, order="C")) for o, m in element.linear.items()}

    def source(self, name: str) -> str:
        """The weight that comes to lie under a name: another one where modules change places."""
        return self._exchanged.tensors.get(name, name)

    def weight(self, name: str, old: Callable[[str], Tensor]) -> Tensor:
        """The new value of a weight, in the precision of the old ones, which are asked for by name; that of
        its source itself if nothing acts on it."""
        s, source = self.element.structure, self.source(name)
        tensor = old(source)
        keys = [(source, dim) for dim in range(tensor.dim()) if (source, dim) in s.span]
        along = self._exchanged.slots.get(name, {})
        if not keys and not along:
            return tensor
        dtype, shift = tensor.dtype, s.inference.shifts.get(source, 0.0)
        tensor = tensor.detach().to(torch.float64)
        if shift:
            tensor = tensor + shift
        for key in keys:
            tensor = multiply(tensor, s, key, self._factor, self._linear)
            if self.element.turn is not None:
                tensor = s.turns.multiply(tensor, key, self.element.turn)
        for key in keys:
            tensor = _move(tensor, s, key, self._move)
        for dim, places in along.items():
            index = torch.arange(tensor.shape[dim])
            index[: len(places)] = torch.tensor(places)
            tensor = tensor.index_select(dim, index.to(tensor.device))
        return (tensor - shift if shift else tensor).to(dtype)


def apply_element(element: Element, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """New weights g . theta; tensors that the element does not touch are passed through unchanged."""
    action = Action(element)
    return {name: action.weight(name, state.__getitem__) for name in state}


def multiply(
    tensor: Tensor, s: Structure, key: tuple[str, int], factor: Tensor, linear: Mapping[int, Tensor]
) -> Tensor:
    """One dimension of a weight times its scales (factor: of every position) and the matrices of its linear
    axes, by orbit; differentiable in all of them."""
    (start, stop), dim = s.span[key], key[1]
    shape = s.slots[key].ids.shape
    values = factor[start:stop].to(tensor)
    if (values != 1.0).any() or values.requires_grad:
        tensor = put_back(in_front(tensor, shape, dim) * values, shape, dim, tensor.shape)
    for orbit, axis in s.linear.items():
        if key in axis.places:
            where, fibre, exponent = axis.places[key]
            matrix = linear[orbit][torch.from_numpy(fibre)]
            if (exponent < 0).any():  # inverted before it is rounded: halves have no inverse
                straight = torch.from_numpy(exponent > 0).to(matrix.device)[:, None, None]
                matrix = torch.where(straight, matrix, torch.linalg.inv(matrix).mT)
            matrix = matrix.to(tensor)
            front = in_front(tensor, shape, dim).clone()
            index = torch.from_numpy(where).to(tensor.device)
            front[..., index] = torch.einsum("...bn,bmn->...bm", front[..., index], matrix)
            tensor = put_back(front, shape, dim, tensor.shape)
    return tensor


def _move(tensor: Tensor, s: Structure, key: tuple[str, int], move: Ids) -> Tensor:
    (start, stop), dim = s.span[key], key[1]
    shape = s.slots[key].ids.shape
    source = np.empty(stop - start, np.int64)
    source[move[start:stop] - start] = np.arange(stop - start)
    if (source == np.arange(stop - start)).all():
        return tensor
    return taken(tensor, shape, dim, source)


def carry(structure: Structure, relabel: Ids, placed: Ids | None = None) -> None:
    """Move what lies inside moved blocks (the pixels of a flattened channel) along with them, in order.

    relabel: class -> class, completed in place; classes in `placed` have their place already.
    """
    classes = structure.classes
    rest, home = classes.depth > 0, classes.blocks_key()
    if placed is not None:
        rest[placed] = False
    for depth in np.unique(classes.depth[rest]):
        chosen = np.flatnonzero(rest & (classes.depth == depth))
        kind = mix(classes.orbit[chosen] + (1 << 43))
        here = np.argsort(home[chosen] + kind, kind="stable")
        there = np.argsort(classes.blocks_key(relabel)[chosen] + kind, kind="stable")
        relabel[chosen[there]] = chosen[here]

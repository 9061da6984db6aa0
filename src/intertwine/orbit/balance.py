"""The point of least norm on the orbit of a model, under its rescalings and matrices: a canonical gauge.

Scales: argmin over l of sum_w |w|^2 exp(2 <e_w, l>), e_w the exponents with which the log-scales l act on w.
This is convex in l. Where a scaling only ever enlarges (the input side of batch norm) there is no least norm;
there a linear term is subtracted, which fixes the norm (to 1) and is as invariant.

Matrices: M M' = R R' for what makes a linear axis and what reads it (`matrices`).

Both problems are convex together (Kempf and Ness), so they are solved in turns until neither moves. What is
left between the results for two models of one orbit are permutations, signs and rotations.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, vstack
from torch import Tensor

from intertwine.ir.ledger import Ids
from intertwine.orbit.action import GroupAction
from intertwine.orbit.matrices import balancing, least_norm, stacked
from intertwine.orbit.state import State
from intertwine.orbit.units import Unit

Array = np.ndarray
_NOTHING = 1e-24  # squares below this share of the largest are those of dead channels
_VANISHED = 1e-32  # the squared norm of what would be zero in the limit


class Balance:
    """Brings the weights of a state to their point of least norm, without permutations and signs.

    limit: where the norm is least only in a limit of the orbit, go there; it computes the same function.
    What does nothing is zero there: directions of a linear axis that are made and not read, or weights that
    read a dead channel. No element leads to the limit, so then only the weights of the state count.
    """

    def __init__(self, action: GroupAction, *, limit: bool = False) -> None:
        self.structure, self.params, self.limit = action.structure, action.params, limit
        self.linear = [unit for unit in action.forest.units if _has_two_sides(unit, action.params)]
        self.log_scales = action.scales.group.log_scales
        scaled = np.diff(self.log_scales.indptr) > 0
        self.slots = [slot for slot, (a, b) in self.structure.span.items() if scaled[a:b].any()]
        self.places = {name: self._places(name) for name, _ in self.slots if name in self.params}
        rows = [
            sum(self.log_scales[p.reshape(-1)] for p in np.broadcast_arrays(*places))
            for places in self.places.values()
        ]
        # One row for each entry of every weight, with the exponents of the free scales that act on it.
        self.exponents = csr_array(vstack(rows)) if rows else self.log_scales[:0]

    def __call__(self, state: State, exact: float = 1e-12, turns: int = 300) -> None:
        """Turns of matrices and scales until neither moves by more than `exact`. It falls by 5 in a turn, or
        slowly where both act on the same dimensions: then the rest of the way of the scales, nearly a
        geometric series, is gone at once, and the next turns make up for what it is not."""
        before: Array | None = None
        for _ in range(turns):
            change = max([self._turn(unit, state, exact) for unit in self.linear], default=0.0)
            step = self._rescale(state)
            moved = float(np.abs(step).max(initial=0.0))
            if not self.linear or max(change, moved) < exact:
                break
            rest = None if before is None else _rest(before, step)
            if rest is not None:
                state.rescale(rest, np.ones(len(rest)), self.slots)
            before = step if rest is None else None

    # -- matrices ----------------------------------------------------------------------------------------

    def _turn(self, unit: Unit, state: State, exact: float) -> float:
        """Balance the two sides of a linear axis; how far they were from it."""
        assert unit.linear is not None
        make, read = stacked(unit, state.weights, self.params)
        left, right = make @ make.mT, read @ read.mT
        apart = float((left - right).norm() / left.norm().clamp_min(1e-300))
        if apart < exact:
            return apart
        params = [param for param, _ in unit.linear.places if param in self.params]
        # Of a weight from the axis to itself the product R'M does not tell all, so nothing of it may vanish.
        if self.limit and len(params) == len(set(params)):
            x, y = least_norm(make, read)
            state.mover.turn(state.held, unit.linear.orbit, x.numpy(), y.numpy())
            return apart
        matrices = balancing(make, read).numpy()
        state.turn(unit.linear.orbit, matrices)
        return min(apart, float(np.abs(matrices - np.eye(matrices.shape[1])).max()))

    # -- scales ------------------------------------------------------------------------------------------

    def _places(self, name: str) -> list[Ids]:
        """For every dimension with scales the positions of its entries, in a shape that broadcasts."""
        shape, found = self.structure.inference.shapes[name], []
        for slot in self.slots:
            if slot[0] == name:
                ids = self.structure.slots[slot].ids.shape
                places, along = np.arange(*self.structure.span[slot]), {slot[1]}
                if len(ids) > 1:  # its channels differ from group to group of dimension 0
                    places, along = np.repeat(places.reshape(ids), shape[0] // ids[0], axis=0), {0, slot[1]}
                found.append(places.reshape([n if d in along else 1 for d, n in enumerate(shape)]))
        return found

    def _squares(self, name: str, weight: Tensor) -> Array:
        """The squared entries, summed over the dimensions that no scale acts on (the pixels of a kernel)."""
        shape = np.broadcast_shapes(*(p.shape for p in self.places[name]))
        still = [dim for dim, size in enumerate(shape) if size != weight.shape[dim]]
        square = weight.square()
        return (square.sum(still) if still else square).reshape(-1).numpy()

    def _rescale(self, state: State) -> Array:
        """Balance all scales; the log-scales that it took."""
        if not self.exponents.nnz:
            return np.zeros(0)
        squares = np.concatenate([self._squares(name, state.weights[name]) for name in self.places])
        if not self.limit:
            squares[squares < _NOTHING * squares.max()] = 0.0
        found = self.log_scales @ minimise(self.exponents, squares, self._pull(squares))
        state.rescale(found, np.ones(len(found)), self.slots)
        return np.asarray(found)

    def _pull(self, squares: Array) -> Array:
        """The linear term of scales without a least norm; in the limit those of dead channels may vanish."""
        here, ever = (self._one_sided(entries) for entries in (squares > 0, np.ones(len(squares))))
        return np.where(ever == 0, _VANISHED, 1.0) * here if self.limit else here

    def _one_sided(self, entries: Array) -> Array:
        """+1 or -1 for the free scales that act on the entries with one sign only, else 0."""
        up, down = (abs(self.exponents).T @ entries + sign * (self.exponents.T @ entries) for sign in (1, -1))
        answer: Array = (up > 0).astype(float) - (down > 0)
        return answer


def _rest(before: Array, step: Array) -> Array | None:
    """The sum of all steps still to come, if each is nearly q times the one before it; None where q is small,
    or they turn elsewhere, or the sum is no small step itself.

    >>> _rest(np.array([0.02, 0.0]), np.array([0.018, 0.0])).round(6).tolist()
    [0.162, 0.0]
    >>> _rest(np.array([0.5, 0.0]), np.array([0.1, 0.0])) is None
    True
    """
    long, both = float(before @ before), float(before @ step)
    q = both / long if long else 0.0
    alike = both > 0.9 * np.sqrt(long * float(step @ step))
    if not (alike and 0.5 < q < 1):
        return None
    rest = step * (q / (1 - q))
    return rest if float(np.abs(rest).max()) < 0.5 else None


def _has_two_sides(unit: Unit, params: frozenset[str]) -> bool:
    """Whether a linear unit has matrices that can be balanced, and weights on both sides."""
    sides = {spot.exponent for spot in unit.spots if spot.param in params}
    return unit.linear is not None and not unit.linear.orthogonal and len(sides) == 2


def minimise(exponents: csr_array, squares: Array, pull: Array, steps: int = 100) -> Array:
    """argmin over l of sum_k s_k exp(2 (E l)_k) - 2 <pull, l>, by Newton's method.

    A step changes no (E l)_k by more than 1/2, within which the exponentials are nearly quadratic; the last
    steps are whole and give all digits, which a line search on values would not.

    >>> E = csr_array(np.array([[1.0], [-1.0]]))
    >>> float(minimise(E, np.array([1.0, 16.0]), np.zeros(1))[0] / np.log(2))
    1.0
    """
    found = np.zeros(exponents.shape[1])
    # Scales of dead channels (all squares zero) have nothing to balance, and nothing may pull at them.
    alive = np.asarray(abs(exponents).T @ squares) > 0
    pull = np.where(alive, pull, 0.0)
    size = 1.0
    for _ in range(steps):
        heights = squares * np.exp(2 * (exponents @ found))
        gradient = 2 * (exponents.T @ heights) - 2 * pull
        # The equation need not be solved better than the quadratic model that it comes from holds.
        step = _solve(exponents, heights, -gradient, min(size, 0.01))
        size = float(np.abs(exponents @ step).max())
        found = found + step * min(1.0, 0.5 / max(size, 1e-300))
        # The next step would be about the square of this one.
        if size < 1e-10:
            break
    return found


def _solve(exponents: csr_array, heights: Array, right: Array, tolerance: float) -> Array:
    """d with 4 E' diag(heights) E d = right, by conjugate gradients with the diagonal divided out."""
    diagonal = 4 * (exponents.power(2).T @ heights)
    inverse = np.where(diagonal > 0, 1 / np.maximum(diagonal, 1e-300), 0.0)
    found, rest = np.zeros_like(right), right
    direction = inverse * rest
    square = rest @ direction
    goal = tolerance**2 * square
    for _ in range(2 * len(right) + 10):
        if not square > goal:
            break
        bent = 4 * (exponents.T @ (heights * (exponents @ direction)))
        curvature = float(direction @ bent)
        if not curvature > 1e-13 * float(diagonal @ direction**2):
            break  # scales that undo each other: what is left of the right side is rounding
        length = square / curvature
        found, rest = found + length * direction, rest - length * bent
        before, square = square, rest @ (inverse * rest)
        direction = inverse * rest + (square / before) * direction
    return found

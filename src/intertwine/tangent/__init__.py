"""The functional dimension at theta: the Jacobian's rank beside the dimension of the orbit."""

from intertwine.tangent.found import Dimension
from intertwine.tangent.kinds import KINDS, Direction
from intertwine.tangent.looked import Looked
from intertwine.tangent.measure import dimension

__all__ = ["KINDS", "Dimension", "Direction", "Looked", "dimension"]

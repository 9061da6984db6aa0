"""The orbit of a model under its symmetry group, on which merging, aligning and exploring rest.

find_isomorphism(a, b, symmetry)    is b on the orbit of a, and which element carries a there
automorphisms(model, symmetry)      the stabiliser: channels that can be exchanged without a change of weights
Canonical(action, reference)        one point for each orbit
Pairing(symmetry, a, b)                the element that brings b onto a, in closed form or by a search
"""

from __future__ import annotations

from intertwine.orbit.action import GroupAction, double
from intertwine.orbit.balance import Balance
from intertwine.orbit.canonical import Canonical
from intertwine.orbit.descent import search
from intertwine.orbit.gauge import find_gauge
from intertwine.orbit.isomorphism import Isomorphism, find_isomorphism
from intertwine.orbit.matching import Matcher
from intertwine.orbit.pair import SAME, Pairing
from intertwine.orbit.raised import Raised, is_large
from intertwine.orbit.scales import inner_products
from intertwine.orbit.stabiliser import Stabiliser, automorphisms, find_stabiliser
from intertwine.orbit.state import State
from intertwine.orbit.units import Forest, Unit, Weights

__all__ = [
    "SAME",
    "Balance",
    "Canonical",
    "Forest",
    "GroupAction",
    "Isomorphism",
    "Matcher",
    "Pairing",
    "Raised",
    "Stabiliser",
    "State",
    "Unit",
    "Weights",
    "automorphisms",
    "double",
    "find_gauge",
    "find_isomorphism",
    "find_stabiliser",
    "inner_products",
    "is_large",
    "search",
]

"""The intertwiner group of a scalar function: which scalings pass through it, and as what.

`intertwiner(sigma)` decides it by evaluation (Table 1 and E.2 of Godfrey et al. 2022); `xi` measures how far
GELU is from being positively homogeneous (eq. E.22).

>>> print(intertwiner("relu"))
relu: permutation x positive diagonal, phi(A) = A
>>> print(intertwiner("x**3"))
x**3: permutation x nonzero diagonal, phi(A) = A^3 entrywise
"""

from intertwine.activations.decide import intertwiner
from intertwine.activations.functions import names
from intertwine.activations.gelu import xi, xi_slope
from intertwine.activations.groups import Counterexample, Intertwiner

__all__ = ["Counterexample", "Intertwiner", "intertwiner", "names", "xi", "xi_slope"]

"""intertwine: infer, prove and use the weight-space symmetries of any PyTorch model.

>>> import torch, intertwine
>>> from torch import nn
>>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
>>> symmetry = intertwine.trace(mlp, torch.zeros(1, 3))
>>> [(axis.name, axis.size, str(axis.group)) for axis in symmetry.axes if not axis.frozen_because]
[('0', 8, 'positive monomial')]
"""

from intertwine.activations import intertwiner
from intertwine.errors import IntertwineError
from intertwine.symmetry import (
    Axis,
    Element,
    Group,
    Member,
    Report,
    Symmetry,
    act,
    assert_symmetric,
    trace,
    verify,
)

__all__ = [
    "Axis",
    "Element",
    "Group",
    "IntertwineError",
    "Member",
    "Report",
    "Symmetry",
    "act",
    "assert_symmetric",
    "intertwiner",
    "trace",
    "verify",
]

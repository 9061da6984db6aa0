"""`act(model, g)`: a copy of a model with its weights moved by an element of its group, or a translation."""

from __future__ import annotations

import torch
from torch import nn

from intertwine.checks import checked
from intertwine.errors import InputError, ModelError
from intertwine.graph.copying import copy_model
from intertwine.symmetry.transform import (
    Action,
    Element,
)
from intertwine.symmetry.translation import Translation


@checked
def act(model: nn.Module, element: Element | Translation) -> nn.Module:
    """A new model with weights g . theta, which computes the same function (Proposition 3.4 of source 002).

    >>> from torch import nn
    >>> from intertwine import trace
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> x = torch.randn(4, 3)
    >>> g = trace(mlp, x).sample(0)
    >>> torch.allclose(act(mlp, g)(x), mlp(x), atol=1e-5)
    True
    """
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    moved_by = element if isinstance(element, Translation) else Action(element)
    names = element.moves if isinstance(element, Translation) else element.structure.inference.shapes
    missing = [n for n in names if n not in state]
    if missing:
        raise InputError(f"the model has no weight {missing[0]!r}", so="the element belongs to another model")
    if any(state[name].is_meta for name in names):
        raise ModelError("the model is on the device meta and holds no values", do="load its weights first")
    shapes = {} if isinstance(element, Translation) else element.structure.inference.shapes
    other = [name for name, shape in shapes.items() if tuple(state[name].shape) != shape]
    if other:
        found = tuple(state[other[0]].shape)
        raise InputError(
            f"{other[0]} has shape {found}, not {shapes[other[0]]}", so="the element belongs to another model"
        )
    # The copy finds the new tensors in place of the old ones: tied weights stay one object, and the weights
    # are never there three times.
    memo: dict[int, torch.Tensor] = {}
    held = {tensor.untyped_storage().data_ptr() for tensor in state.values()}
    with torch.no_grad():
        for name in names:
            old = state[name]
            new = moved_by.weight(name, state.__getitem__)
            if new is not old:
                # As it was, maybe under another name: both models would write the same numbers.
                new = new.clone() if new.untyped_storage().data_ptr() in held else new
                own = isinstance(old, nn.Parameter)
                memo[id(old)] = nn.Parameter(new, requires_grad=old.requires_grad) if own else new
    moved = copy_model(model, memo)
    # Modules that keep what they computed from old weights in eval mode forget it in train mode.
    modes = [(module, module.training) for module in moved.modules()]
    moved.train()
    for module, training in modes:
        module.training = training
    return moved

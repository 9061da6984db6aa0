"""How far two networks are from a natural isomorphism, on data (eqs. 4 and 14 of source 000).

defect(l) = |Z^l(b) - f^l(a, Z^(l-1)(b))| / |Z^l(b)|        b: the second network, aligned (tau applied)

0 at every layer: the features are functionally equivalent, layer by layer. Networks with a flat line between
them (LMC) need not be near 0, which is what Proposition 2.2 would have them be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.errors import InputError
from intertwine.graph.copying import copy_model


@torch.no_grad()
def naturality_defect(a: nn.Module, b: nn.Module, inputs: Tensor) -> dict[str, float]:
    """Layer -> the defect: what A's layer makes of B's features against what B's own layer does.

    Layers are the modules that hold parameters themselves. A network with itself has 0 everywhere.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> naturality_defect(net, net, torch.ones(2, 3))
    {'0': 0.0, '2': 0.0}
    """
    # Copies: nothing of the caller's is hooked, and A and B may be one.
    theirs, own = dict(copy_model(a).eval().named_modules()), copy_model(b).eval()
    layers = {n: m for n, m in own.named_modules() if any(True for _ in m.parameters(recurse=False))}
    missing = [n for n in layers if n not in theirs]
    if missing:
        raise InputError(f"A has no layer {missing[0]!r}", do="give two networks of one architecture")
    squares: dict[str, list[float]] = {}

    def compare(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: tuple[Any, ...], out: Any) -> None:
            if not isinstance(out, Tensor):
                return
            other = theirs[name](*given)
            found = squares.setdefault(name, [0.0, 0.0])
            found[0] += float((out - other).double().square().sum())
            found[1] += float(out.double().square().sum())

        return hook

    for name, module in layers.items():
        module.register_forward_hook(compare(name))
    own(inputs)
    return {name: (part / whole) ** 0.5 if whole else 0.0 for name, (part, whole) in squares.items()}

"""What was written is loaded as a user would load it, and must be the model that was meant to be written.

Same names, same values bit by bit, and the same predictions. transformers renames and repacks weights between
memory and disk, and a number of a config may mean more than one width: neither is guessed at, both are tried.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from intertwine.errors import WeightsError
from intertwine.text import first_line
from intertwine.zoo.huggingface import keep_predictions
from intertwine.zoo.sources import Source

_ROUNDING = 64  # units in the last place, relative to the largest value of an output
_LISTED = 3


def check_written(folder: Path, loader: Any, meant: nn.Module, source: Source) -> None:
    """Raise WeightsError unless `loader.from_pretrained(folder)` is `meant`."""
    try:
        loaded = loader.from_pretrained(folder)
    except Exception as error:  # sizes that do not fit a forward's or a config's own checks
        raise _refused(f"transformers cannot load it again: {first_line(error)}", source) from error
    expected, found = meant.state_dict(), loaded.state_dict()
    strange = [n for n in {**expected, **found} if not _same(expected.get(n), found.get(n))]
    if strange:
        raise _refused(f"{', '.join(strange[:_LISTED])} would be loaded otherwise", source)
    ours = predictions(meant, source)
    try:
        theirs = predictions(loaded.eval(), source)
    except Exception as error:  # the library may choose another kernel than ours
        raise _refused(f"loaded again, it does not run: {first_line(error)}", source) from error
    if [t.shape for t in ours] != [t.shape for t in theirs]:
        raise _refused("loaded again, it predicts other shapes", source)
    for mine, other in zip(ours, theirs, strict=True):
        off = float((mine.double() - other.double()).abs().max()) if mine.numel() else 0.0
        scale = float(mine.double().abs().max()) if mine.numel() else 0.0
        if not off <= _ROUNDING * torch.finfo(mine.dtype).eps * scale:
            raise _refused(f"loaded again, its predictions differ by {off:.2g} of {scale:.2g}", source)


def predictions(model: nn.Module, source: Source) -> list[Tensor]:
    """What the head predicts on the example, in a fixed order, with the same random numbers inside."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = model(*source.example, **source.kwargs)
    kept = keep_predictions(model, (), found)
    leaves = tree_leaves(dict(sorted(kept.items())) if isinstance(kept, dict) else kept)
    return [t for t in leaves if isinstance(t, Tensor) and t.is_floating_point()]


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is not None and b is not None and a.dtype == b.dtype and torch.equal(a, b)


def _refused(reason: str, source: Source) -> WeightsError:
    what = f"what would be written is not the merged model: {reason}"
    return WeightsError(what, where=source.name, so="nothing was written")

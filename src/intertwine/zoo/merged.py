"""Load what `intertwine merge` wrote: the original factory, the smaller shapes, the new weights."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from intertwine.errors import InputError
from intertwine.merge import load_merged
from intertwine.zoo.sources import resolve

_SAFE = ("zoo:", "torchvision:", "timm:", "hf:", "diffusers:")


def load(path: str | Path, *, run_code: bool = False) -> nn.Module:
    """The merged model in a folder, in eval mode.

    A model that was made by `file.py:factory` is rebuilt by running that file, which must be allowed with
    `run_code`.
    """

    def build(source: str) -> nn.Module:
        if not source.startswith(_SAFE) and not run_code:
            raise InputError(
                f"this model is rebuilt by running the Python code in {source}",
                where=str(path),
                do="if you trust that file, pass run_code=True",
            )
        return resolve(source).model

    return load_merged(path, build).eval()

"""Import torchvision (and timm, which needs it) on a torch that has no compiled torchvision ops.

torchvision registers shape functions for `torchvision::nms` and `torchvision::qnms` while it is imported.
Its common wheel is compiled against a CUDA build of torch; beside a CPU-only torch its library does not
load, those two operators do not exist, and the import fails. The models themselves need neither. So: try to
load the library, and where that fails declare the two schemas (no kernels: calling them still fails, with a
clear message from the dispatcher). `import intertwine` puts a watch on the import, so that a user's own
`from transformers import AutoModel`, which imports torchvision, works too.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from intertwine.errors import MissingExtra

if TYPE_CHECKING:
    import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


@cache
def _declared() -> torch.library.Library | None:
    """Declare the schemas once; the Library object is kept because they vanish with it."""
    if "torchvision" in sys.modules or _has_compiled_ops():
        return None
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        library.define(schema)
    return library


def _has_compiled_ops() -> bool:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return False
    import torch

    for path in Path(spec.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(str(path))
        except OSError:
            continue
    return hasattr(torch.ops.torchvision, "nms")


def prepare() -> None:
    """Make `import torchvision` work, if torchvision is installed at all.

    >>> prepare()
    """
    if importlib.util.find_spec("torchvision") is not None:
        _declared()


class _Doorkeeper:
    """Prepares when torchvision is first imported by anyone (transformers and timm do), then goes away.

    Without importlib.abc as its base, which takes longer to import than all else here.
    """

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            prepare()


def watch() -> None:
    """Prepare as soon as anyone imports torchvision; costs nothing before."""
    if not any(isinstance(finder, _Doorkeeper) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Doorkeeper())


def import_vision(name: str) -> ModuleType:
    """`torchvision`, `timm` or a submodule of them; MissingExtra where it is not installed.

    >>> import_vision("torchvision.models").__name__
    'torchvision.models'
    """
    prepare()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{name} is not installed", do='pip install "intertwine[vision]"') from error


def import_transformers() -> Any:
    """transformers, which imports torchvision where that is installed."""
    prepare()
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise MissingExtra("transformers is not installed", do='pip install "intertwine[text]"') from error
    return transformers


@contextmanager
def offline() -> Iterator[None]:
    """Nothing inside reaches for the hub: a config may name a pretrained backbone."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before

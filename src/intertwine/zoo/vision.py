"""torchvision and timm models with random weights and an input of their usual size; nothing is downloaded."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from typing import Any

from torch import nn

from intertwine.data.vision_shim import import_vision
from intertwine.errors import ModelError, NotFound, Unsupported

Shapes = list[tuple[int, ...]]

# Heads that only training runs. Built without them, eval mode computes the same, and no weight is idle.
AUXILIARY = {"googlenet": ("aux1.", "aux2."), "inception_v3": ("AuxLogits.",)}


def not_found(kind: str, name: str, known: Iterable[str]) -> NotFound:
    """The error for an unknown name, with the nearest ones."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return NotFound(f"{kind} has no model {name!r}", do=f"did you mean {', '.join(near)}?" if near else "")


def build_torchvision(name: str) -> tuple[nn.Module, Shapes]:
    """The model `torchvision.models.get_model(name)` with random weights, and the shapes of one input."""
    models = import_vision("torchvision.models")
    if name not in models.list_models():
        raise not_found("torchvision", name, models.list_models())
    builder = models.get_model_builder(name)
    if builder.__module__.startswith("torchvision.models.detection"):
        raise Unsupported(
            f"torchvision:{name} is a detector: its graph depends on the content of the images",
            do="inspect its backbone instead",
        )
    kwargs: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        kwargs["weights_backbone"] = None
    if name in AUXILIARY:
        # init_weights is given because torchvision warns when it is not
        kwargs |= {"aux_logits": False, "init_weights": True}
    return builder(**kwargs), _torchvision_shapes(name, builder.__module__)


def _torchvision_shapes(name: str, module: str) -> Shapes:
    family = module.split(".")[2]
    if family == "segmentation":
        return [(3, 128, 128)]
    if family == "video":
        # the transformers of this family are built for 16 frames of 224x224
        return [(3, 8, 112, 112)] if name in {"r3d_18", "mc3_18", "r2plus1d_18"} else [(3, 16, 224, 224)]
    if family == "optical_flow":
        return [(3, 128, 128), (3, 128, 128)]
    side = {"inception_v3": 299, "vit_h_14": 224}.get(name, 224)
    return [(3, side, side)]


def build_timm(name: str) -> tuple[nn.Module, Shapes]:
    """The model `timm.create_model(name)` with random weights, and its configured input size."""
    timm = import_vision("timm")
    # is_model also keeps "hf-hub:" and "local-dir:" names out, which would read from elsewhere
    if not timm.is_model(name):
        raise not_found("timm", name, timm.list_models())
    try:
        model = timm.create_model(name, pretrained=False)
    except Exception as error:
        raise ModelError(f"timm cannot build {name!r}: {error}") from error
    config = timm.data.resolve_model_data_config(model)
    return model, [tuple(config["input_size"])]

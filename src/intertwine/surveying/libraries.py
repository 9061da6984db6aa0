"""Which models a survey visits, and how each is built. Nothing is downloaded, no forward is patched."""

from __future__ import annotations

from fnmatch import fnmatchcase

import torch
from torch import nn

from intertwine.errors import InputError, NotFound
from intertwine.vision_shim import import_vision
from intertwine.zoo import Source, huggingface, resolve

LIBRARIES = ("zoo", "torchvision", "timm", "hf", "diffusers")
FAMILIES = """
    bert roberta distilbert albert gpt2 gpt_neox opt llama mistral qwen2 qwen3 gemma phi t5 bart vit deit swin
    convnext clip siglip dinov2 whisper wav2vec2 sam segformer detr mamba
""".split()


def targets(library: str, pattern: str = "*", all: bool = False) -> list[str]:
    """MODEL strings of a library whose names match a shell pattern; of hf a sample unless `all`."""
    if library not in LIBRARIES:
        raise InputError(f"unknown library {library!r}", do=f"use one of {', '.join(LIBRARIES)}")
    names = huggingface.all_types() if all and library == "hf" else _names(library)
    found = [n for n in names if fnmatchcase(n, pattern)]
    if not found:
        raise NotFound(f"no model of {library} matches {pattern!r}", do=f"{library} has {len(names)} models")
    return [f"{library}:{n}" for n in found]


def _names(library: str) -> list[str]:
    if library == "zoo":
        from intertwine import zoo

        return zoo.names()
    if library == "torchvision":
        names = import_vision("torchvision.models").list_models()
        return [n for n in names if not n.startswith("quantized_")]
    if library == "timm":
        return list(import_vision("timm").list_models())
    if library == "diffusers":
        from intertwine.zoo import diffusion

        return list(diffusion.names())
    return list(FAMILIES)


def build(spec: str) -> Source:
    """The model and its example; of a detector the backbone, whose post-processing needs compiled ops."""
    library, _, name = spec.partition(":")
    if library == "torchvision" and _is_detector(name):
        get_model = import_vision("torchvision.models").get_model
        model = get_model(name, weights=None, weights_backbone=None).backbone.eval()
        side = 300 if name == "ssd300_vgg16" else 128  # SSD's extra layers shrink the image to one pixel
        return Source(spec, _Tensors(model), (torch.randn(1, 3, side, side),))
    return resolve(spec)


def module_of(source: Source) -> str:
    """The module that defines a model: that of its factory (timm, torchvision) or else of its class."""
    library, _, name = source.name.partition(":")
    if library == "timm":
        return str(import_vision("timm").models.model_entrypoint(name).__module__)
    if library == "torchvision":
        return str(import_vision("torchvision.models").get_model_builder(name).__module__)
    return type(source.model).__module__


class _Tensors(nn.Module):
    """A feature pyramid with its dictionary of outputs as a tuple."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.backbone(x).values())


def _is_detector(name: str) -> bool:
    return ".detection" in import_vision("torchvision.models").get_model_builder(name).__module__

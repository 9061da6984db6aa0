"""torchvision and timm models: random weights unless trained ones are named, inputs of their usual size."""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch

from intertwine.data.preparation import Preparation
from intertwine.errors import InputError, ModelError, NotFound, Unsupported, WeightsError
from intertwine.text import first_line
from intertwine.vision_shim import import_vision
from intertwine.zoo.reaching import hub_if_there
from intertwine.zoo.sources import Source, Wanted, examples
from intertwine.zoo.weights import load_weights

Shapes = list[tuple[int, ...]]

# Heads that only training runs. Built without them, eval mode computes the same, and no weight is idle.
AUXILIARY = {"googlenet": ("aux1.", "aux2."), "inception_v3": ("AuxLogits.",)}


def not_found(kind: str, name: str, known: Iterable[str]) -> NotFound:
    """The error for an unknown name, with the nearest ones."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return NotFound(f"{kind} has no model {name!r}", do=f"did you mean {', '.join(near)}?" if near else "")


def torchvision_source(spec: str, wanted: Wanted) -> Source:
    """`torchvision:NAME` with random weights, or `torchvision:NAME@WEIGHTS` with those."""
    name, _, label = spec.partition(":")[2].partition("@")
    models = import_vision("torchvision.models")
    builder = _torchvision_builder(models, name)
    kwargs: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        kwargs["weights_backbone"] = None
    if name in AUXILIARY:
        # init_weights is given because torchvision warns when it is not
        kwargs |= {"aux_logits": False, "init_weights": True}
    chosen = _torchvision_weights(models, name, label or ("DEFAULT" if wanted.pretrained else ""))
    classes = wanted.classes or (chosen and len(chosen.meta.get("categories", ()))) or None
    if classes is not None:
        kwargs["num_classes"] = classes
    model, idle = builder(**kwargs), AUXILIARY.get(name, ())
    shapes = _torchvision_shapes(name, builder.__module__)
    if chosen is None:
        return Source(spec, model, examples(shapes), idle=idle)
    load_weights(model, _downloaded(chosen.url, spec), ignore=idle)
    made = chosen.transforms()
    size = (getattr(made, "crop_size", None) or [None])[0]
    if family_of(builder.__module__) == "models" and size:
        shapes = [(3, size, size)]
    prepare = Preparation(statistics_text(getattr(made, "mean", None), getattr(made, "std", None)), size)
    return Source(spec, model, examples(shapes), idle=idle, prepare=prepare)


def _torchvision_builder(models: Any, name: str) -> Any:
    if name not in models.list_models():
        raise not_found("torchvision", name, models.list_models())
    builder = models.get_model_builder(name)
    if builder.__module__.startswith("torchvision.models.detection"):
        raise Unsupported(
            f"torchvision:{name} is a detector: its graph depends on the content of the images",
            do="inspect its backbone instead",
        )
    return builder


def _torchvision_weights(models: Any, name: str, label: str) -> Any:
    """The entry of torchvision's table of weights, or None if none is asked for."""
    if not label:
        return None
    table = models.get_model_weights(name)
    if label not in table.__members__:
        raise NotFound(
            f"torchvision:{name} has no weights {label!r}", do=f"it has {', '.join(table.__members__)}"
        )
    return table[label]


def _downloaded(url: str, spec: str) -> Path:
    """The file of torch.hub's folder, fetched (and its hash compared) where it is not there yet."""
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    path = folder / Path(urlparse(url).path).name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        prefix = path.stem.rpartition("-")[2]
        try:
            torch.hub.download_url_to_file(url, str(path), prefix, progress=False)
        except Exception as error:  # every network fails in its own way
            raise WeightsError(
                f"the weights of {spec} are not in {folder} and cannot be fetched: {first_line(error)}",
                so="nothing was loaded",
                do=f"put {path.name} there, or give --weights FILE",
            ) from error
    return path


def family_of(module: str) -> str:
    """classification models lie in `torchvision.models.NAME`, others one folder deeper."""
    parts = module.split(".")
    return parts[2] if len(parts) > 3 else "models"


def statistics_text(mean: Any, std: Any) -> str | None:
    """Means and deviations as `--normalize` takes them.

    >>> statistics_text((0.5, 0.5), (0.25, 0.25))
    '0.5,0.5/0.25,0.25'
    """
    if not mean or not std:
        return None
    return ",".join(f"{float(x):g}" for x in mean) + "/" + ",".join(f"{float(x):g}" for x in std)


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


def timm_source(spec: str, wanted: Wanted) -> Source:
    """`timm:NAME` with random weights; with a tag (`resnet50.a1_in1k`) or `pretrained`, with trained ones."""
    name = spec.partition(":")[2]
    timm = import_vision("timm")
    # is_model also keeps "hf-hub:" and "local-dir:" names out, which would read from elsewhere
    if not timm.is_model(name):
        raise not_found("timm", name, timm.list_models())
    bare, _, tag = name.partition(".")
    if tag and tag not in {n.partition(".")[2] for n in timm.list_pretrained(f"{bare}.*")}:
        raise not_found("timm", name, timm.list_pretrained(f"{bare}*"))
    trained = bool(tag) or wanted.pretrained
    kwargs: dict[str, Any] = {} if wanted.classes is None else {"num_classes": wanted.classes}
    log = logging.getLogger("huggingface_hub")  # which reports every try to reach the hub
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with hub_if_there() if trained else nullcontext():
            model = timm.create_model(name, pretrained=trained, **kwargs)
    except Exception as error:
        if trained:
            raise WeightsError(
                f"the weights of {spec} are not in the cache and cannot be fetched: {first_line(error)}",
                so="nothing was loaded",
                do=f"fetch them where there is a network, or give timm:{bare} --weights FILE",
            ) from error
        if kwargs:
            raise InputError(f"timm cannot build {name!r} with {wanted.classes} classes") from error
        raise ModelError(f"timm cannot build {name!r}: {error}") from error
    finally:
        log.setLevel(level)
    config = timm.data.resolve_model_data_config(model)
    shape = tuple(config["input_size"])
    known = statistics_text(config.get("mean"), config.get("std"))
    prepare = Preparation(known, shape[-1]) if trained else Preparation()
    return Source(spec, model, examples([shape]), prepare=prepare)

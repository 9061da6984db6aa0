"""Model factories, and the one place that turns a MODEL string into a model with an example input.

zoo.names()                              the nets of the source papers, by name
zoo.build("resnet20", classes=10)        a fresh model in eval mode
zoo.resolve("torchvision:resnet18")      any MODEL string -> Source(name, model, example, kwargs)
zoo.load_weights(model, "w.safetensors") checked loading: nothing changes unless everything fits
zoo.save_model(small, source, "out")     in the form that it came in: from_pretrained reads it
zoo.checkpoint("digits-vgg", seed=0)     trained weights that ship with the package
"""

from __future__ import annotations

import intertwine.zoo.builtin  # noqa: F401  registers the sources
from intertwine.zoo.registry import Entry, build, checkpoint, entry, names
from intertwine.zoo.saving import save_model
from intertwine.zoo.sources import MODEL_SOURCES, ModelSource, Source, Wanted, model_source, resolve
from intertwine.zoo.weights import load_weights, read_weights, save_weights

__all__ = [
    "MODEL_SOURCES",
    "Entry",
    "ModelSource",
    "Source",
    "Wanted",
    "build",
    "checkpoint",
    "entry",
    "load_weights",
    "model_source",
    "names",
    "read_weights",
    "resolve",
    "save_model",
    "save_weights",
]

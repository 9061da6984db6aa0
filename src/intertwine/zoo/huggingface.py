"""`hf:FAMILY?layers=2`: a small model of a transformers family, built from its config; nothing is downloaded.

The family is a `model_type` of transformers (bert, gpt2, llama, t5, vit, ...). Its default config is shrunk
(`small_configs.py`). The model has a head where the family has one (language model, classifier, detector),
and returns only what that head predicts: transformers also hands out inner states (the encoder's stream, the
embeddings of both towers), and whatever a model returns is fixed, so they would fix its whole stream.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.errors import IntertwineError, Unsupported
from intertwine.vision_shim import import_transformers, offline
from intertwine.zoo.building import bounded
from intertwine.zoo.example_calls import call_of, reason
from intertwine.zoo.small_configs import chosen_sizes, small_configs
from intertwine.zoo.vision import not_found

# Of the choices of sizes the first that has no more parameters than this, else one of at most the second.
_LARGEST, _MODULES = (4_000_000, 100_000_000), 10_000
_CLASSES = 3  # heads that are tried
_IN_BATCHES = (
    2_000_000_000  # bytes of the weights in float64 up to which experts are gathered for every token
)
HEADS = (
    "AutoModelForSpeechSeq2Seq",
    "AutoModelForObjectDetection",
    "AutoModelForMaskGeneration",
    "AutoModelForZeroShotImageClassification",
    "AutoModelForSeq2SeqLM",
    "AutoModelForMaskedLM",
    "AutoModelForCausalLM",
    "AutoModelForImageClassification",
    "AutoModelForSequenceClassification",
    "AutoModelForCTC",
    "AutoModelForImageTextToText",
    "AutoModelForAudioClassification",
    "AutoModelForVideoClassification",
    "AutoModelForDepthEstimation",
    "AutoModelForSemanticSegmentation",
    "AutoModelForUniversalSegmentation",
    "AutoModelForZeroShotObjectDetection",
    "AutoModel",
)
_PREDICTIONS = (
    "logits",
    "logits_per_image",
    "logits_per_text",
    "pred_boxes",
    "pred_masks",
    "iou_scores",
    "predicted_depth",
    "class_queries_logits",
    "masks_queries_logits",
)

Built = tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]


def build_hf(name: str) -> Built:
    """A small random model of a family and the arguments of one call; `bert?layers=3&width=64` says more."""
    transformers = import_transformers()
    family, _, query = name.partition("?")
    if family not in transformers.CONFIG_MAPPING:
        raise not_found("transformers", family, transformers.CONFIG_MAPPING)
    refusal: Exception | None = None
    with offline(), quietly(transformers):
        config_class = transformers.CONFIG_MAPPING[family]
        _assert_has_default(config_class, family)
        sizes = chosen_sizes(config_class, query, family)
        todo = small_configs(transformers, config_class, sizes)
        for largest in _LARGEST:
            larger = []
            try:
                for config in todo:
                    try:
                        return _built(transformers, family, config, largest)
                    except _TooLarge as error:
                        larger.append(config)
                        refusal = refusal or error
                    except Exception as error:  # of whatever kind: another choice of sizes may do
                        refusal = error if refusal is None or isinstance(refusal, _TooLarge) else refusal
            except Exception as error:  # no choice that the config itself takes
                refusal = refusal or error
            todo = iter(larger)
        broken = _default_refusal(transformers, config_class)
    if broken is not None:
        raise Unsupported(
            f"transformers itself builds no model of the default config of hf:{family}: {reason(broken)}",
            do="save a model of a config that says what is missing, and pass hf:DIR",
        ) from broken
    if isinstance(refusal, IntertwineError):
        raise Unsupported(refusal.what, do=refusal.do) from refusal
    raise Unsupported(
        f"cannot build a small hf:{family} from its default config: {reason(refusal)}",
        do="write a factory and pass path/to/file.py:factory",
    ) from refusal


def _assert_has_default(config_class: Any, family: str) -> None:
    """Some configs are parts that say nothing until others say what they belong to."""
    try:
        config_class()
    except Exception as error:  # each type complains in its own way
        raise Unsupported(
            f"transformers makes no default config of hf:{family}: {reason(error)}",
            do="save a model of a config that says what is missing, and pass hf:DIR",
        ) from error


def _default_refusal(transformers: Any, config_class: Any) -> Exception | None:
    """Why the default config as it is, without any size of ours, cannot be built; None if it can."""
    try:
        config = config_class()
        with torch.device("meta"), bounded(config.model_type, most=_MODULES):
            class_of(transformers, config)._from_config(config)
    except IntertwineError:  # too large to be asked
        return None
    except Exception as error:  # each type complains in its own way
        return error
    return None


def _built(transformers: Any, family: str, config: Any, largest: int) -> Built:
    """The model of a config and a call that it takes: of the first class that is built and runs."""
    refusal: Exception | None = None
    for model_class in classes_of(transformers, config)[:_CLASSES]:
        try:
            return _built_as(model_class, family, config, largest)
        except _TooLarge:
            raise
        except Exception as error:  # of whatever kind: another head may take what this one does not
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _built_as(model_class: Any, family: str, config: Any, largest: int) -> Built:
    if model_class.forward is nn.Module.forward:
        raise Unsupported(
            f"hf:{family} has no forward: {model_class.__name__} only generates, part after part",
            do="give one of its parts",
        )
    small = partial(_assert_small, family, largest)
    with torch.device("meta"), bounded(f"hf:{family}", small, _MODULES):
        model_class._from_config(config)
    model = model_class._from_config(config)
    generation = getattr(model, "generation_config", None)
    if generation is not None and getattr(config, "is_encoder_decoder", False):
        # Some configs have no such field of their own, and `generate` asks for it.
        generation.decoder_start_token_id = generation.decoder_start_token_id or 1
    experts_in_batches(model)
    model.register_forward_hook(keep_predictions)
    return model, *call_of(model, config, find_out=True)


def keep_predictions(module: nn.Module, args: Any, output: Any) -> Any:
    """A forward hook: what the head predicts, without the inner states beside it.

    >>> keep_predictions(nn.Identity(), (), {"logits": 1, "encoder_last_hidden_state": 2})
    {'logits': 1}
    >>> keep_predictions(nn.Identity(), (), {"last_hidden_state": 2})
    {'last_hidden_state': 2}
    """
    if not isinstance(output, dict):
        return output
    kept = {name: output[name] for name in _PREDICTIONS if output.get(name) is not None}
    return type(output)(**kept) if kept else output  # `generate` reads attributes


def experts_in_batches(model: nn.Module) -> None:
    """Experts by batched products, as transformers can compute them: the same function, in any precision.

    Every token gathers the weights of its experts, which a large model has no memory for: that keeps the
    default kernel, and is proved expert after expert (`KERNELS`).
    """
    if 8 * sum(p.numel() for p in model.parameters()) > _IN_BATCHES:
        return
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        if getattr(config, "_experts_implementation", None) == "grouped_mm":
            config._experts_implementation = "batched_mm"


def class_of(transformers: Any, config: Any) -> Any:
    """The model class with the most telling head."""
    return classes_of(transformers, config)[0]


def classes_of(transformers: Any, config: Any) -> list[Any]:
    """The model classes of a config, the most telling head first; of several (deit, with and without teacher)
    the first.

    A composite config may be mapped to the class of one of its parts, which does not take the whole.
    """
    mappings = (getattr(transformers, name)._model_mapping for name in HEADS)
    mapped = (mapping[type(config)] for mapping in mappings if type(config) in mapping)
    first = [each[0] if isinstance(each, tuple | list) else each for each in mapped]
    if not first:
        raise Unsupported(
            f"hf:{config.model_type} is a part of other models and has no model class of its own",
            do="name the model that it is a part of",
        )
    taking = [each for each in dict.fromkeys(first) if isinstance(config, each.config_class or object)]
    return taking or first[:1]


def all_types() -> list[str]:
    """Every config type of the installed transformers that has a model class of its own."""
    transformers = import_transformers()
    mappings = [getattr(transformers, name)._model_mapping for name in HEADS]
    return [
        name
        for name, config_class in transformers.CONFIG_MAPPING.items()
        if any(config_class in mapping for mapping in mappings)
    ]


class _TooLarge(Unsupported):
    """Shrunk, and still not small."""


def _assert_small(family: str, largest: int, size: int) -> None:
    if size > largest:
        raise _TooLarge(
            f"hf:{family} has more than {largest:,} parameters even after shrinking its config",
            do="write a factory with a smaller config and pass path/to/file.py:factory",
        )


@contextmanager
def quietly(transformers: Any) -> Iterator[None]:
    """Without progress bars and reports on stdout or stderr: what matters is raised."""
    log = logging.getLogger("transformers")
    level, bars = log.level, transformers.utils.logging.is_progress_bar_enabled()
    log.setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        log.setLevel(level)
        if bars:
            transformers.utils.logging.enable_progress_bar()

"""`hf:FAMILY?layers=2`: a small model of a transformers family, built from its config; nothing is downloaded.

The family is a `model_type` of transformers (bert, gpt2, llama, t5, vit, ...). Its default config is shrunk
(`small_configs.py`). The model has a head where the family has one (language model, classifier, detector),
and returns only what that head predicts: transformers also hands out inner states (the encoder's stream, the
embeddings of both towers), and whatever a model returns is fixed, so they would fix its whole stream.
"""

from __future__ import annotations

import copy
import inspect
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.errors import IntertwineError, Unsupported
from intertwine.text import first_line
from intertwine.vision_shim import import_transformers, offline
from intertwine.zoo.building import bounded
from intertwine.zoo.small_configs import chosen_sizes, small_configs
from intertwine.zoo.vision import not_found

_VOCABULARY, _TOKENS, _IMAGE, _FRAMES = 101, 12, 64, 16
# A family whose config keeps its size under names that are not in the tables is refused beyond this.
_LARGEST, _MODULES = 100_000_000, 10_000
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
    "AutoModel",
)
_PREDICTIONS = ("logits", "logits_per_image", "logits_per_text", "pred_boxes", "pred_masks", "iou_scores")

Built = tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]


def build_hf(name: str) -> Built:
    """A small random model of a family and the arguments of one call; `bert?layers=3&width=64` says more."""
    transformers = import_transformers()
    family, _, query = name.partition("?")
    if family not in transformers.CONFIG_MAPPING:
        raise not_found("transformers", family, transformers.CONFIG_MAPPING)
    refusal: Exception | None = None
    try:
        with offline(), quietly(transformers):
            config_class = transformers.CONFIG_MAPPING[family]
            for config in small_configs(
                transformers, config_class, chosen_sizes(config_class, query, family)
            ):
                try:
                    return _built(transformers, family, config)
                except Exception as error:  # of whatever kind: another choice of sizes may do
                    refusal = refusal or error
    except IntertwineError:
        raise
    except Exception as error:
        refusal = refusal or error
    if isinstance(refusal, IntertwineError):
        raise refusal
    raise Unsupported(
        f"cannot build a small hf:{family} from its default config: {_reason(refusal)}",
        do="write a factory and pass path/to/file.py:factory",
    ) from refusal


def _built(transformers: Any, family: str, config: Any) -> Built:
    """The model of a config and a call that it takes."""
    model_class, small = class_of(transformers, config), partial(_assert_small, family)
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


def _reason(error: Exception | None) -> str:
    return first_line(error) or type(error).__name__ if error is not None else "no choice of sizes"


def keep_predictions(module: nn.Module, args: Any, output: Any) -> Any:
    """A forward hook: what the head predicts, without the inner states beside it.

    >>> keep_predictions(nn.Identity(), (), {"logits": 1, "encoder_last_hidden_state": 2})
    {'logits': 1}
    >>> keep_predictions(nn.Identity(), (), {"last_hidden_state": 2})
    {'last_hidden_state': 2}
    """
    if not isinstance(output, dict):
        return output
    return {name: output[name] for name in _PREDICTIONS if output.get(name) is not None} or output


def experts_in_batches(model: nn.Module) -> None:
    """Experts by batched products, as transformers can compute them: the same function, open to float64.

    Its default is a kernel that takes no float64, so nothing could be proved by acting. Every token gathers
    the weights of its experts, which a large model has no memory for: that keeps its default.
    """
    if 8 * sum(p.numel() for p in model.parameters()) > _IN_BATCHES:
        return
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        if getattr(config, "_experts_implementation", None) == "grouped_mm":
            config._experts_implementation = "batched_mm"


def class_of(transformers: Any, config: Any) -> Any:
    """The model class with the most telling head; of several (deit, with and without teacher) the first."""
    mappings = (getattr(transformers, name)._model_mapping for name in HEADS)
    found = next((mapping[type(config)] for mapping in mappings if type(config) in mapping), None)
    if found is None:
        raise Unsupported(
            f"hf:{config.model_type} is a part of other models and has no model class of its own",
            do="name the model that it is a part of",
        )
    return found[0] if isinstance(found, (tuple, list)) else found


def all_types() -> list[str]:
    """Every config type of the installed transformers that has a model class of its own."""
    transformers = import_transformers()
    mappings = [getattr(transformers, name)._model_mapping for name in HEADS]
    return [
        name
        for name, config_class in transformers.CONFIG_MAPPING.items()
        if any(config_class in mapping for mapping in mappings)
    ]


def _assert_small(family: str, size: int) -> None:
    if size > _LARGEST:
        raise Unsupported(
            f"hf:{family} has more than {_LARGEST:,} parameters even after shrinking its config",
            do="write a factory with a smaller config and pass path/to/file.py:factory",
        )


def call_of(
    model: nn.Module, config: Any, find_out: bool = False
) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """The main input, positional where it is the first argument, and what else the model cannot do without.

    A decoder gets token ids of its own, a model of two towers ids and pixels (ids alone where it wants as
    many places for pixels as a processor makes), a promptable one two points. Of several guesses, the first
    that runs.
    """
    calls, refusal = _calls(model, config), None
    if (len(calls) == 1 and not find_out) or torch.get_default_device().type == "meta":
        return calls[0]
    for args, kwargs in calls:
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                model.eval()(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            return args, kwargs
        except Exception as error:  # of whatever kind
            refusal = refusal or error
    raise Unsupported(
        f"hf:{config.model_type} does not run on an example that we make: {_reason(refusal)}",
        do="write a factory that returns (model, example), and pass path/to/file.py:factory",
    ) from refusal


def _calls(model: nn.Module, config: Any) -> list[tuple[tuple[Tensor, ...], dict[str, Any]]]:
    name = getattr(model, "main_input_name", "input_ids")
    if name not in _EXAMPLES:
        raise Unsupported(
            f"hf:{config.model_type} takes {name}, for which there is no example",
            do="write a factory instead",
        )
    parameters = inspect.signature(model.forward).parameters
    more: dict[str, Tensor] = {}
    if config.is_encoder_decoder and "decoder_input_ids" in parameters:
        more["decoder_input_ids"] = _ids(config)[0][:, : _TOKENS - 3]
    if "input_points" in parameters:
        more["input_points"] = _IMAGE * torch.rand(2, 1, 2, 2)
    given = [{name: guess, **more} for guess in _EXAMPLES[name](config)]
    if {"input_ids", "pixel_values"} <= set(parameters) and hasattr(config, "text_config"):
        both = {"input_ids": _ids(config)[0], "pixel_values": _pixels(config)[0]}
        given = [given[0] | both, *given, {"input_ids": both["input_ids"], **more}]
    first = next(iter(parameters))
    return [((g.pop(first),), g) if first == name and name in g else ((), g) for g in map(dict, given)]


def _ids(config: Any) -> list[Tensor]:
    text = getattr(config, "text_config", config)
    return [torch.randint(3, int(getattr(text, "vocab_size", None) or _VOCABULARY), (2, _TOKENS))]


def _pixels(config: Any) -> list[Tensor]:
    vision = getattr(config, "vision_config", config)
    side = getattr(vision, "image_size", _IMAGE) or _IMAGE
    size = (side, side) if isinstance(side, int) else tuple(side)
    return [torch.randn(2, getattr(vision, "num_channels", 3), *size)]


def _spectrum(config: Any) -> list[Tensor]:
    """(bands, frames) or (frames, bands)."""
    bands = next((b for n in _BANDS if isinstance(b := getattr(config, n, None), int)), _MEL)
    # an encoder that halves the time before it adds its positions wants exactly these
    frames = getattr(config, "max_length", None) or 2 * getattr(config, "max_source_positions", _FRAMES)
    return [torch.randn(2, bands, frames), torch.randn(2, frames, bands)]


def _waveform(config: Any) -> list[Tensor]:
    strides = getattr(config, "conv_stride", None)
    samples = math.prod(strides) if isinstance(strides, list | tuple) else 1
    long = _FRAMES * max(samples, 100)
    return [
        torch.randn(2, _FRAMES * samples),
        torch.randn(2, long),
        torch.randn(2, 1, long),
        *_spectrum(config),
    ]


_BANDS, _MEL = ("num_mel_bins", "feature_size", "input_feat_per_channel", "input_dim"), 80
_EXAMPLES: dict[str, Callable[[Any], list[Tensor]]] = {
    "input_ids": _ids,
    "pixel_values": _pixels,
    "input_features": _spectrum,
    "input_values": _waveform,
}


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

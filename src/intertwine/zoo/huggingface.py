"""`hf:FAMILY?layers=2`: a small model of a transformers family, built from its config; nothing is downloaded.

The family is a `model_type` of transformers (bert, gpt2, llama, t5, vit, ...). Its default config is shrunk
with the tables below. The model has a head where the family has one (language model, classifier, detector),
and returns only what that head predicts: transformers also hands out inner states (the encoder's stream, the
embeddings of both towers), and whatever a model returns is fixed, so they would fix its whole stream.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.errors import InputError, IntertwineError, Unsupported
from intertwine.numbers import count
from intertwine.untrusted import assert_config
from intertwine.vision_shim import import_transformers, offline
from intertwine.zoo.building import bounded
from intertwine.zoo.vision import not_found

_VOCABULARY, _TOKENS, _IMAGE, _PATCH, _LAYERS, _FRAMES = 101, 12, 64, 16, 2, 16
_SMALL: dict[str, int] = {
    **dict.fromkeys(("vocab_size",), _VOCABULARY),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embedding_size", "dim", "emb_dim"), 32),
    **dict.fromkeys(
        ("intermediate_size", "d_ff", "n_inner", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim"), 48
    ),
    **dict.fromkeys(("hidden_dim", "ffn_hidden_size", "d_inner"), 48),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "num_decoder_layers", "encoder_layers"), _LAYERS),
    **dict.fromkeys(("decoder_layers", "n_layer", "n_layers"), _LAYERS),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv"), 8),
    **dict.fromkeys(
        ("max_position_embeddings", "n_positions", "max_source_positions", "max_target_positions"), 64
    ),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 24),
    **dict.fromkeys(("num_experts_per_tok",), 2),
    **dict.fromkeys(("image_size",), _IMAGE),
    **dict.fromkeys(("window_size",), 2),
    **dict.fromkeys(("num_queries",), 7),
    **dict.fromkeys(("num_mel_bins",), 20),
    **dict.fromkeys(("pad_token_id",), 0),
    **dict.fromkeys(("bos_token_id", "decoder_start_token_id"), 1),
    **dict.fromkeys(("eos_token_id",), 2),
    **dict.fromkeys(("projection_dim", "pooler_output_size"), 32),
}
# Lists of sizes, and sizes that must agree with one another across nested configs.
_FAMILIES: dict[str, dict[str, Any]] = {
    "swin": {"embed_dim": 24, "depths": [2, 1], "num_heads": [3, 6], "patch_size": 4},
    "convnext": {"hidden_sizes": [24, 40], "depths": [1, 1], "num_stages": 2},
    "segformer": {
        "num_encoder_blocks": 2,
        "depths": [1, 1],
        "sr_ratios": [2, 1],
        "hidden_sizes": [24, 40],
        "patch_sizes": [7, 3],
        "strides": [4, 2],
        "num_attention_heads": [3, 4],
        "mlp_ratios": [2, 2],
    },
    "resnet": {
        "hidden_sizes": [24, 40],
        "depths": [1, 1],
        "embedding_size": 20,
        "layer_type": "basic",
        "out_features": ["stage2"],
    },
    "wav2vec2": {
        "conv_dim": [20, 24, 28],
        "conv_stride": [5, 2, 2],
        "conv_kernel": [10, 3, 2],
        "num_conv_pos_embeddings": 8,
        "num_conv_pos_embedding_groups": 4,
    },
    "sam_vision_model": {
        "output_channels": 24,
        "num_pos_feats": 12,
        "mlp_dim": 48,
        "global_attn_indexes": [1],
    },
    "sam_prompt_encoder": {
        "hidden_size": 24,
        "image_embedding_size": _IMAGE // _PATCH,
        "mask_input_channels": 12,
    },
    "sam_mask_decoder": {
        "hidden_size": 24,
        "mlp_dim": 40,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 28,
    },
}
# A family whose config keeps its size under names that are not in the tables is refused beyond this.
_LARGEST, _MODULES = 100_000_000, 10_000
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


# What `?layers=2` means: the names under which families keep it.
_SHORT = {
    "layers": ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers",
               "num_decoder_layers"),
    "heads": ("num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads",
              "decoder_attention_heads"),
    "width": ("hidden_size", "d_model", "n_embd", "dim"),
    "hidden": ("intermediate_size", "d_ff", "n_inner", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim",
               "hidden_dim"),
    "vocabulary": ("vocab_size",),
}  # fmt: skip


def build_hf(name: str) -> Built:
    """A small random model of a family and the arguments of one call; `bert?layers=3&width=64` says more."""
    transformers = import_transformers()
    family, _, query = name.partition("?")
    if family not in transformers.CONFIG_MAPPING:
        raise not_found("transformers", family, transformers.CONFIG_MAPPING)
    try:
        with offline():
            config_class = transformers.CONFIG_MAPPING[family]
            config = _small_config(transformers, config_class, _sizes(config_class, query, family))
            model_class, small = class_of(transformers, config), partial(_assert_small, family)
            with torch.device("meta"), bounded(f"hf:{family}", small, _MODULES):
                model_class._from_config(config)
            model = model_class._from_config(config)
        generation = getattr(model, "generation_config", None)
        if generation is not None and getattr(config, "is_encoder_decoder", False):
            # Some configs have no such field of their own, and `generate` asks for it.
            generation.decoder_start_token_id = generation.decoder_start_token_id or 1
        model.register_forward_hook(keep_predictions)
        example, kwargs = call_of(model, config)
    except IntertwineError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unsupported(
            f"cannot build a small hf:{family} from its default config: {reason or type(error).__name__}",
            do="write a factory and pass path/to/file.py:factory",
        ) from error
    return model, example, kwargs


def _sizes(config_class: Any, query: str, family: str) -> dict[str, int]:
    """What stands after the question mark, by the config's own names."""
    known = config_class().to_dict()
    sizes: dict[str, int] = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        fields = [field for field in _SHORT.get(name, (name,)) if field in known]
        if not fields or not value:
            raise InputError(
                f"hf:{family} has no size {name!r}",
                do=f"write hf:{family}?layers=2&width=64, of {', '.join(_SHORT)} or a field of its config",
            )
        sizes |= dict.fromkeys(fields, count(value, name))
    assert_config(sizes, f"hf:{family}", run_code=True)
    return sizes


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


def class_of(transformers: Any, config: Any) -> Any:
    """The model class with the most telling head; of several (deit, with and without teacher) the first."""
    mappings = (getattr(transformers, name)._model_mapping for name in HEADS)
    found = next(mapping[type(config)] for mapping in mappings if type(config) in mapping)
    return found[0] if isinstance(found, (tuple, list)) else found


def _small_config(transformers: Any, config_class: Any, sizes: Mapping[str, int] | None = None) -> Any:
    """The default config with every size of the tables that it has; nested configs likewise."""
    default = config_class()
    values = default.to_dict()
    kwargs: dict[str, Any] = {
        name: size for name, size in _SMALL.items() if isinstance(values.get(name), int)
    }
    if isinstance(values.get("patch_size"), int) and values["patch_size"] >= 8:
        kwargs["patch_size"] = _PATCH
    for name, inner in getattr(config_class, "sub_configs", {}).items():
        if hasattr(inner, "model_type") and getattr(default, name, None) is not None:
            kwargs[name] = _small_config(transformers, type(getattr(default, name))).to_dict()
    if getattr(getattr(default, "backbone_config", None), "model_type", "") == "timm_backbone":
        # a whole ResNet-50 of another library
        kwargs["backbone_config"] = _small_config(transformers, transformers.CONFIG_MAPPING["resnet"])
    kwargs |= {name: False for name in ("use_cache", "use_pretrained_backbone") if name in values}
    return config_class(**kwargs | _FAMILIES.get(config_class.model_type, {}) | dict(sizes or {}))


def _assert_small(family: str, size: int) -> None:
    if size > _LARGEST:
        raise Unsupported(
            f"hf:{family} has more than {_LARGEST:,} parameters even after shrinking its config",
            do="write a factory with a smaller config and pass path/to/file.py:factory",
        )


def call_of(model: nn.Module, config: Any) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """The main input, positional where it is the first argument, and what else the model cannot do without.

    A decoder gets token ids of its own, a model of two towers ids and pixels, a promptable one two points.
    """
    name = str(getattr(model, "main_input_name", "input_ids"))
    if name not in _EXAMPLES:
        raise Unsupported(
            f"hf:{config.model_type} takes {name}, for which there is no example",
            do="write a factory instead",
        )
    parameters = inspect.signature(model.forward).parameters
    given = {name: _EXAMPLES[name](config)}
    if {"input_ids", "pixel_values"} <= set(parameters) and hasattr(config, "text_config"):
        given |= {other: _EXAMPLES[other](config) for other in ("input_ids", "pixel_values")}
    if config.is_encoder_decoder and "decoder_input_ids" in parameters:
        given["decoder_input_ids"] = _ids(config)[:, : _TOKENS - 3]
    if "input_points" in parameters:
        given["input_points"] = _IMAGE * torch.rand(2, 1, 2, 2)
    first = next(iter(parameters))
    return ((given.pop(first),), given) if first == name else ((), given)


def _ids(config: Any) -> Tensor:
    text = getattr(config, "text_config", config)
    return torch.randint(3, int(getattr(text, "vocab_size", None) or _VOCABULARY), (2, _TOKENS))


def _pixels(config: Any) -> Tensor:
    vision = getattr(config, "vision_config", config)
    side = getattr(vision, "image_size", _IMAGE) or _IMAGE
    size = (side, side) if isinstance(side, int) else tuple(side)
    return torch.randn(2, getattr(vision, "num_channels", 3), *size)


def _spectrum(config: Any) -> Tensor:
    # the encoder halves the time before it adds its positions
    return torch.randn(2, config.num_mel_bins, 2 * config.max_source_positions)


def _waveform(config: Any) -> Tensor:
    return torch.randn(2, _FRAMES * math.prod(config.conv_stride))


_EXAMPLES: dict[str, Callable[[Any], Tensor]] = {
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

"""`hf:FAMILY`: a small model of a transformers family, built from its config; nothing is downloaded.

The family is a `model_type` of transformers (bert, gpt2, llama, t5, vit, ...). Its default config is shrunk
with the table below, whose sizes are all different so that no two axes look alike by accident. The model
has a head where the family has one (language model, image classifier), since the output of a bare encoder
would fix its whole stream.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.errors import IntertwineError, MissingExtra, Unsupported
from intertwine.zoo.vision import not_found
from intertwine.zoo.vision_shim import prepare

_VOCABULARY, _TOKENS, _IMAGE, _PATCH, _LAYERS = 101, 12, 64, 16, 2
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
    **dict.fromkeys(("pad_token_id",), 0),
    **dict.fromkeys(("bos_token_id", "decoder_start_token_id"), 1),
    **dict.fromkeys(("eos_token_id",), 2),
    **dict.fromkeys(("projection_dim", "pooler_output_size"), 32),
}
# A family whose config keeps its size under names that are not in the table is refused beyond this.
_LARGEST = 100_000_000
_HEADS = (
    "AutoModelForSeq2SeqLM",
    "AutoModelForMaskedLM",
    "AutoModelForCausalLM",
    "AutoModelForImageClassification",
    "AutoModelForSequenceClassification",
    "AutoModel",
)

Built = tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]


def build_hf(family: str) -> Built:
    """A small random model of the family and the arguments of one call."""
    transformers = _import_transformers()
    if family not in transformers.CONFIG_MAPPING:
        raise not_found("transformers", family, transformers.CONFIG_MAPPING)
    try:
        config = _small_config(transformers.CONFIG_MAPPING[family])
        auto = next(a for a in _HEADS if type(config) in getattr(transformers, a)._model_mapping)
        _assert_small(getattr(transformers, auto), config, family)
        model = getattr(transformers, auto).from_config(config)
        example, kwargs = _call_of(model, config)
    except IntertwineError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unsupported(
            f"cannot build a small hf:{family} from its default config: {reason or type(error).__name__}",
            do="write a factory and pass path/to/file.py:factory",
        ) from error
    return model, example, kwargs


def _import_transformers() -> Any:
    # configs with a pretrained backbone would otherwise reach for it
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    prepare()
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise MissingExtra("transformers is not installed", do='pip install "intertwine[text]"') from error
    return transformers


def _small_config(config_class: Any) -> Any:
    """The default config with every size of the table that it has; nested configs likewise."""
    default = config_class()
    values = default.to_dict()
    kwargs: dict[str, Any] = {
        name: size for name, size in _SMALL.items() if isinstance(values.get(name), int)
    }
    if isinstance(values.get("patch_size"), int) and values["patch_size"] >= 8:
        kwargs["patch_size"] = _PATCH
    for name, inner in getattr(config_class, "sub_configs", {}).items():
        if hasattr(inner, "model_type") and getattr(default, name, None) is not None:
            kwargs[name] = _small_config(type(getattr(default, name))).to_dict()
    kwargs |= {name: False for name in ("use_cache", "use_pretrained_backbone") if name in values}
    return config_class(**kwargs)


def _assert_small(auto: Any, config: Any, family: str) -> None:
    with torch.device("meta"):
        size = sum(p.numel() for p in auto.from_config(config).parameters())
    if size > _LARGEST:
        raise Unsupported(
            f"hf:{family} has {size:,} parameters even after shrinking its config",
            do="write a factory with a smaller config and pass path/to/file.py:factory",
        )


def _call_of(model: nn.Module, config: Any) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """Token ids or pixels, positional where that is the first argument; a decoder gets ids of its own."""
    name = str(getattr(model, "main_input_name", "input_ids"))
    text = getattr(config, "text_config", config)
    vocabulary = int(getattr(text, "vocab_size", None) or _VOCABULARY)
    if name == "pixel_values":
        vision = getattr(config, "vision_config", config)
        side = getattr(vision, "image_size", _IMAGE) or _IMAGE
        size = (side, side) if isinstance(side, int) else tuple(side)
        main = torch.randn(2, getattr(vision, "num_channels", 3), *size)
    elif name == "input_ids":
        main = torch.randint(3, vocabulary, (2, _TOKENS))
    else:
        raise Unsupported(
            f"hf:{config.model_type} takes {name}, for which there is no example",
            do="write a factory instead",
        )
    kwargs: dict[str, Any] = {}
    parameters = inspect.signature(model.forward).parameters
    if config.is_encoder_decoder and "decoder_input_ids" in parameters:
        kwargs["decoder_input_ids"] = torch.randint(3, vocabulary, (2, _TOKENS - 3))
    if next(iter(parameters)) == name:
        return (main,), kwargs
    return (), {name: main, **kwargs}

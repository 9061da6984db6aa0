"""Small configs of any type of transformers, made from the fields that its default config has.

Nobody knows which choice of sizes a type takes, so several are made and the first that builds and runs is
taken: sizes of a table, by name; the same, and what the table lacks by what its name ends in, without and
with what the default leaves open; the default ones divided by one number, which keeps their relations (the
size of a head stays, there are fewer of them); the default ones with few layers. Where layers are of several
kinds, one of each kind is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from intertwine.errors import InputError
from intertwine.numbers import count, whole
from intertwine.untrusted import assert_config

_VOCABULARY, _IMAGE, _PATCH, _LAYERS, _EXPERTS, _STAGES = 101, 64, 16, 2, 4, 4
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
    **dict.fromkeys(("head_dim", "d_kv", "rotary_dim"), 8),
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

# What a field of a config counts, by how its name ends; the first that matches.
_KINDS: tuple[tuple[str, str], ...] = (
    ("head", r"(head_dim|head_size|d_kv|d_head)$"),
    ("kept", r"(num_channels|in_channels|kv_channels|patch_size|group_size|chunk_size|state_size)$"),
    ("vocabulary", r"vocab_size"),
    ("token", r"token_(id|index)$"),
    ("heads", r"(^|_)(n_|num_)?(\w*_)?heads?$"),
    ("experts", r"(^|_)(num|n)_(\w+_)?experts$"),
    ("chosen", r"(experts_per_tok(en)?|(^|_)top_?k(_experts)?|moe_k|num_selected_experts)$"),
    ("alone", r"(^|_)(n|topk|num_expert)_groups?$"),
    ("image", r"(^|_)(image|img)_size$"),
    ("none", r"shared_layers$"),  # that reuse what earlier ones of their kind have made: of few layers none
    ("depth", r"(^|_)(n_|num_)?(\w*_)?(layers?|depths?|blocks)$"),
    ("width", r"(hidden_sizes?|hidden_size_\w+|d_model|n_embd|embd|embedding_size|(^|_)dims?"
              r"|intermediate_size|d_ff|n_inner|d_inner|ffn_size|_channels|_rank|projection_size|_groups)$"),
)  # fmt: skip
_OF_KIND = {
    "head": 8,
    "heads": 4,
    "experts": _EXPERTS,
    "depth": _LAYERS,
    "vocabulary": _VOCABULARY,
    "width": 32,
    "chosen": 2,
    "alone": 1,
    "none": 0,
}
_FACTOR = r"^(width|depth)_(coefficient|multiplier)$"  # of widths or numbers of layers that are listed
_UNSAID = ("num_key_value_heads", "head_dim")  # None in configs whose models take no None
_IMAGES = ("image_token_id", "image_token_index")  # the token that stands for a place of an image
_SECTIONS = (8, 12, 12)  # of rotary turns: time, height, width, as most models have them
_LENGTHS = dict.fromkeys(("prediction_length", "context_length"), 16)  # of series, which nobody else can say


def small_configs(transformers: Any, config_class: Any, sizes: Mapping[str, int]) -> Iterator[Any]:
    """Configs of this type, the likeliest first; those that the type itself refuses are left out.

    sizes: fields that the caller chose.
    """
    ways: list[Callable[[Any], Mapping[str, Any]]] = [
        partial(_by_table, transformers),
        partial(_by_table, transformers, by_kind=True),
        partial(_by_table, transformers, by_kind=True, say_all=True),
        *(partial(_divided, divisor) for divisor in (16, 8, 1)),
    ]
    refusal: Exception | None = None
    for way in ways:
        try:
            made = config_class(**_with(sizes, way(config_class())))
        except Exception as error:  # each type complains in its own way
            refusal = refusal or error
        else:
            yield made
    if refusal is not None:
        raise refusal


def chosen_sizes(config_class: Any, query: str, family: str) -> dict[str, int]:
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
        sizes |= dict.fromkeys(fields, (count if name in _SHORT else whole)(value, name))
    assert_config(sizes, f"hf:{family}", run_code=True)
    return sizes


def _by_table(
    transformers: Any, default: Any, by_kind: bool = False, say_all: bool = False
) -> dict[str, Any]:
    """The sizes of the tables that the default config has; nested configs likewise.

    by_kind: other fields get the size of their kind, keys as many heads as queries where the default says so,
    and what is not said but must be is said. say_all: every size that the default leaves open.
    """
    values = default.to_dict()
    found: dict[str, Any] = {name: size for name, size in _SMALL.items() if isinstance(values.get(name), int)}
    found |= {name: length for name, length in _LENGTHS.items() if values.get(name, "") is None}
    if by_kind:
        found |= _of_their_kind(values, found, say_all)
    found |= {
        n: 0.25 for n, v in values.items() if re.search(_FACTOR, n) and isinstance(v, float) and v > 0.25
    }
    heads, latent = found.get("num_attention_heads"), "kv_lora_rank" in values  # of which keys are made
    if heads and (by_kind or latent) and values.get("num_key_value_heads") == values["num_attention_heads"]:
        found["num_key_value_heads"] = heads
    found |= _one_of_each_kind(values) | _tokens(values, found) | _rotary_sections(values, found, by_kind)
    found |= _for_each_layer(values, found)
    if type(values.get("downsample_rate")) is int and "window_size" in found:
        found["window_size"] = 2 * values["downsample_rate"]  # as many queries as rates fit into a window
    if isinstance(values.get("patch_size"), int) and values["patch_size"] >= 8:
        found["patch_size"] = _PATCH
    for name, inner in _nested(default):
        found[name] = _inner(transformers, inner, by_kind, say_all)
    found |= {name: False for name in ("use_cache", "use_pretrained_backbone") if name in values}
    return found | _FAMILIES.get(default.model_type, {})


def _of_their_kind(values: Mapping[str, Any], found: Mapping[str, Any], say_all: bool) -> dict[str, Any]:
    """Sizes of fields that the table does not name, by what their names end in; say_all: also of those that
    the default leaves open."""
    sizes: dict[str, Any] = {name: _SMALL[name] for name in _UNSAID if name in values}
    named = {*found, *sizes}
    others = {n: _OF_KIND[k] for n in values if n not in named and (k := _kind(n)) in _OF_KIND}
    sizes |= {n: size for n, size in others.items() if type(values[n]) is int and values[n] > size}
    if say_all:
        unsaid = others | {n: size for n, size in _SMALL.items() if n in values}
        unsaid |= {n: _VOCABULARY - 1 for n in _IMAGES if n in values}
        sizes |= {n: size for n, size in unsaid.items() if values[n] is None}
        if values.get("layer_types", "") is None:
            layers = {**found, **sizes}.get("num_hidden_layers", _LAYERS)
            sizes["layer_types"] = ["full_attention"] * layers
    return sizes


def _inner(transformers: Any, inner: Any, by_kind: bool, say_all: bool) -> Any:
    """The small config of a part."""
    if inner.model_type == "timm_wrapper":  # of another library: it has no sizes
        return inner
    if inner.model_type == "timm_backbone":  # of another library, too: a whole ResNet-50
        inner = transformers.CONFIG_MAPPING["resnet"]()
        return type(inner)(**_by_table(transformers, inner, by_kind, say_all))
    return _part(inner, _by_table(transformers, inner, by_kind, say_all))


def _divided(divisor: int, default: Any) -> dict[str, Any]:
    """Widths and heads divided, head sizes kept, few layers and experts; nested configs likewise."""
    values = default.to_dict()
    depths = {v for name, v in values.items() if _kind(name) == "depth" and isinstance(v, int)}
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, int) and not isinstance(value, bool):
            found[name] = _smaller(_kind(name), value, divisor)
        elif isinstance(value, list):
            # as long as there are layers, and not a few stages, which others may count on
            kept = value[:_LAYERS] if len(value) in depths and len(value) > _STAGES else value
            whole = all(type(each) is int for each in kept)
            found[name] = [_smaller(_kind(name), each, divisor) for each in kept] if whole else kept
    found |= _one_of_each_kind(values) | _tokens(values, ())
    for name, inner in _nested(default):
        found[name] = _part(inner, _divided(divisor, inner))
    found |= {name: False for name in ("use_cache", "use_pretrained_backbone") if name in values}
    return {name: value for name, value in found.items() if value != values.get(name)}


def _part(inner: Any, small: Mapping[str, Any]) -> dict[str, Any]:
    """What the whole says of its part, made small; it asks for no more stages than there are layers."""
    usual = type(inner)().to_dict()
    said = {n: v for n, v in inner.to_dict().items() if v != usual.get(n) and not hasattr(v, "items")}
    made = {**said, **small, "model_type": inner.model_type}
    if isinstance(made.get("depths"), list) and "out_features" in said:  # the last stages that there are
        last = [f"stage{k + 1}" for k in range(len(made["depths"]))]
        return {n: v for n, v in made.items() if n != "out_indices"} | {"out_features": last}
    stages = said.get("out_indices")
    depth = next((n for n in _SHORT["layers"] if type(usual.get(n)) is int), None)
    if depth is not None and isinstance(stages, list | tuple) and max(stages) > made[depth]:
        count = len(stages)
        made |= {depth: max(count, _LAYERS), "out_indices": list(range(1, count + 1))}
        made |= {"out_features": [f"stage{k}" for k in range(1, count + 1)]}
    return made


def _rotary_sections(
    values: Mapping[str, Any], found: Mapping[str, Any], unsaid: bool = False
) -> dict[str, Any]:
    """The sections of rotary turns (time, height, width) in the proportion that the head has shrunk by.

    unsaid: also where the config says none, since a model may have a default of its own.

    >>> turns = {"mrope_section": [8, 12, 12], "partial_rotary_factor": 0.5}
    >>> _rotary_sections({"rope_parameters": turns}, {"head_dim": 32})["rope_parameters"]["mrope_section"]
    [2, 3, 3]
    """
    turns = values.get("rope_parameters")
    if not isinstance(turns, Mapping):
        return {}
    sections = turns.get("mrope_section") or (_SECTIONS if unsaid else None)
    heads = found.get("num_attention_heads")
    head = found.get("head_dim") or (found.get("hidden_size", 0) // heads if heads else 0)
    if not sections or not head:
        return {}
    pairs = head * (turns.get("partial_rotary_factor") or 1) / 2
    ends = [round(pairs * sum(sections[:k]) / sum(sections)) for k in range(len(sections) + 1)]
    return {"rope_parameters": {**turns, "mrope_section": [b - a for a, b in pairwise(ends)]}}


def _tokens(values: Mapping[str, Any], known: Collection[str]) -> dict[str, int]:
    """Ids beyond the small vocabulary, from its end down, each another one."""
    large = [n for n, v in values.items() if _kind(n) == "token" and type(v) is int and v >= _VOCABULARY]
    return {name: _VOCABULARY - 1 - k for k, name in enumerate(n for n in large if n not in known)}


def _one_of_each_kind(values: Mapping[str, Any]) -> dict[str, Any]:
    """A list with a word for every layer (`layer_types`): each word once, and as many layers; else nothing.

    >>> _one_of_each_kind({"num_hidden_layers": 3, "layer_types": ["sliding", "sliding", "full"]})
    {'num_hidden_layers': 2, 'layer_types': ['sliding', 'full']}
    """
    depths = {n: v for n, v in values.items() if _kind(n) == "depth" and type(v) is int and v > 0}
    for name, value in values.items():
        if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            layers = [n for n, depth in depths.items() if depth == len(value)]
            kept = list(dict.fromkeys(value))
            kept += kept[:1] * (_LAYERS - len(kept))
            if layers:
                return {**dict.fromkeys(layers, len(kept)), name: kept}
    return {}


def _for_each_layer(values: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Lists with a number for every layer: for as many as there are now, widths small.

    >>> layers = {"num_hidden_layers": 30, "intermediate_size": [64] * 30, "sparsity": [0.9] * 30}
    >>> _for_each_layer(layers, {"num_hidden_layers": 2})
    {'intermediate_size': [48, 48], 'sparsity': [0.9, 0.9]}
    """
    depth = next((n for n in _SHORT["layers"] if type(values.get(n)) is int and n in found), None)
    if depth is None or values[depth] <= _STAGES:
        return {}
    lists = {n: v for n, v in values.items() if isinstance(v, list) and len(v) == values[depth]}
    count = found[depth]
    return {
        name: [_SMALL[name]] * count if name in _SMALL else value[:count]
        for name, value in lists.items()
        if not isinstance(value[0], str)
    }


def _with(sizes: Mapping[str, int], values: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes instead of those of the values; lists with a word for every layer get as long as they say.

    >>> _with({"num_hidden_layers": 3}, {"num_hidden_layers": 2, "layer_types": ["sliding", "full"]})
    {'num_hidden_layers': 3, 'layer_types': ['sliding', 'full', 'sliding']}
    """
    made = {**values, **sizes}
    depths = {values[name]: size for name, size in sizes.items() if name in values and _kind(name) == "depth"}
    for name, value in values.items():
        if isinstance(value, list) and value and isinstance(value[0], str) and len(value) in depths:
            made[name] = [value[k % len(value)] for k in range(depths[len(value)])]
    return made


def _smaller(kind: str, value: int, divisor: int) -> int:
    if kind in ("width", "heads"):
        return value // divisor if value % divisor == 0 else max(1, min(value, round(value / divisor)))
    most = {"vocabulary": _VOCABULARY, "depth": _LAYERS, "experts": _EXPERTS}
    most |= {name: _OF_KIND[name] for name in ("chosen", "alone", "none")}
    most |= {"image": _IMAGE} if divisor > 1 else {}
    return min(value, most.get(kind, value))


def _kind(name: str) -> str:
    return next((kind for kind, pattern in _KINDS if re.search(pattern, name)), "kept")


def _nested(config: Any) -> list[tuple[str, Any]]:
    return [(n, v) for n, v in vars(config).items() if hasattr(v, "to_dict") and hasattr(v, "model_type")]

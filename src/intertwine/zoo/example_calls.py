"""Arguments that a model of transformers can be called with, found from its signature and its config.

The main input first. Nobody says what else a forward cannot do without, so several calls are made, and the
first that runs is taken: the main input; with what has no default; with another modality beside; with
everything that we have a maker for.
"""

from __future__ import annotations

import copy
import inspect
import math
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from intertwine.errors import Unsupported
from intertwine.text import first_line

_VOCABULARY, _TOKENS, _IMAGE, _FRAMES, _WIDTH = 101, 12, 64, 16, 32
_PATCHES = 4  # a side of an image that comes in patches
_BANDS, _MEL = ("num_mel_bins", "feature_size", "input_feat_per_channel", "input_dim", "mel_bins"), 80
_SHORT = (AttributeError, KeyError, TypeError)
Call = tuple[tuple[Tensor, ...], dict[str, Any]]


def call_of(model: nn.Module, config: Any, find_out: bool = False) -> Call:
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
        f"hf:{config.model_type} does not run on an example that we make: {reason(refusal)}",
        do="write a factory that returns (model, example), and pass path/to/file.py:factory",
    ) from refusal


def reason(error: Exception | None) -> str:
    """The first line of what a model or a config said; and where, if that line alone says little."""
    if error is None:
        return "nothing fits"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "modeling_" in f.filename]
    place = f" (in `{frames[-1].line}`)" if frames and isinstance(error, _SHORT) else ""
    return (first_line(error) or type(error).__name__) + place


def _calls(model: nn.Module, config: Any) -> list[Call]:
    parameters = inspect.signature(model.forward).parameters
    name = getattr(model, "main_input_name", "input_ids")
    if name not in parameters:  # a part of a larger model may inherit the name from the whole
        name = next((known for known in _EXAMPLES if known in parameters), name)
    if name not in _EXAMPLES:
        raise Unsupported(
            f"hf:{config.model_type} takes {name}, for which there is no example",
            do="write a factory instead",
        )
    more: dict[str, Any] = {}
    if config.is_encoder_decoder and "decoder_input_ids" in parameters:
        more["decoder_input_ids"] = _ids(config)[0][:, : _TOKENS - 3]
    if "input_points" in parameters:
        more["input_points"] = _IMAGE * torch.rand(2, 1, 2, 2)
    given = [{name: guess, **more} for guess in _EXAMPLES[name](config)]
    if "decoder_input_ids" in more and name == "input_ids":  # a classifier looks for the ends of texts itself
        given.append({name: _ended(given[0][name], config)})
    if {"input_ids", "pixel_values"} <= set(parameters) and hasattr(config, "text_config"):
        both = {"input_ids": _ids(config)[0], "pixel_values": _pixels(config)[0]}
        given = [given[0] | both, *given, {"input_ids": both["input_ids"], **more}]
    given = [*_illustrated(model, config), *given]
    given += [call for plain in given for call in _fuller(plain, parameters, config)]
    first = next(iter(parameters))
    return [((g.pop(first),), g) if first == name and name in g else ((), g) for g in map(dict, given)]


def _illustrated(model: Any, config: Any) -> list[dict[str, Any]]:
    """Ids with a place for every feature of an image, where the model itself says how many there are."""
    token = next((t for n in _PLACES if isinstance(t := getattr(config, n, None), int)), None)
    features = getattr(model, "get_image_features", None)
    if token is None or features is None or torch.get_default_device().type == "meta":
        return []
    known, calls = inspect.signature(features).parameters, []
    for pixels in _pixels(config):
        images = {"pixel_values": pixels}
        images |= {n: _BESIDE[n](config, images)[0] for n in _OF_IMAGES if n in known}
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                found = features(**copy.deepcopy(images))
        except Exception:  # of whatever kind: images in another form, or none
            continue
        vectors = [x for x in tree_leaves(getattr(found, "pooler_output", found)) if isinstance(x, Tensor)]
        places = sum(x.numel() // max(1, x.shape[-1]) for x in vectors)
        ids = _ids(config)[0]
        if places and places % len(ids) == 0:
            between = torch.full((len(ids), places // len(ids)), token)
            calls.append({"input_ids": torch.cat([ids[:, :4], between, ids[:, 4:]], 1), **images})
    return calls


def _fuller(
    plain: Mapping[str, Tensor], parameters: Mapping[str, inspect.Parameter], config: Any
) -> list[dict[str, Any]]:
    """Calls with more arguments: those without a default, then one or all of the others that we make."""
    beside = {n: make for n, make in _BESIDE.items() if n in parameters and n not in plain}
    if "input_ids" in plain:
        beside.pop("inputs_embeds", None)  # which stand for ids
    made = {n: make(config, plain) for n, make in beside.items()}
    must = {n: v[0] for n, v in made.items() if parameters[n].default is inspect.Parameter.empty}
    others = {n: guesses for n, guesses in made.items() if n not in must}
    calls = [{**plain, **must}] if must else []
    calls += [{**plain, **must, n: guess} for n, guesses in others.items() for guess in guesses]
    if len(others) > 1:
        calls.append({**plain, **must, **{n: guesses[0] for n, guesses in others.items()}})
    return calls


def _part(config: Any, *names: str) -> Any:
    return next((part for name in names if (part := getattr(config, name, None)) is not None), config)


def _ids(config: Any) -> list[Tensor]:
    """Tokens that mean nothing else."""
    text = _part(config, "text_config")
    size = int(getattr(text, "vocab_size", None) or _VOCABULARY)
    special = [v for part in (config, text) for n, v in part.to_dict().items() if n.endswith(_TOKEN)]
    taken = {*range(3), *(v for v in special if type(v) is int)}
    choice = torch.tensor([token for token in range(size) if token not in taken])
    return [choice[torch.randint(len(choice), (2, _TOKENS))]]


def _ended(ids: Tensor, config: Any) -> Tensor:
    """The same ids with the token that ends a text at the end."""
    last = getattr(config, "eos_token_id", None)
    return torch.cat([ids[:, :-1], torch.full((len(ids), 1), last if type(last) is int else 2)], 1)


def _pixels(config: Any) -> list[Tensor]:
    vision = _part(config, "vision_config")
    side = getattr(vision, "image_size", _IMAGE) or _IMAGE
    size = (side, side) if isinstance(side, int) else tuple(side)
    channels, frames = getattr(vision, "num_channels", 3), getattr(vision, "num_frames", None)
    image = torch.randn(2, channels, *size)
    # Several images in a row: frames, a pair that is to be matched, or those of one text.
    several = torch.randn(2, frames if isinstance(frames, int) else 2, channels, *size)
    return [image, several, *_patches(config)]


def _patches(config: Any) -> list[Tensor]:
    """Two images cut into patches, one after the other, as many as `_grid` says; or nothing."""
    vision = _part(config, "vision_config")
    side = getattr(vision, "patch_size", None)
    if not isinstance(side, int):
        return []
    channels = getattr(vision, "in_channels", None) or getattr(vision, "num_channels", None) or 3
    times = getattr(vision, "temporal_patch_size", None) or 1
    return [torch.randn(2 * _PATCHES**2, channels * times * side**2)]


def _grid(config: Any, plain: Mapping[str, Tensor]) -> list[Tensor]:
    """Of each image the patches in time, height and width."""
    return [torch.tensor([[1, _PATCHES, _PATCHES]] * 2)]


def _sizes(config: Any, plain: Mapping[str, Tensor]) -> list[Tensor]:
    """Of each image its height and width."""
    pixels = plain.get("pixel_values", torch.empty(2, 3, _IMAGE, _IMAGE))
    return [torch.tensor([list(pixels.shape[-2:])] * 2)]


def _spectrum(config: Any) -> list[Tensor]:
    """(bands, frames) or (frames, bands)."""
    config = _part(config, "audio_config", "encoder_config")
    bands = next((b for n in _BANDS if isinstance(b := getattr(config, n, None), int)), _MEL)
    # an encoder that halves the time before it adds its positions wants exactly these
    frames = getattr(config, "max_length", None) or 2 * getattr(config, "max_source_positions", _FRAMES)
    return [torch.randn(2, bands, frames), torch.randn(2, frames, bands), torch.randn(2, 1, frames, bands)]


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


def _series(config: Any) -> list[Tensor]:
    """(times, channels), or times alone."""
    times = getattr(config, "context_length", None) or _TOKENS
    lags = getattr(config, "lags_sequence", None) or [0]
    channels = getattr(config, "num_input_channels", None) or getattr(config, "input_size", None) or 1
    return [torch.randn(2, times, channels), torch.randn(2, times + max(lags))]


def _embedded(config: Any) -> list[Tensor]:
    width = getattr(config, "hidden_size", None) or getattr(config, "d_model", None) or _WIDTH
    return [torch.randn(2, _TOKENS, width if isinstance(width, int) else _WIDTH), *_patches(config)]


def _steps(field: str, steps: int = _TOKENS) -> Callable[..., list[Tensor]]:
    """(steps, as many numbers as a field of the config says), where none is said 1."""
    return lambda config, plain=None: [torch.randn(2, steps, getattr(config, field, None) or 1)]


def _times(config: Any, plain: Mapping[str, Tensor]) -> list[Tensor]:
    return [torch.arange(_TOKENS).expand(2, -1).clone()]


def _future(config: Any, plain: Mapping[str, Tensor]) -> list[Tensor]:
    """What is to be predicted of a series, in as many channels."""
    channels = next(iter(plain.values())).shape[2:]
    return [torch.randn(2, getattr(config, "prediction_length", None) or _TOKENS, *channels)]


def _clock(of_past: bool) -> Callable[..., list[Tensor]]:
    """What is known of every time of a series: numbers that the config counts, which may be none."""

    def make(config: Any, plain: Mapping[str, Tensor]) -> list[Tensor]:
        past = next(iter(plain.values())).shape[1]
        times = past if of_past else getattr(config, "prediction_length", None) or _TOKENS
        return [torch.randn(2, times, getattr(config, "num_time_features", 0))]

    return make


def _mask(config: Any, plain: Mapping[str, Tensor]) -> list[Tensor]:
    """All places of the main input; of a spectrum its frames, which are more than the bands."""
    name, main = next(iter(plain.items()))
    places = main.shape[1] if name == "states" else max(main.shape[1:])
    return [torch.ones(main.shape[0], places, dtype=torch.long)]


def _boxes(config: Any, plain: Mapping[str, Tensor]) -> list[Tensor]:
    return [torch.tensor([1, 2, 9, 12]).expand(2, _TOKENS, 4).clone()]


def _observed(config: Any, plain: Mapping[str, Tensor]) -> list[Tensor]:
    return [torch.ones_like(next(iter(plain.values())))]


def _regions(field: str) -> Callable[..., list[Tensor]]:
    """(regions of an image, as many numbers as a field of the config says)."""
    return lambda config, plain: [torch.rand(2, _PATCHES, getattr(config, field, None) or 4)]


_EXAMPLES: dict[str, Callable[[Any], list[Tensor]]] = {
    "input_ids": _ids,
    "pixel_values": _pixels,
    "pixel_values_videos": _pixels,
    "input_features": _spectrum,
    "input_values": _waveform,
    "past_values": _series,
    "query_embeds": _embedded,
    "inputs_embeds": _embedded,
    "hidden_states": _embedded,
    "states": _steps("state_dim"),
}
_BESIDE: dict[str, Callable[[Any, Mapping[str, Tensor]], list[Tensor]]] = {
    "input_ids": lambda config, plain: _ids(config),
    "pixel_values": lambda config, plain: _pixels(config),
    "input_features": lambda config, plain: _spectrum(config),
    "inputs_embeds": lambda config, plain: _embedded(config),
    "encoder_hidden_states": lambda config, plain: _embedded(config),
    "input_features_mask": _mask,
    "attention_mask": _mask,
    "padding_mask": _mask,
    "bbox": _boxes,
    "grid_thw": _grid,
    "image_grid_thw": _grid,
    "image_sizes": _sizes,
    "past_observed_mask": _observed,
    "past_time_features": _clock(of_past=True),
    "future_time_features": _clock(of_past=False),
    "future_values": _future,
    "actions": _steps("act_dim"),
    "rewards": _steps("reward_dim"),
    "returns_to_go": _steps("reward_dim"),
    "timesteps": _times,
    "qformer_input_ids": lambda config, plain: _ids(_part(config, "qformer_config")),
    "visual_feats": _regions("visual_feat_dim"),
    "visual_pos": _regions("visual_pos_dim"),
}
_OF_IMAGES = ("image_sizes",)  # what belongs to the pixels; with grids nothing is exported
_PLACES, _TOKEN = ("image_token_id", "image_token_index"), ("token_id", "token_index")

"""Two formats that describe an architecture module by module: that of Model Folding and that of mergekit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intertwine.errors import InputError
from intertwine.symmetry.specs import Spec, WholeAxis, whole_axes

if TYPE_CHECKING:
    from torch import nn

    from intertwine.symmetry.symmetry import Symmetry


# -- folding -------------------------------------------------------------------------------------------------


def folding(symmetry: Symmetry) -> Spec:
    """The file of Model Folding: module -> what it reads (`pre`), whether its channels are folded, how many
    it has, and whose map it has to share (`consistent_map`); the last module is `final_module_name`.

    A module that is not folded is not touched at all there. So an axis read by a module whose own channels
    cannot be folded is left out, unless that is the last one.
    """
    axes, left_out = whole_axes(symmetry, flat=True, mergeable=True)
    modules = _modules(symmetry)
    final = next((m for m in reversed(modules) if "out" in modules[m]), "")
    while True:
        written = {_module(m.param): axis for axis in axes for m in axis.makers()}
        readers = Counter(reader for axis in axes for reader in _readers(axis))
        stuck = dict[str, str]()
        for axis in axes:
            if reason := _unsaid(axis):
                stuck[axis.name] = reason
            for reader in _readers(axis):
                if reader != final and reader not in written:
                    stuck[axis.name] = f"{reader} reads it, and its own channels cannot be folded"
                elif readers[reader] > 1:
                    stuck[axis.name] = f"{reader} reads several axes"
        if not stuck:
            break
        left_out |= stuck
        axes = [axis for axis in axes if axis.name not in stuck]
    content: dict[str, Any] = {"input": _entry(None, False, None, None)}
    standing = {  # norms, which stand on what they are taken of
        module: axis
        for axis in axes
        for module in dict.fromkeys(_module(param) for param, _ in axis.copies)
        if module not in _readers(axis) and module not in written
    }
    for module, roles in modules.items():
        read = next((axis for axis in axes if module in _readers(axis)), standing.get(module))
        own = written.get(module) or standing.get(module)
        first = _module(written[module].makers()[0].param) if module in written else module
        content[module] = _entry(
            _module(read.makers()[0].param) if read is not None else "input",
            own is not None or module == final,
            own.axis.size if own is not None else roles.get("out"),
            first if first != module else None,
        )
    content["final_module_name"] = final
    return Spec("folding", content, tuple(axis.name for axis in axes), left_out)


def _entry(pre: str | None, folds: bool, channels: int | None, shared: str | None) -> dict[str, Any]:
    return {"pre": pre, "do_folding": folds, "num_channels": channels, "consistent_map": shared}


def _unsaid(axis: WholeAxis) -> str:
    """Why the format has no words for an axis: modules write along dimension 0 and read along 1."""
    if not axis.makers():
        return "no module writes it"
    for member in axis.axis.members:
        if not _module(member.param):
            return f"{member.param} is no module's weight"
        if member.dim != (1 if member.role == "in" else 0):
            return f"{member.param} has it along dimension {member.dim}"
    return ""


def _module(param: str) -> str:
    return param.rpartition(".")[0]


def _readers(axis: WholeAxis) -> list[str]:
    """The modules that read an axis, in the order of the graph."""
    return list(dict.fromkeys(_module(m.param) for m in axis.axis.members if m.role == "in"))


def _modules(symmetry: Symmetry) -> dict[str, dict[str, int]]:
    """Module with weights -> role -> size along that dimension."""
    found: dict[str, dict[str, int]] = {}
    for (param, dim), role in symmetry.inference.roles.items():
        found.setdefault(_module(param), {})[role] = symmetry.shapes[param][dim]
    return found


# -- mergekit ------------------------------------------------------------------------------------------------


def mergekit(symmetry: Symmetry, model: nn.Module | None) -> Spec:
    """The architecture file of mergekit: weights before, in and after the layers, each with its spaces.

    Two weights share a space if a permutation of one must be carried out on the other. What is said of
    every layer alike is written once, with `${layer_index}`.
    """
    config = getattr(model, "config", None)
    if model is None or config is None:
        raise InputError(
            "mergekit's file names the architecture as transformers does",
            do='give the model, which has a config: to_spec("mergekit", model)',
        )
    axes, left_out = whole_axes(symmetry)
    infos = _infos(symmetry, axes, _vocabulary(config))
    prefix, count = _stack(list(infos))
    spaces = _space_names(axes, prefix)
    pre, post, layers = list[dict[str, Any]](), list[dict[str, Any]](), dict[int, list[dict[str, Any]]]()
    for name, info in infos.items():
        named = {key: spaces.get(value, value) if key.endswith("_space") else value
                 for key, value in info.items()}  # fmt: skip
        layer = _layer(name, prefix)
        if layer is None:
            (post if layers else pre).append(named)
        else:
            layers.setdefault(layer, []).append(_templated(named, prefix, layer))
    template = next(iter(layers.values()), [])
    if any(other != template for other in layers.values()):
        raise InputError(
            "the layers of the model are not alike",
            so="mergekit's file has one template for all of them",
        )
    content = {
        "model_type": getattr(config, "model_type", type(model).__name__),
        "architectures": list(getattr(config, "architectures", None) or [type(model).__name__]),
        "pre_weights": pre,
        "layer_templates": {"weights": template},
        "post_weights": post,
    } | _count(config, count)
    return Spec("mergekit", content, tuple(spaces[axis.name] for axis in axes), left_out)


def _infos(symmetry: Symmetry, axes: Sequence[WholeAxis], words: int | None) -> dict[str, dict[str, Any]]:
    """Every weight once, under its first name, with the spaces it reads and writes."""
    alias, shapes, roles = symmetry.alias, symmetry.traced.shapes, symmetry.inference.roles
    of = {key: axis.name for axis in axes for key in axis.copies}
    infos: dict[str, dict[str, Any]] = {}
    for name, shape in shapes.items():
        first = alias.get(name, name)
        if first != name and first in infos:
            infos[first].setdefault("tied_names", []).append(name)
            continue
        info: dict[str, Any] = {"name": name}
        if len(shape) == 2 and shape[0] == words:
            info["is_embed"] = True
        for dim in range(len(shape)):
            if (first, dim) not in of:
                continue
            # A vector acts on the space that it stands in; a matrix leads from one to another.
            reads = len(shape) == 1 or roles.get((first, dim)) == "in"
            info["input_space" if reads else "output_space"] = of[first, dim]
        infos[name] = info
    return infos


def _vocabulary(config: Any) -> int | None:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return getattr(text, "vocab_size", None)


def _stack(names: Sequence[str]) -> tuple[str, int]:
    """The prefix of the layers (the numbered list that holds most weights), and how many there are."""
    found = [m for name in names if (m := re.match(r"(.*?\.)(\d+)\.", name))]
    if not found:
        return "", 0
    prefix = Counter(m[1] for m in found).most_common(1)[0][0]
    return prefix, 1 + max(int(m[2]) for m in found if m[1] == prefix)


def _layer(name: str, prefix: str) -> int | None:
    match = re.match(re.escape(prefix) + r"(\d+)\.", name) if prefix else None
    return int(match[1]) if match else None


def _space_names(axes: Sequence[WholeAxis], prefix: str) -> dict[str, str]:
    """Axis -> its space: its own name, or that of the stream if it runs through several layers."""
    names, streams = dict[str, str](), 0
    for axis in axes:
        layers = {_layer(param, prefix) for param, _ in axis.copies}
        runs = len(layers - {None}) > 1
        streams += runs
        names[axis.name] = (f"stream_{streams}" if streams > 1 else "stream") if runs else axis.name
    return names


def _templated(info: Mapping[str, Any], prefix: str, layer: int) -> dict[str, Any]:
    """The same with the number of the layer left open."""
    here, there = f"{prefix}{layer}.", prefix + "${layer_index}."

    def opened(value: Any) -> Any:
        if isinstance(value, list):
            return [opened(v) for v in value]
        inside = isinstance(value, str) and value.startswith(here)
        return there + value.removeprefix(here) if inside else value

    return {key: opened(value) for key, value in info.items()}


def _count(config: Any, layers: int) -> dict[str, Any]:
    """The field of the config that counts the layers, or their number itself."""
    fields = config.to_dict() if hasattr(config, "to_dict") else vars(config)
    keys = [key for key, value in fields.items() if "layer" in key and value == layers and value is not True]
    preferred = [key for key in ("num_hidden_layers", "n_layer", "num_layers") if key in keys]
    if preferred or keys:
        return {"num_layers_config_key": (preferred or keys)[0]}
    return {"override_num_layers": layers}

"""model + example -> a flat ATen graph with shapes and state-dict names. The only user of torch.export, with
`functional` and `program`.

The graph is that of the model in eval mode, functionalised, with no op decomposed. The caller's model is
copied first: its weights, mode, hooks and gradients are never touched.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch.export.graph_signature import OutputKind
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.overrides import has_torch_function_unary
from torch.utils._pytree import tree_leaves

from intertwine.errors import ExportFailed, ModelError, Unsupported
from intertwine.foreign import is_signal, kept_process, user_code
from intertwine.graph import functional
from intertwine.graph.bodies import write_out
from intertwine.graph.copying import assert_itself, copy_model, state_of
from intertwine.graph.example import Example, describe
from intertwine.text import first_line, quoted

_QUOTES = "\"'\\"
RENAMED: dict[Any, Any] = {}  # an op that is another one by name only -> that one; `rules` fills it


@dataclass(frozen=True)
class Traced:
    """An exported graph and what its placeholders are.

    weights: placeholder -> state-dict name of a float tensor that may be acted on.
    alias: every state-dict name -> the first name of the same tensor (tied weights).
    written: number of an output -> state-dict name of the buffer that forward writes it into.
    example: the arguments that it was exported on; others must have their shapes.
    containers: paths of the modules that hold others.
    shapes: every state-dict name -> the shape of its tensor.
    literals: placeholders of the constants that stand in the code itself (`x[:, [2, 0]]`).
    """

    graph: fx.Graph
    module: fx.GraphModule
    weights: Mapping[str, str]
    alias: Mapping[str, str]
    constants: Mapping[str, torch.Tensor]
    written: Mapping[int, str]
    example: Example
    containers: frozenset[str] = frozenset()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    literals: frozenset[str] = frozenset()


def empty_values(traced: Traced) -> int:
    """How many values of the graph have no entries at this size.

    Of an op with several results only those count that are taken: a batch norm in eval mode has empty ones.
    """
    values = [node.meta.get("val") for node in traced.graph.nodes]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    return sum(any(isinstance(size, int) and not size for size in v.shape) for v in tensors)


def sizes_in(traced: Traced) -> list[int]:
    """The sizes of all dimensions of all values; of those that are known beforehand."""
    values = [node.meta.get("val") for node in traced.graph.nodes]
    shapes = [v.shape for v in values if isinstance(v, torch.Tensor)]
    return sorted({size for shape in shapes for size in shape if isinstance(size, int)})


def export(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Traced:
    """Export `model` on example arguments; raises `ExportFailed` or `ModelError` with the reason."""
    check_model(model)
    inputs, named = tuple(args), dict(kwargs or {})
    assert_runs(model, inputs, named)
    copied = eval_copy(model, share=True)
    try:
        with torch.no_grad(), quiet(), torch.random.fork_rng(devices=[]):
            try:
                program = functional.in_one_go(copied, inputs, named)
            except Exception:
                copied = eval_copy(model, share=True)  # half a trace may have left something in the other
                program = functional.in_several_passes(copied, inputs, named)
            write_out(program.graph_module)
            _rename(program.graph_module)
    except Exception as error:
        raise ExportFailed(
            f"torch.export cannot trace the model: {first_line(error)}",
            where=type(model).__name__,
            so="its symmetries cannot be inferred",
            do=_advice(error),
        ) from error
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    if len(signature.user_inputs) > len(tree_leaves((inputs, named))):
        raise ExportFailed(
            "an argument of the model is a module, or an object that torch.export takes apart",
            where=type(model).__name__,
            do="give tensors and plain values; make modules in __init__",
        )
    alias = _aliases(copied)
    kept = set(copied.state_dict(keep_vars=True))
    state = named_tensors(copied)
    gone = sorted(set(names.values()) - state.keys())
    if gone:
        raise ExportFailed(
            f"forward takes {gone[0]} away from the model",
            where=type(model).__name__,
            so="what it computes depends on how often it was called",
            do="make and remove weights in __init__ only",
        )
    weights, constants = {}, {}
    for placeholder, name in names.items():
        tensor = state[name]
        if name in kept and tensor.is_floating_point():
            weights[placeholder] = alias[name]
        else:
            constants[placeholder] = tensor
    for placeholder, name in signature.inputs_to_lifted_tensor_constants.items():
        constants[placeholder] = program.constants[name]
    written = {
        k: alias[spec.target]
        for k, spec in enumerate(signature.output_specs)
        if spec.kind is OutputKind.BUFFER_MUTATION and spec.target in alias
    }
    containers = frozenset(path for path, module in copied.named_modules() if list(module.children()))
    given = Example(inputs, named)
    shapes = {name: tuple(t.shape) for name, t in copied.state_dict().items() if isinstance(t, torch.Tensor)}
    literals = frozenset(signature.inputs_to_lifted_tensor_constants)
    return Traced(
        program.graph, program.graph_module, weights, alias, constants, written, given, containers, shapes,
        literals,
    )  # fmt: skip


def named_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by all their names: a tied weight has several."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def stored_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """What a file of the model's weights holds: its state_dict(), which must be tensors alone."""
    state = state_of(model)
    other = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if other:
        raise ModelError(
            f"{other[0]} is no tensor, but of type {type(state[other[0]]).__name__}",
            where=type(model).__name__,
            so="a file of weights cannot hold it",
            do="let get_extra_state() return a tensor, or leave it out",
        )
    return state


def _advice(error: BaseException) -> str:
    """What to do about a forward that torch.export cannot trace."""
    text = f"{type(error).__name__} {error}"
    if "DataDependent" in text or "data-dependent" in text:
        return "remove data-dependent control flow from forward, or trace a submodule"
    if "require grad" in text or "autograd" in text:
        return "forward computes gradients itself; trace the part of the model that they are taken of"
    return "trace a submodule that it can trace"


_FITTING = {
    "the example": "give an example that fits (--input 1x3x32x32)",
    "the data": "give batches with all that forward takes (in Python, by name), or leave the data out",
}


def assert_runs(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], what: str = "the example"
) -> None:
    """Tell a wrong example from a model that cannot be exported, before torch.export complains at length.

    On a copy of its own: a first run may fill caches, which would then be exported as constants.
    """
    if any(p.device.type == "meta" for p in model.parameters()):
        return
    if _is_any_not_dense((args, kwargs)):
        raise ModelError(f"{what} holds a tensor that is not dense", do="call to_dense() on it first")
    copied = eval_copy(model, share=True)
    try:
        with kept_process(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            try:
                with torch.no_grad():
                    output = copied(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            except RuntimeError:  # a forward that takes gradients itself
                output = copied(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    except BaseException as error:  # a forward that calls sys.exit must not end the command with 0
        if is_signal(error):
            raise
        raise ModelError(
            f"the model does not run on {what}: {first_line(error)}",
            where=f"{type(model).__name__}, {what.removeprefix('the ')} {describe(args or kwargs)}",
            do=_FITTING.get(what, ""),
        ) from error
    if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(output)):
        raise ModelError(
            f"the model returns no tensor but {type(output).__name__}",
            where=type(model).__name__,
            do="return a tensor, or a tuple or dict of them",
        )
    if _is_any_not_dense(output):
        raise ModelError(
            "the model returns a tensor that is not dense",
            where=type(model).__name__,
            do="call to_dense() on it before it is returned",
        )


def _is_any_not_dense(tree: Any) -> bool:
    return any(
        isinstance(leaf, torch.Tensor) and (leaf.is_nested or leaf.layout != torch.strided)
        for leaf in tree_leaves(tree)
    )


def eval_copy(model: nn.Module, share: bool = False) -> nn.Module:
    """A deep copy in eval mode. Forward hooks are part of what a model computes, so they stay.

    share: the copy has the caller's own parameters, for those who never write them. Key-value caches of
    language models are switched off in the copy: they are outputs that nobody asked for.
    """
    own = model.parameters() if share else ()
    with quiet():  # an exported program warns about itself
        copied = copy_model(model, {id(tensor): tensor for tensor in own})
    with user_code(f"train() and eval() of {type(model).__name__}"):
        # Through train mode: modules that keep what they computed in eval mode forget it there.
        for each in (copied.train(), copied.eval()):
            assert_itself(each, copied)
    for module in copied.modules():
        config = getattr(module, "config", None)
        if config is not None and getattr(config, "use_cache", None) is True:
            config.use_cache = False
    return copied


def check_values(model: nn.Module) -> None:
    """`check_model`, for what reads the weights themselves: they are not on the device meta either."""
    check_model(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise Unsupported(
            "a TorchScript module cannot be taken apart", do="give the module that it was made from"
        )
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        raise ModelError(
            f"{type(model).__name__} is on the device meta and holds no values", do="load its weights first"
        )


@torch.no_grad()  # weights that were made in inference mode cannot be asked otherwise
def check_model(model: nn.Module) -> None:
    """Raise `ModelError` for what no later step can handle: zero-width layers and non-finite weights."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"expected a torch.nn.Module, got {type(model).__name__}")
    try:
        parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        buffers = [name for name, _ in model.named_buffers(remove_duplicate=False)]
        modules = [name for name, _ in model.named_modules(remove_duplicate=False)]
        state = state_of(model, keep_vars=True)
    except ModelError:
        raise
    except RecursionError as error:
        raise ModelError(
            f"{type(model).__name__} contains itself",
            so="torch's own state_dict() and eval() never return from a module that is its own descendant",
            do="keep the way back unregistered: self.__dict__['parent'] = parent",
        ) from error
    except Exception as error:  # a model may have its own
        raise ModelError(f"state_dict() of {type(model).__name__} fails: {first_line(error)}") from error
    _assert_plain_names((*modules, *parameters, *buffers, *state))
    absent = sorted(name for name in parameters if not isinstance(state.get(name), torch.Tensor))
    if absent:
        raise ModelError(
            f"state_dict() of {type(model).__name__} leaves out {absent[0]}",
            so="weights are saved and loaded by it",
            do="let it name every parameter",
        )
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            if name.rpartition(".")[2] == "_extra_state":
                continue  # what get_extra_state returns
            raise ModelError(
                f"{name} is no tensor, but of type {type(tensor).__name__}: the weights of a quantized layer",
                so="there are no numbers that could be moved or compared",
                do="give the model as it was before it was quantized",
            )
        if isinstance(tensor, (UninitializedBuffer, UninitializedParameter)):
            raise ModelError(
                f"{name} has no shape yet: it belongs to a lazy module",
                so="there is nothing to infer on it",
                do="run the model once on an example first",
            )
        if has_torch_function_unary(tensor):
            raise ModelError(
                f"{name} is a {type(tensor).__name__}, whose class has operations of its own",
                so="what is done with a weight here is that of torch",
                do="give plain tensors: tensor.as_subclass(torch.Tensor)",
            )
        if tensor.is_nested or tensor.layout is not torch.strided:
            raise ModelError(
                f"{name} is not dense, but of layout {str(tensor.layout).removeprefix('torch.')}",
                so="weights are moved, compared and stored as dense tensors",
                do="call to_dense() on it first",
            )
        if not tensor.is_floating_point() or tensor.device.type == "meta":
            continue
        # Buffers may be infinite: attention masks, and the bounds of a clamp that never binds.
        healthy = torch.isfinite(tensor) if name in parameters else ~torch.isnan(tensor)
        if not healthy.all():
            raise ModelError(
                f"{name} holds NaN or infinite values",
                so="no symmetry of this model can be verified",
                do="load a healthy checkpoint",
            )


def _assert_plain_names(names: Iterable[str]) -> None:
    """torch writes the names of modules and weights into Python code that it runs, between quotes that it
    does not escape, and they may come from a file: weights of an ONNX graph, adapters that a config lists."""
    for name in names:
        odd = next((c for c in str(name) if c in _QUOTES or not c.isprintable()), None)
        if odd is not None:
            raise ModelError(
                f"the name {quoted(name)} of a module or a weight holds the character {odd!a}",
                so="it cannot be written into code or files",
                do="rename it: letters, digits, signs and spaces, but no quotes and no backslash",
            )


def where(node: fx.Node) -> str:
    """The module path that a node comes from, such as `layer1.0.conv1`."""
    stack = node.meta.get("nn_module_stack") or {}
    path = list(stack.values())[-1][0] if stack else ""
    return path.removeprefix("L['self'].").removeprefix("L['self']") or "(top)"


def _rename(module: fx.GraphModule) -> None:
    """Give ops that have two names the one that the rules know."""
    for part in [m for m in module.modules() if isinstance(m, fx.GraphModule)]:
        renamed = [node for node in part.graph.nodes if node.target in RENAMED]
        for node in renamed:
            node.target = RENAMED[node.target]
        if renamed:
            part.recompile()


def _aliases(model: nn.Module) -> dict[str, str]:
    first: dict[int, str] = {}
    alias: dict[str, str] = {}
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    for name, tensor in named:
        alias[name] = first.setdefault(id(tensor), name)
    return alias


@contextmanager
def quiet() -> Any:
    """torch.export warns and logs about things that are none of the user's business here.

    Its many loggers have levels of their own; what it raises is all that we report.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    checked = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)  # it asks what the numbers are
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(checked)
        logging.disable(before)

"""What the operators of ONNX compute, each in terms of torch: its inputs, its attributes -> its outputs.

As of operator set 18; older files are raised to it. Sizes and indices that a graph computes (Shape, Gather,
Concat, ...) are numpy arrays and never get here: only what depends on an input or on a weight does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from intertwine.errors import Unsupported

Attributes = Mapping[str, Any]
Operator = Callable[[list[Any], Attributes], Any]

DTYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64,
    9: torch.bool, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16,
}  # fmt: skip


def tensor(value: Any) -> Tensor:
    """A value of the graph as a tensor."""
    return value if isinstance(value, Tensor) else torch.as_tensor(value)


def integers(value: Any) -> list[int]:
    """A value that must be known without running the model: sizes, axes, pads."""
    if isinstance(value, Tensor):
        raise Unsupported("a size or an index in it depends on the values of an input")
    return [int(each) for each in np.asarray(value).reshape(-1)]


def _item(inputs: list[Any], place: int, default: Any = None) -> Any:
    return inputs[place] if place < len(inputs) and inputs[place] is not None else default


def _map(function: Callable[..., Any]) -> Operator:
    """An operator whose inputs are all tensors and that has no attributes."""
    return lambda inputs, attributes: function(*[tensor(each) for each in inputs])


def _arithmetic(function: Callable[..., Any]) -> Operator:
    """One that takes single numbers as they are."""

    def run(inputs: list[Any], attributes: Attributes) -> Any:
        single = [not isinstance(each, Tensor) and np.asarray(each).ndim == 0 for each in inputs]
        pairs = zip(inputs, single, strict=True)
        return function(*[np.asarray(each).item() if alone else tensor(each) for each, alone in pairs])

    return run


def _joined(function: Callable[[Tensor, Tensor], Tensor]) -> Operator:
    """One of any number of inputs: Min, Max, Sum."""

    def run(inputs: list[Any], attributes: Attributes) -> Tensor:
        result = tensor(inputs[0])
        for other in inputs[1:]:
            result = function(result, tensor(other))
        return result

    return run


def _pads(x: Tensor, kernel: Sequence[int], attributes: Attributes) -> tuple[list[int], list[int]]:
    """Before and after every spatial dimension."""
    n = len(kernel)
    strides, dilations = attributes.get("strides", [1] * n), attributes.get("dilations", [1] * n)
    how = attributes.get("auto_pad", "NOTSET")
    if how == "NOTSET":
        pads = attributes.get("pads", [0] * 2 * n)
        return list(pads[:n]), list(pads[n:])
    before, after = [], []
    for size, k, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        out = math.ceil(int(size) / stride)
        total = 0 if how == "VALID" else max((out - 1) * stride + (k - 1) * dilation + 1 - int(size), 0)
        small, large = total // 2, total - total // 2
        before.append(small if how == "SAME_UPPER" else large)
        after.append(large if how == "SAME_UPPER" else small)
    return before, after


def _padded(x: Tensor, before: list[int], after: list[int], value: float) -> tuple[Tensor, list[int]]:
    """x, and what is left to be padded on both sides alike."""
    if before == after:
        return x, before
    return F.pad(x, _torch_pads(before, after), value=value), [0] * len(before)


def _torch_pads(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """As F.pad wants them: the last dimension first."""
    return [each for pair in reversed(list(zip(before, after, strict=True))) for each in pair]


def _conv(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, weight, bias = tensor(inputs[0]), tensor(inputs[1]), _item(inputs, 2)
    n = weight.dim() - 2
    x, padding = _padded(x, *_pads(x, weight.shape[2:], attributes), 0.0)
    convolve = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    strides, dilations = attributes.get("strides", [1] * n), attributes.get("dilations", [1] * n)
    return convolve(x, weight, bias, strides, padding, dilations, attributes.get("group", 1))


def _conv_transpose(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, weight, bias = tensor(inputs[0]), tensor(inputs[1]), _item(inputs, 2)
    n = weight.dim() - 2
    pads = attributes.get("pads", [0] * 2 * n)
    if (
        attributes.get("auto_pad", "NOTSET") != "NOTSET"
        or "output_shape" in attributes
        or pads[:n] != pads[n:]
    ):
        raise Unsupported("ConvTranspose with sizes of its own, or pads that differ")
    convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
    ones, zeros = [1] * n, [0] * n
    strides, extra = attributes.get("strides", ones), attributes.get("output_padding", zeros)
    group, dilations = attributes.get("group", 1), attributes.get("dilations", ones)
    return convolve(x, weight, bias, strides, pads[:n], extra, group, dilations)


def _max_pool(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, kernel = tensor(inputs[0]), attributes["kernel_shape"]
    x, padding = _padded(x, *_pads(x, kernel, attributes), -math.inf)
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(kernel) - 1]
    strides, dilations = (attributes.get(name, [1] * len(kernel)) for name in ("strides", "dilations"))
    return pool(x, kernel, strides, padding, dilations, bool(attributes.get("ceil_mode", 0)))


def _average_pool(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, kernel = tensor(inputs[0]), attributes["kernel_shape"]
    n, counted = len(kernel), bool(attributes.get("count_include_pad", 0))
    before, after = _pads(x, kernel, attributes)
    if (before != after and not counted) or any(d != 1 for d in attributes.get("dilations", [1] * n)):
        raise Unsupported("AveragePool with pads that differ, or dilated")
    x, padding = _padded(x, before, after, 0.0)
    pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1]
    strides = attributes.get("strides", [1] * n)
    return pool(x, kernel, strides, padding, bool(attributes.get("ceil_mode", 0)), counted)


def _gemm(inputs: list[Any], attributes: Attributes) -> Tensor:
    a, b, c = tensor(inputs[0]), tensor(inputs[1]), _item(inputs, 2)
    a = a.T if attributes.get("transA", 0) else a
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    if alpha == 1.0 and beta == 1.0 and attributes.get("transB", 0) and (c is None or tensor(c).dim() == 1):
        return F.linear(a, b, c)
    product = a @ (b.T if attributes.get("transB", 0) else b)
    product = product if alpha == 1.0 else alpha * product
    return product if c is None else product + (tensor(c) if beta == 1.0 else beta * tensor(c))


def _batch_norm(inputs: list[Any], attributes: Attributes) -> Tensor:
    if attributes.get("training_mode", 0):
        raise Unsupported("BatchNormalization in training mode", do="export the model in eval mode")
    x, gain, shift, mean, variance = inputs
    return F.batch_norm(x, mean, variance, gain, shift, False, 0.0, attributes.get("epsilon", 1e-5))


def _layer_norm(inputs: list[Any], attributes: Attributes) -> Tensor:
    x = tensor(inputs[0])
    shape = x.shape[attributes.get("axis", -1) :]
    return F.layer_norm(x, shape, _item(inputs, 1), _item(inputs, 2), attributes.get("epsilon", 1e-5))


def _group_norm(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, gain, shift = inputs
    return F.group_norm(x, attributes["num_groups"], gain, shift, attributes.get("epsilon", 1e-5))


def _instance_norm(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, gain, shift = inputs
    return F.instance_norm(x, None, None, gain, shift, eps=attributes.get("epsilon", 1e-5))


def _reduced(function: Callable[..., Tensor]) -> Operator:
    def run(inputs: list[Any], attributes: Attributes) -> Tensor:
        x, axes = tensor(inputs[0]), _item(inputs, 1)
        over = integers(axes) if axes is not None else []
        if not over and attributes.get("noop_with_empty_axes", 0):
            return x
        return function(x, over or list(range(x.dim())), bool(attributes.get("keepdims", 1)))

    return run


def _global(function: Callable[..., Tensor]) -> Operator:
    return lambda inputs, attributes: function(inputs[0], list(range(2, inputs[0].dim())), True)


def reshape_sizes(x: Tensor, wanted: Any, attributes: Attributes) -> list[int]:
    """The sizes that a Reshape asks for; 0 keeps that of the input, where the file does not say otherwise."""
    keep = not attributes.get("allowzero", 0)
    return [x.shape[i] if size == 0 and keep else size for i, size in enumerate(integers(wanted))]


def _reshape(inputs: list[Any], attributes: Attributes) -> Tensor:
    x = tensor(inputs[0])
    return x.reshape(reshape_sizes(x, inputs[1], attributes))


def _flatten(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, axis = tensor(inputs[0]), int(attributes.get("axis", 1))
    axis = axis + x.dim() if axis < 0 else axis
    return x.flatten(1) if axis == 1 else x.reshape(math.prod(x.shape[:axis]), -1)


def _squeeze(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, axes = tensor(inputs[0]), _item(inputs, 1)
    return x.squeeze() if axes is None else x.squeeze(tuple(integers(axes)))


def _unsqueeze(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, axes = tensor(inputs[0]), integers(inputs[1])
    for axis in sorted(each % (x.dim() + len(axes)) for each in axes):
        x = x.unsqueeze(axis)
    return x


def _transpose(inputs: list[Any], attributes: Attributes) -> Tensor:
    x = tensor(inputs[0])
    return x.permute(attributes.get("perm", list(reversed(range(x.dim())))))


def _split(inputs: list[Any], attributes: Attributes) -> tuple[Tensor, ...]:
    x, axis, sizes = tensor(inputs[0]), attributes.get("axis", 0), _item(inputs, 1)
    each = integers(sizes) if sizes is not None else math.ceil(x.shape[axis] / attributes["num_outputs"])
    parts: tuple[Tensor, ...] = torch.split(x, each, axis)
    return parts


def _slice(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, starts, ends = tensor(inputs[0]), integers(inputs[1]), integers(inputs[2])
    axes = integers(_item(inputs, 3, range(len(starts))))
    steps = integers(_item(inputs, 4, [1] * len(starts)))
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step < 0:
            raise Unsupported("a Slice that runs backwards")
        x = x[(slice(None),) * (axis % x.dim()) + (slice(start, end, step),)]
    return x


def _gather(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, index = tensor(inputs[0]), inputs[1]
    axis = attributes.get("axis", 0) % x.dim()
    if not isinstance(index, Tensor) and np.asarray(index).ndim == 0:
        return x.select(axis, int(index))
    index = tensor(index)
    if axis == 0 and x.dim() == 2 and x.is_floating_point():
        return F.embedding(index, x)
    return x[(slice(None),) * axis + (index,)]


def _pad(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, pads, mode = tensor(inputs[0]), integers(inputs[1]), attributes.get("mode", "constant")
    axes = integers(_item(inputs, 3, range(x.dim())))
    before, after = [0] * x.dim(), [0] * x.dim()
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    how = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}[mode]
    if how == "constant":
        return F.pad(x, _torch_pads(before, after), value=float(_item(inputs, 2, 0.0)))
    if any(before[:2]) or any(after[:2]):
        raise Unsupported(f"Pad with mode {mode} of batch or channels")
    return F.pad(x, _torch_pads(before[2:], after[2:]), mode=how)


def _expand(inputs: list[Any], attributes: Attributes) -> Tensor:
    x = tensor(inputs[0])
    return x.expand(torch.broadcast_shapes(x.shape, integers(inputs[1])))


def _clip(inputs: list[Any], attributes: Attributes) -> Tensor:
    low, high = (None if each is None else float(each) for each in (_item(inputs, 1), _item(inputs, 2)))
    return torch.clamp(inputs[0], low, high)


def _hard_sigmoid(inputs: list[Any], attributes: Attributes) -> Tensor:
    alpha, beta = attributes.get("alpha", 0.2), attributes.get("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return F.hardsigmoid(inputs[0])
    return torch.clamp(alpha * inputs[0] + beta, 0.0, 1.0)


def _prelu(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, slope = inputs
    channels = slope.reshape(-1)
    if x.dim() > 1 and slope.numel() in (1, x.shape[1]) and all(s == 1 for s in slope.shape[1:]):
        return F.prelu(x, channels)
    return torch.where(x > 0, x, slope * x)


def _resize(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, scales, sizes = tensor(inputs[0]), _item(inputs, 2), _item(inputs, 3)
    how, where = (
        attributes.get("mode", "nearest"),
        attributes.get("coordinate_transformation_mode", "half_pixel"),
    )
    if sizes is not None and len(integers(sizes)):
        wanted = integers(sizes)[-(x.dim() - 2) :]
    else:
        factors = [float(each) for each in np.asarray(scales).reshape(-1)][2:]
        wanted = [int(size * factor) for size, factor in zip(x.shape[2:], factors, strict=True)]
    if how == "nearest" and where == "asymmetric" and attributes.get("nearest_mode") == "floor":
        return F.interpolate(x, wanted, mode="nearest")
    if how == "linear" and where in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        mode = ("linear", "bilinear", "trilinear")[x.dim() - 3]
        return F.interpolate(x, wanted, mode=mode, align_corners=where == "align_corners")
    raise Unsupported(f"Resize with {how} and {where}")


def _with_attributes(function: Callable[..., Tensor], **named: tuple[str, Any]) -> Operator:
    """A function of one tensor, with torch's argument -> (attribute, default)."""
    return lambda inputs, attributes: function(
        inputs[0], **{ours: attributes.get(name, default) for ours, (name, default) in named.items()}
    )


# Operator -> the inputs that must be plain numbers, although they may be real ones.
NUMBERS = {"Resize": (1, 2, 3), "Clip": (1, 2), "Pad": (2,)}
# Operator -> the inputs that are statistics: no parameters.
STATISTICS = {"BatchNormalization": (3, 4)}

OPERATORS: dict[str, Operator] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": _map(torch.matmul),
    "MaxPool": _max_pool, "AveragePool": _average_pool,
    "GlobalAveragePool": _global(torch.mean), "GlobalMaxPool": _global(torch.amax),
    "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm,
    "GroupNormalization": _group_norm, "InstanceNormalization": _instance_norm,
    "Add": _arithmetic(operator.add), "Sub": _arithmetic(operator.sub), "Mul": _arithmetic(operator.mul),
    "Div": _arithmetic(operator.truediv), "Pow": _arithmetic(operator.pow),
    "Sum": _joined(torch.add), "Min": _joined(torch.minimum), "Max": _joined(torch.maximum),
    "Neg": _map(torch.neg), "Abs": _map(torch.abs), "Sqrt": _map(torch.sqrt), "Exp": _map(torch.exp),
    "Log": _map(torch.log), "Erf": _map(torch.erf), "Sin": _map(torch.sin), "Cos": _map(torch.cos),
    "Floor": _map(torch.floor), "Sign": _map(torch.sign), "Reciprocal": _map(torch.reciprocal),
    "Relu": _map(F.relu), "Sigmoid": _map(torch.sigmoid), "Tanh": _map(torch.tanh), "Mish": _map(F.mish),
    "HardSwish": _map(F.hardswish), "HardSigmoid": _hard_sigmoid, "Softplus": _map(F.softplus),
    "Softsign": _map(F.softsign), "PRelu": _prelu, "Clip": _clip,
    "LeakyRelu": _with_attributes(F.leaky_relu, negative_slope=("alpha", 0.01)),
    "Elu": _with_attributes(F.elu, alpha=("alpha", 1.0)),
    "Celu": _with_attributes(F.celu, alpha=("alpha", 1.0)),
    "Selu": _map(F.selu), "Gelu": _with_attributes(F.gelu, approximate=("approximate", "none")),
    "Softmax": _with_attributes(torch.softmax, dim=("axis", -1)),
    "LogSoftmax": _with_attributes(torch.log_softmax, dim=("axis", -1)),
    "ReduceMean": _reduced(torch.mean), "ReduceSum": _reduced(torch.sum), "ReduceMax": _reduced(torch.amax),
    "ReduceMin": _reduced(torch.amin), "ReduceL2": _reduced(lambda x, d, k: x.pow(2).sum(d, k).sqrt()),
    "ReduceSumSquare": _reduced(lambda x, d, k: x.pow(2).sum(d, k)),
    "Reshape": _reshape, "Flatten": _flatten, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Transpose": _transpose, "Split": _split, "Slice": _slice, "Gather": _gather, "Pad": _pad,
    "Expand": _expand, "Resize": _resize,
    "Concat": lambda inputs, attributes: torch.cat([tensor(each) for each in inputs], attributes["axis"]),
    "Tile": lambda inputs, attributes: tensor(inputs[0]).repeat(integers(inputs[1])),
    "Trilu": lambda inputs, attributes: (torch.triu if attributes.get("upper", 1) else torch.tril)(
        tensor(inputs[0]), (integers(_item(inputs, 1, 0)))[0]
    ),
    "Einsum": lambda inputs, attributes: torch.einsum(attributes["equation"], *map(tensor, inputs)),
    "Where": _arithmetic(torch.where), "Equal": _arithmetic(operator.eq), "Greater": _arithmetic(operator.gt),
    "Less": _arithmetic(operator.lt), "GreaterOrEqual": _arithmetic(operator.ge),
    "LessOrEqual": _arithmetic(operator.le), "And": _map(torch.logical_and),
    "Or": _map(torch.logical_or), "Not": _map(torch.logical_not),
    "Cast": lambda inputs, attributes: tensor(inputs[0]).to(DTYPES[attributes["to"]]),
    "Identity": lambda inputs, attributes: inputs[0],
    "Dropout": lambda inputs, attributes: inputs[0],
    "DepthToSpace": lambda inputs, attributes: _depth_to_space(inputs[0], attributes),
}  # fmt: skip


def _depth_to_space(x: Tensor, attributes: Attributes) -> Tensor:
    if attributes.get("mode", "DCR") != "CRD":
        raise Unsupported("DepthToSpace of mode DCR")
    return F.pixel_shuffle(x, attributes["blocksize"])

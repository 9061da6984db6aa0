"""What the operators of ONNX compute, each in terms of torch: its inputs, its attributes -> its outputs.

As of operator set 18; older files are raised to it. Sizes and indices that a graph computes (Shape, Gather,
Concat, ...) are numpy arrays and never get here: only what depends on an input or on a weight does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from intertwine.errors import Unsupported
from intertwine.zoo.onnx_lookup import LOOKUPS
from intertwine.zoo.onnx_values import (
    DTYPES,
    Attributes,
    Operator,
    arithmetic,
    integers,
    item,
    mapped,
    tensor,
)


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
    x, weight, bias = tensor(inputs[0]), tensor(inputs[1]), item(inputs, 2)
    n = weight.dim() - 2
    x, padding = _padded(x, *_pads(x, weight.shape[2:], attributes), 0.0)
    convolve = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    strides, dilations = attributes.get("strides", [1] * n), attributes.get("dilations", [1] * n)
    return convolve(x, weight, bias, strides, padding, dilations, attributes.get("group", 1))


def _conv_transpose(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, weight, bias = tensor(inputs[0]), tensor(inputs[1]), item(inputs, 2)
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
    a, b, c = tensor(inputs[0]), tensor(inputs[1]), item(inputs, 2)
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
    return F.layer_norm(x, shape, item(inputs, 1), item(inputs, 2), attributes.get("epsilon", 1e-5))


def _group_norm(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, gain, shift = inputs
    return F.group_norm(x, attributes["num_groups"], gain, shift, attributes.get("epsilon", 1e-5))


def _instance_norm(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, gain, shift = inputs
    return F.instance_norm(x, None, None, gain, shift, eps=attributes.get("epsilon", 1e-5))


def _reduced(function: Callable[..., Tensor]) -> Operator:
    def run(inputs: list[Any], attributes: Attributes) -> Tensor:
        x, axes = tensor(inputs[0]), item(inputs, 1)
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
    x, axes = tensor(inputs[0]), item(inputs, 1)
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
    x, axis, sizes = tensor(inputs[0]), attributes.get("axis", 0), item(inputs, 1)
    each = integers(sizes) if sizes is not None else math.ceil(x.shape[axis] / attributes["num_outputs"])
    parts: tuple[Tensor, ...] = torch.split(x, each, axis)
    return parts


def _slice(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, starts, ends = tensor(inputs[0]), integers(inputs[1]), integers(inputs[2])
    axes = integers(item(inputs, 3, range(len(starts))))
    steps = integers(item(inputs, 4, [1] * len(starts)))
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step < 0:
            places = list(range(*slice(start, end, step).indices(x.shape[axis])))
            x = x.index_select(axis, torch.tensor(places, dtype=torch.long, device=x.device))
        else:
            x = x[(slice(None),) * (axis % x.dim()) + (slice(start, end, step),)]
    return x


def _pad(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, pads, mode = tensor(inputs[0]), integers(inputs[1]), attributes.get("mode", "constant")
    axes = integers(item(inputs, 3, range(x.dim())))
    before, after = [0] * x.dim(), [0] * x.dim()
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    how = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}[mode]
    if how == "constant":
        return F.pad(x, _torch_pads(before, after), value=float(item(inputs, 2, 0.0)))
    if any(before[:2]) or any(after[:2]):
        raise Unsupported(f"Pad with mode {mode} of batch or channels")
    return F.pad(x, _torch_pads(before[2:], after[2:]), mode=how)


def _expand(inputs: list[Any], attributes: Attributes) -> Tensor:
    x = tensor(inputs[0])
    return x.expand(torch.broadcast_shapes(x.shape, integers(inputs[1])))


def _clip(inputs: list[Any], attributes: Attributes) -> Tensor:
    low, high = (None if each is None else float(each) for each in (item(inputs, 1), item(inputs, 2)))
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
    x, scales, sizes = tensor(inputs[0]), item(inputs, 2), item(inputs, 3)
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


def _depth_to_space(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, size = tensor(inputs[0]), attributes["blocksize"]
    if attributes.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, size)
    b, _, h, w = x.shape
    blocks = x.reshape(b, size, size, -1, h, w).permute(0, 3, 4, 1, 5, 2)
    return blocks.reshape(b, -1, h * size, w * size)


def _space_to_depth(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, size = tensor(inputs[0]), attributes["blocksize"]
    b, c, h, w = x.shape
    blocks = x.reshape(b, c, h // size, size, w // size, size).permute(0, 3, 5, 1, 2, 4)
    return blocks.reshape(b, -1, h // size, w // size)


def _grid_sample(inputs: list[Any], attributes: Attributes) -> Tensor:
    names = {"linear": "bilinear", "cubic": "bicubic"}
    how = str(attributes.get("mode", "linear"))
    corners = bool(attributes.get("align_corners", 0))
    return F.grid_sample(
        inputs[0], inputs[1], names.get(how, how), attributes.get("padding_mode", "zeros"), corners
    )


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
    "Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": mapped(torch.matmul),
    "MaxPool": _max_pool, "AveragePool": _average_pool,
    "GlobalAveragePool": _global(torch.mean), "GlobalMaxPool": _global(torch.amax),
    "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm,
    "GroupNormalization": _group_norm, "InstanceNormalization": _instance_norm,
    "Add": arithmetic(operator.add), "Sub": arithmetic(operator.sub), "Mul": arithmetic(operator.mul),
    "Div": arithmetic(operator.truediv), "Pow": arithmetic(operator.pow),
    "Sum": _joined(torch.add), "Min": _joined(torch.minimum), "Max": _joined(torch.maximum),
    "Mod": lambda inputs, attributes: (torch.fmod if attributes.get("fmod", 0) else torch.remainder)(
        tensor(inputs[0]), tensor(inputs[1])
    ),
    "Ceil": mapped(torch.ceil), "Round": mapped(torch.round), "Tan": mapped(torch.tan),
    "Asin": mapped(torch.asin), "Acos": mapped(torch.acos), "Atan": mapped(torch.atan),
    "Sinh": mapped(torch.sinh), "Cosh": mapped(torch.cosh), "Asinh": mapped(torch.asinh),
    "Acosh": mapped(torch.acosh), "Atanh": mapped(torch.atanh),
    "IsNaN": mapped(torch.isnan), "Xor": mapped(torch.logical_xor),
    "Neg": mapped(torch.neg), "Abs": mapped(torch.abs), "Sqrt": mapped(torch.sqrt), "Exp": mapped(torch.exp),
    "Log": mapped(torch.log), "Erf": mapped(torch.erf), "Sin": mapped(torch.sin), "Cos": mapped(torch.cos),
    "Floor": mapped(torch.floor), "Sign": mapped(torch.sign), "Reciprocal": mapped(torch.reciprocal),
    "Relu": mapped(F.relu), "Sigmoid": mapped(torch.sigmoid), "Tanh": mapped(torch.tanh),
    "Mish": mapped(F.mish),
    "HardSwish": mapped(F.hardswish), "HardSigmoid": _hard_sigmoid, "Softplus": mapped(F.softplus),
    "Softsign": mapped(F.softsign), "PRelu": _prelu, "Clip": _clip,
    "LeakyRelu": _with_attributes(F.leaky_relu, negative_slope=("alpha", 0.01)),
    "Elu": _with_attributes(F.elu, alpha=("alpha", 1.0)),
    "Celu": _with_attributes(F.celu, alpha=("alpha", 1.0)),
    "Selu": mapped(F.selu), "Gelu": _with_attributes(F.gelu, approximate=("approximate", "none")),
    "Softmax": _with_attributes(torch.softmax, dim=("axis", -1)),
    "LogSoftmax": _with_attributes(torch.log_softmax, dim=("axis", -1)),
    "ReduceMean": _reduced(torch.mean), "ReduceSum": _reduced(torch.sum), "ReduceMax": _reduced(torch.amax),
    "ReduceMin": _reduced(torch.amin), "ReduceL2": _reduced(lambda x, d, k: x.pow(2).sum(d, k).sqrt()),
    "ReduceL1": _reduced(lambda x, d, k: x.abs().sum(d, k)), "ReduceLogSumExp": _reduced(torch.logsumexp),
    "ReduceSumSquare": _reduced(lambda x, d, k: x.pow(2).sum(d, k)),
    "Reshape": _reshape, "Flatten": _flatten, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Transpose": _transpose, "Split": _split, "Slice": _slice, "Pad": _pad,
    "Expand": _expand, "Resize": _resize,
    "Concat": lambda inputs, attributes: torch.cat([tensor(each) for each in inputs], attributes["axis"]),
    "Tile": lambda inputs, attributes: tensor(inputs[0]).repeat(integers(inputs[1])),
    "Trilu": lambda inputs, attributes: (torch.triu if attributes.get("upper", 1) else torch.tril)(
        tensor(inputs[0]), (integers(item(inputs, 1, 0)))[0]
    ),
    "Einsum": lambda inputs, attributes: torch.einsum(attributes["equation"], *map(tensor, inputs)),
    "Where": arithmetic(torch.where), "Equal": arithmetic(operator.eq), "Greater": arithmetic(operator.gt),
    "Less": arithmetic(operator.lt), "GreaterOrEqual": arithmetic(operator.ge),
    "LessOrEqual": arithmetic(operator.le), "And": mapped(torch.logical_and),
    "Or": mapped(torch.logical_or), "Not": mapped(torch.logical_not),
    "Cast": lambda inputs, attributes: tensor(inputs[0]).to(DTYPES[attributes["to"]]),
    "Identity": lambda inputs, attributes: inputs[0],
    "Dropout": lambda inputs, attributes: inputs[0],
    "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth, "GridSample": _grid_sample,
    "LpNormalization": _with_attributes(F.normalize, p=("p", 2), dim=("axis", -1)),
    **LOOKUPS,
}  # fmt: skip

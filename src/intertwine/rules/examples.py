"""An example for every rule: a function of hidden channels that uses the op, set between two linear maps.

    y = W2 f(W1 x + b1; p) + b2

`f` calls the op itself, p are parameters that it takes besides. Sizes differ on purpose (batch 2, tokens 3,
inputs 5, channels 8, outputs 7, pixels 4 x 6), so that no axis is taken for another one unnoticed. The oracle
test exports each example, finds the op in its graph, and acts with the symmetry that the rule claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F

aten = torch.ops.aten

INPUTS, CHANNELS, OUTPUTS = 5, 8, 7
TOKENS, IMAGE = (3,), (4, 6)


@dataclass(frozen=True)
class RuleExample:
    """One use of an op.

    body: f(h, *p). pixels: shape of the other dimensions; channels come last for tokens and first (after the
    batch) for images. out: channels that f returns. params: shapes of p.
    """

    op: str
    body: Callable[..., Tensor]
    pixels: tuple[int, ...] = TOKENS
    channels_last: bool = True
    out: int = CHANNELS
    params: tuple[tuple[int, ...], ...] = ()

    def model(self, seed: int = 0) -> Sandwich:
        """The example between two linear maps, with random weights."""
        return Sandwich(self, seed)

    def inputs(self, seed: int = 1) -> Tensor:
        """A random input of the model."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(2, *self.pixels, INPUTS, generator=generator, dtype=torch.float64)


class Sandwich(nn.Module):
    """y = W2 f(W1 x + b1; p) + b2, in float64."""

    def __init__(self, example: RuleExample, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def weight(*shape: int) -> nn.Parameter:
            value = torch.randn(shape, generator=generator, dtype=torch.float64)
            return nn.Parameter(value, requires_grad=False)

        self.example = example
        self.inner, self.inner_bias = weight(CHANNELS, INPUTS), weight(CHANNELS)
        self.outer, self.outer_bias = weight(OUTPUTS, example.out), weight(OUTPUTS)
        self.extra = nn.ParameterList([weight(*shape) for shape in example.params])

    def forward(self, x: Tensor) -> Tensor:
        """The output on an input whose channels are the last dimension."""
        hidden = F.linear(x, self.inner, self.inner_bias)
        if not self.example.channels_last:
            hidden = hidden.movedim(-1, 1)
        hidden = self.example.body(hidden, *self.extra)
        if not self.example.channels_last:
            hidden = hidden.movedim(1, -1)
        return F.linear(hidden, self.outer, self.outer_bias)


EXAMPLES: dict[str, RuleExample] = {}

# torch.export (2.13) rewrites these into other ops, or leaves out what only asserts something; no graph holds
# them, their examples test what they become
REWRITTEN = frozenset(
    """
    batch_norm.default upsample_bilinear2d.default upsample_bicubic2d.default reshape.default unflatten.int
    flatten.using_ints swapaxes.default numpy_T.default mT.default movedim.int movedim.intlist narrow.default
    broadcast_to.default expand_as.default split.sizes chunk.default tensor_split.sections hardshrink.default
    softshrink.default contiguous.default lift_fresh_copy.default real.default conj.default positive.default
    resolve_conj.default resolve_neg.default to.dtype to.dtype_layout to.device to.other to.prim_Device
    dropout.default dropout_.default feature_dropout.default alpha_dropout.default detach_.default
    feature_alpha_dropout.default _assert_tensor_metadata.default
    """.split()
)


def example(op: str, body: Callable[..., Tensor], **kwargs: Any) -> None:
    """Add an example; a second one for the same op raises."""
    if op in EXAMPLES:
        raise ValueError(f"two examples for {op}")
    EXAMPLES[op] = RuleExample(op, body, **kwargs)


def overload(op: str) -> Callable[..., Any]:
    """The ATen function of a rule's key: `overload("linear.default")`."""
    name, kind = op.split(".")
    result: Callable[..., Any] = getattr(getattr(aten, name), kind)
    return result


def examples(
    ops: Iterable[str], make: Callable[[Callable[..., Any]], Callable[..., Tensor]], **kwargs: Any
) -> None:
    """The same example for several ops: `make(function)` is the body."""
    for op in ops:
        example(op, make(overload(op)), **kwargs)


image = {"pixels": IMAGE, "channels_last": False}
line = {"pixels": (6,), "channels_last": False}
volume = {"pixels": (3, 4, 6), "channels_last": False}

# -- contractions ------------------------------------------------------------------------------------------

example("linear.default", lambda h, w, b: aten.linear.default(h, w, b), params=((9, 8), (9,)), out=9)
example("matmul.default", lambda h, w: aten.matmul.default(h, w), params=((8, 9),), out=9)
example("bmm.default", lambda h, w: aten.bmm.default(h, w), params=((2, 8, 9),), out=9)
example("mm.default", lambda h, w: aten.mm.default(h.reshape(6, 8), w).view(2, 3, 9), params=((8, 9),), out=9)
example("mv.default", lambda h, w: h * aten.mv.default(h[0], w)[:, None], params=((8,),))
example("vdot.default", lambda h, w: h * aten.vdot.default(h[0, 0], w), params=((8,),))
example("inner.default", lambda h, w: aten.inner.default(h, w), params=((9, 8),), out=9)
example("outer.default", lambda h, w: h + aten.outer.default(h[0, 0], w).sum(1), params=((9,),))
example("ger.default", lambda h, w: h @ aten.ger.default(h[0, 0], w), params=((9,),), out=9)
example("addr.default", lambda h, m, w: h @ aten.addr.default(m, h[0, 0], w), params=((8, 9), (9,)), out=9)
example("addmv.default", lambda h, b, m: h * aten.addmv.default(b, m, h[0, 0]), params=((8,), (8, 8)))
example(
    "linalg_multi_dot.default",
    lambda h, a, b: aten.linalg_multi_dot.default([h[0], a, b])[None],
    params=((8, 4), (4, 9)),
    out=9,
)
example(
    "chain_matmul.default",
    lambda h, a, b: h @ aten.chain_matmul.default([a, b]),
    params=((8, 4), (4, 9)),
    out=9,
)
example("linalg_vecdot.default", lambda h, w: h * aten.linalg_vecdot.default(h, w)[..., None], params=((8,),))
example("nonzero.default", lambda h: h.index_select(0, aten.nonzero.default(h[:, 0, 0] > -99)[:, 0]))
example("dot.default", lambda h, w: h * aten.dot.default(h[0, 0], w), params=((8,),))
example(
    "addmm.default",
    lambda h, b, w: aten.addmm.default(b, h.reshape(6, 8), w).view(2, 3, 9),
    params=((9,), (8, 9)),
    out=9,
)
example(
    "baddbmm.default", lambda h, b, w: aten.baddbmm.default(b, h, w), params=((2, 1, 9), (2, 8, 9)), out=9
)
example(
    "einsum.default",
    lambda h, w: aten.einsum.default("...c,dc->...d", [h, w]),
    params=((9, 8),),
    out=9,
)
example(
    "scaled_dot_product_attention.default",
    lambda h, k, v: aten.scaled_dot_product_attention.default(h, h @ k, h @ v),
    params=((8, 8), (8, 9)),
    out=9,
)

# -- convolutions and pooling ------------------------------------------------------------------------------


def add_spatial_examples(d: int, places: dict[str, Any]) -> None:
    """Convolutions, pooling and resampling over d dimensions of pixels."""
    up = {**places, "params": ((8, 9, *[3] * d), (9,)), "out": 9}
    down = {**places, "params": ((9, 8, *[3] * d), (9,)), "out": 9}
    grouped = {**places, "params": ((12, 2, *[3] * d), (12,)), "out": 12}
    transposed = "conv_transpose1d.default" if d == 1 else f"conv_transpose{d}d.input"
    examples([f"conv{d}d.default"], lambda f: lambda h, w, b: f(h, w, b, groups=4), **grouped)
    examples([f"conv{d}d.padding"], lambda f: lambda h, w, b: f(h, w, b, padding="same"), **down)
    examples([transposed], lambda f: lambda h, w, b: f(h, w, b), **up)
    pools = [f"max_pool{d}d.default", f"avg_pool{d}d.default", f"adaptive_avg_pool{d}d.default"]
    examples(pools, lambda f: lambda h: f(h, [2] * d), **places)
    examples([f"adaptive_max_pool{d}d.default"], lambda f: lambda h: f(h, [2] * d)[0], **places)
    pads = [f"reflection_pad{d}d.default", f"replication_pad{d}d.default"]
    examples(pads, lambda f: lambda h: f(h, [1] * (2 * d)), **places)
    examples([f"upsample_nearest{d}d.default"], lambda f: lambda h: f(h, [9] * d), **places)
    examples([f"upsample_nearest{d}d.vec"], lambda f: lambda h: f(h, None, [2.0] * d), **places)


add_spatial_examples(1, line)
add_spatial_examples(2, image)
add_spatial_examples(3, volume)

example(
    "convolution.default",
    lambda h, w, b: aten.convolution.default(h, w, b, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    params=((9, 8, 3, 3), (9,)),
    out=9,
    **image,
)
examples(["max_pool2d_with_indices.default"], lambda f: lambda h: f(h, [2, 2])[0], **image)
examples(["max_pool3d_with_indices.default"], lambda f: lambda h: f(h, [2, 2, 2])[0], **volume)
examples(["_adaptive_avg_pool2d.default"], lambda f: lambda h: f(h, [2, 3]), **image)
examples(
    [f"{op}2d.default" for op in ("upsample_bilinear", "upsample_bicubic")],
    lambda f: lambda h: f(h, [9, 10], False),
    **image,
)
examples(
    [f"{op}.vec" for op in ("upsample_bilinear2d", "upsample_bicubic2d")],
    lambda f: lambda h: f(h, None, False, [2.0, 2.0]),
    **image,
)
examples(
    ["_upsample_bilinear2d_aa.default", "_upsample_bicubic2d_aa.default"],
    lambda f: lambda h: f(h, [3, 4], False),
    **image,
)
examples(
    ["_upsample_bilinear2d_aa.vec", "_upsample_bicubic2d_aa.vec"],
    lambda f: lambda h: f(h, [3, 4], False, None),
    **image,
)
examples(["_upsample_nearest_exact2d.default"], lambda f: lambda h: f(h, [9, 10]), **image)
examples(["_upsample_nearest_exact2d.vec"], lambda f: lambda h: f(h, None, [2.0, 2.0]), **image)
examples(["upsample_linear1d.default"], lambda f: lambda h: f(h, [9], False), **line)
examples(["upsample_linear1d.vec"], lambda f: lambda h: f(h, None, False, [2.0]), **line)
examples(["upsample_trilinear3d.default"], lambda f: lambda h: f(h, [5, 6, 7], False), **volume)
examples(["upsample_trilinear3d.vec"], lambda f: lambda h: f(h, None, False, [2.0] * 3), **volume)
example("im2col.default", lambda h: aten.im2col.default(h, [2, 3], [1, 1], [0, 0], [1, 1]), out=48, **image)
example("pixel_shuffle.default", lambda h: aten.pixel_shuffle.default(h, 2), out=2, **image)
example("pixel_unshuffle.default", lambda h: aten.pixel_unshuffle.default(h, 2), out=32, **image)
example("channel_shuffle.default", lambda h: aten.channel_shuffle.default(h, 2), **image)

# -- norms -------------------------------------------------------------------------------------------------

_vectors = {"params": ((8,),) * 4}
example(
    "_native_batch_norm_legit_no_training.default",
    lambda h, g, s, m, v: aten.batch_norm.default(h, g, s, m, v.abs(), False, 0.1, 1e-5, False),
    **{**image, **_vectors},
)
example(
    "batch_norm.default",
    lambda h, g, s, m, v: aten.batch_norm.default(h, g, s, m, v.abs(), False, 0.1, 1e-5, False),
    **{**image, **_vectors},
)
example(
    "_native_batch_norm_legit.no_stats",
    lambda h, g, s: aten._native_batch_norm_legit.no_stats(h, g, s, True, 0.1, 1e-5)[0],
    params=((8,), (8,)),
    **image,
)
example(
    "_native_batch_norm_legit_functional.default",
    lambda h, g, s, m, v: aten._native_batch_norm_legit_functional.default(h, g, s, m, v, True, 0.1, 1e-5)[0],
    **{**image, **_vectors},
)
example("layer_norm.default", lambda h, g, s: aten.layer_norm.default(h, [8], g, s), params=((8,), (8,)))
example("rms_norm.default", lambda h, g: aten.rms_norm.default(h, [8], g), params=((8,),))
example(
    "_fused_rms_norm.default", lambda h, g: aten._fused_rms_norm.default(h, [8], g, 1e-6)[0], params=((8,),)
)
example(
    "group_norm.default", lambda h, g, s: aten.group_norm.default(h, 4, g, s), params=((8,), (8,)), **image
)
example(
    "instance_norm.default",
    lambda h, g, s: aten.instance_norm.default(h, g, s, None, None, True, 0.1, 1e-5, False),
    params=((8,), (8,)),
    **image,
)
example(
    "_weight_norm.default",
    lambda h, v, g: F.linear(h, aten._weight_norm.default(v, g, 0)).relu(),
    params=((9, 8), (9, 1)),
    out=9,
)
examples(["softmax.int", "log_softmax.int"], lambda f: lambda h: f(h, -1))
examples(["_softmax.default", "_log_softmax.default"], lambda f: lambda h: f(h, -1, False))

# -- shapes ------------------------------------------------------------------------------------------------

examples(
    ["view.default", "reshape.default", "_unsafe_view.default", "view_copy.default", "_reshape_copy.default"],
    lambda f: lambda h: f(torch.relu(h), [2, 24]),
    out=24,
)
example("flatten.using_ints", lambda h: aten.flatten.using_ints(torch.relu(h), 1), out=24)
example("unflatten.int", lambda h: aten.unflatten.int(torch.relu(h), 2, [4, 2]), out=2)
example("view.dtype", lambda h, p: h.relu() * aten.view.dtype(p, torch.int64).sign(), params=((3, 1),))
example("complex.default", lambda h, p: aten.complex.default(h, h * p).abs(), params=((8,),))
example("view_as_complex.default", lambda h: aten.view_as_complex.default(h.reshape(2, 3, 4, 2)).abs(), out=4)
example(
    "view_as_real.default",
    lambda h, p: h.relu() * aten.view_as_real.default(torch.view_as_complex(p)).sum(-1, keepdim=True),
    params=((3, 2),),
)
example("permute.default", lambda h: aten.permute.default(torch.relu(h), [2, 0, 1]).permute(1, 2, 0))
examples(["transpose.int", "swapaxes.default"], lambda f: lambda h: f(torch.relu(h), 1, 2).permute(0, 2, 1))
examples(
    ["t.default", "numpy_T.default"], lambda f: lambda h, w: torch.relu(h) @ f(w), params=((9, 8),), out=9
)
example("mT.default", lambda h: aten.mT.default(torch.relu(h)).permute(0, 2, 1))
example("movedim.int", lambda h: aten.movedim.int(torch.relu(h), 2, 0).permute(1, 2, 0))
example("movedim.intlist", lambda h: aten.movedim.intlist(torch.relu(h), [2, 0], [0, 2]).permute(2, 1, 0))
example("unsqueeze.default", lambda h: aten.unsqueeze.default(torch.relu(h), 1)[:, 0])
example("squeeze.dim", lambda h: aten.squeeze.dim(torch.relu(h)[:, :1], 1))
example("squeeze.dims", lambda h: aten.squeeze.dims(torch.relu(h)[:, :1], [1]))
example("squeeze.default", lambda h: aten.squeeze.default(torch.relu(h)[:, :1]))
example("expand.default", lambda h: torch.relu(h) * aten.expand.default(h[:1, :1].abs(), [2, 3, 8]))
example(
    "broadcast_tensors.default",
    lambda h: torch.relu(h) * aten.broadcast_tensors.default([h[:1, :1].abs(), h.detach()])[0],
)
example(
    "broadcast_to.default", lambda h: torch.relu(h) * aten.broadcast_to.default(h[:1, :1].abs(), [2, 3, 8])
)
example("expand_as.default", lambda h: torch.relu(h) * aten.expand_as.default(h[:1, :1].abs(), h))
examples(["repeat.default", "tile.default"], lambda f: lambda h: f(torch.relu(h), [1, 1, 2]), out=16)
example("repeat_interleave.self_int", lambda h: aten.repeat_interleave.self_int(torch.relu(h), 3, 2), out=24)
example("slice.Tensor", lambda h: torch.relu(aten.slice.Tensor(h, 2, 1, 6)), out=5)
example("narrow.default", lambda h: torch.relu(aten.narrow.default(h, 2, 1, 5)), out=5)
example("select.int", lambda h: torch.relu(aten.select.int(h, 1, 2)))
example("unbind.int", lambda h: torch.relu(aten.unbind.int(h, 1)[2]))
examples(
    ["split.Tensor", "split.sizes"],
    lambda f: lambda h: f(h, 3 if "Tensor" in str(f) else [3, 3, 2], 2)[1].relu(),
    out=3,
)
example("split_with_sizes.default", lambda h: aten.split_with_sizes.default(h, [5, 3], 2)[1].relu(), out=3)
example("chunk.default", lambda h: aten.chunk.default(h, 3, 2)[0].relu(), out=3)
example("tensor_split.sections", lambda h: aten.tensor_split.sections(h, 3, 2)[0].relu(), out=3)
example("flip.default", lambda h: torch.relu(h + aten.flip.default(h, [2])))
example("roll.default", lambda h: torch.relu(h + aten.roll.default(h, [4], [2])))
examples(
    ["cat.default"],
    lambda f: lambda h, p: f([torch.relu(h), torch.tanh(h @ p)], 2),
    params=((8, 4),),
    out=12,
)
example("stack.default", lambda h: aten.stack.default([torch.relu(h), torch.tanh(h)], 2).flatten(1, 2))
example("pad.default", lambda h: aten.pad.default(torch.relu(h), [1, 2], "constant", 0.5), out=11)
example("constant_pad_nd.default", lambda h: aten.constant_pad_nd.default(torch.relu(h), [1, 2], 0.0), out=11)
examples(["zeros_like.default", "zero.default"], lambda f: lambda h: torch.relu(h) + f(h))
example(
    "zeros.default", lambda h: torch.cat([h, aten.zeros.default([2, 3, 1], dtype=h.dtype)], 2).relu(), out=9
)
example("new_zeros.default", lambda h: torch.relu(h) + aten.new_zeros.default(h, [3, 1]))
examples(["ones_like.default"], lambda f: lambda h: torch.relu(h) * f(h))
examples(["ones.default"], lambda f: lambda h: torch.relu(h) + f([8], dtype=h.dtype))
examples(["new_ones.default"], lambda f: lambda h: torch.relu(h) + f(h, [8]))
examples(["full_like.default", "fill.Scalar"], lambda f: lambda h: torch.relu(h) + f(h, 0.5))
example("full.default", lambda h: torch.relu(h) * aten.full.default([3, 1], 0.5, dtype=h.dtype))
example("new_empty.default", lambda h: torch.relu(h) + aten.fill.Scalar(aten.new_empty.default(h, [8]), 0.5))
example("empty_like.default", lambda h: torch.relu(h) + aten.fill.Scalar(aten.empty_like.default(h), 0.5))
example("empty.memory_format", lambda h: torch.relu(h) + torch.empty(8, dtype=h.dtype).fill_(0.5))
example("new_full.default", lambda h: torch.relu(h) + aten.new_full.default(h, [8], 0.5))
example("scalar_tensor.default", lambda h: torch.relu(h) * aten.scalar_tensor.default(0.5, dtype=h.dtype))
example("fill.Tensor", lambda h, p: torch.relu(h) + aten.fill.Tensor(h, p), params=((),))
example("copy.default", lambda h: torch.relu(aten.copy.default(torch.zeros_like(h), h)))
example(
    "embedding.default",
    lambda h, p: h + aten.embedding.default(p, torch.tensor([[3, 1, 4], [1, 5, 9]])),
    params=((10, 8),),
)
ORDER = [2, 0, 5, 1, 7, 3, 4, 6]
example("index.Tensor", lambda h: torch.relu(h)[..., ORDER])
example("_unsafe_index.Tensor", lambda h: aten._unsafe_index.Tensor(h.relu(), [None, torch.tensor([2, 0])]))
example("index_select.default", lambda h: aten.index_select.default(h.relu(), -1, torch.tensor(ORDER)))
example("unfold.default", lambda h: aten.unfold.default(torch.relu(h), 1, 2, 1).permute(0, 1, 3, 2))
examples(
    ["tril.default", "triu.default"],
    lambda f: lambda h, p: f(h @ p) @ torch.relu(h),
    params=((8, 3),),
)
example(
    "slice_scatter.default", lambda h: torch.relu(aten.slice_scatter.default(h, h[:, :, :3].abs(), 2, 2, 5))
)
example("select_scatter.default", lambda h: torch.relu(aten.select_scatter.default(h, h[:, 0].abs(), 1, 2)))

# -- elementwise -------------------------------------------------------------------------------------------

# Functions with a bounded domain see a channel that was brought into it.
_POSITIVE = "log log2 log10 sqrt rsqrt log1p".split()
_UNIT = "asin acos atanh logit".split()
_FLAGS = "isnan isinf isfinite".split()
_ARGUMENTS = {"threshold": (0.1, 0.2), "clamp": (-0.5, 0.7), "clamp_min": (0.1,), "clamp_max": (0.7,)}


def unary_body(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """The body of a function of one operand, kept inside its domain."""
    args = _ARGUMENTS.get(name, ())
    if name in _POSITIVE:
        return lambda h: function(h.abs(), *args)
    if name in _UNIT:
        return lambda h: function(torch.sigmoid(h), *args)
    if name == "acosh":
        return lambda h: function(1.5 + h.abs())
    if name in _FLAGS:
        return lambda h: torch.relu(h) + function(h)
    if name in ("logical_not", "bitwise_not"):
        return lambda h: torch.relu(h) * function(h > 0.3)
    return lambda h: function(h, *args)


def _asserted(h: Tensor) -> Tensor:
    torch._assert_async((h >= 0).all(), "relu is not negative")
    return h


def add_unary_examples(names: Iterable[str]) -> None:
    """One example for every elementwise function of one operand that has a rule."""
    for name in names:
        example(f"{name}.default", unary_body(name, overload(f"{name}.default")))


add_unary_examples(
    """
    relu relu6 leaky_relu elu celu selu gelu silu mish sigmoid hardsigmoid hardswish hardtanh tanh softplus
    log_sigmoid threshold hardshrink softshrink rrelu abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt
    square reciprocal sign sgn sin cos tan asin acos atan sinh cosh asinh acosh atanh erf erfc floor ceil
    round trunc frac clamp clamp_min clamp_max nan_to_num logit isnan isinf isfinite logical_not bitwise_not
    """.split()
)

examples(
    """
    alias.default clone.default contiguous.default detach.default lift_fresh_copy.default real.default
    conj.default resolve_conj.default resolve_neg.default positive.default
    """.split(),
    lambda f: lambda h: torch.relu(f(h)),
)
example("detach_.default", lambda h: aten.detach_.default(torch.relu(h)))
example("_assert_tensor_metadata.default", lambda h: torch.relu(h.to(torch.float32)).double())
example("_assert_async.msg", lambda h: _asserted(torch.relu(h)))
example("to.dtype", lambda h: torch.relu(aten.to.dtype(h, torch.float32)).double())
example("to.dtype_layout", lambda h: torch.relu(aten.to.dtype_layout(h, dtype=torch.float32)).double())
example("to.device", lambda h: torch.relu(aten.to.device(h, torch.device("cpu"), torch.float32)).double())
example("to.other", lambda h, p: torch.relu(aten.to.other(h, p)), params=((8,),))
example(
    "to.prim_Device",
    lambda h: torch.relu(aten.to.prim_Device(h, torch.device("cpu"), torch.float32)).double(),
)
example("_to_copy.default", lambda h: torch.relu(aten._to_copy.default(h, dtype=torch.float32)).double())
example("type_as.default", lambda h, p: torch.relu(aten.type_as.default(h, p)), params=((8,),))
examples(
    [
        f"{kind}.default"
        for kind in "dropout dropout_ feature_dropout alpha_dropout feature_alpha_dropout".split()
    ],
    lambda f: lambda h: torch.relu(f(h, 0.5, False)),
)
example("native_dropout.default", lambda h: torch.relu(aten.native_dropout.default(h, 0.5, False)[0]))
example("prelu.default", lambda h, w: aten.prelu.default(h, w), params=((8,),), **image)
example(
    "_prelu_kernel.default",
    lambda h, w: aten._prelu_kernel.default(h, w.view(8, 1, 1)),
    params=((8,),),
    **image,
)
examples(
    ["add.Tensor", "sub.Tensor", "rsub.Tensor"], lambda f: lambda h, p: torch.relu(f(h, p)), params=((8,),)
)
examples(["add.Scalar", "sub.Scalar", "rsub.Scalar"], lambda f: lambda h: torch.relu(f(h, 0.3)))
example("mul.Tensor", lambda h, p: torch.relu(aten.mul.Tensor(h, p)), params=((8,),))
example("mul.Scalar", lambda h: torch.relu(aten.mul.Scalar(h, 0.3)))
examples(["div.Tensor", "true_divide.Tensor"], lambda f: lambda h, p: torch.relu(f(h, p)), params=((8,),))
example("div.Scalar", lambda h: torch.relu(aten.div.Scalar(h, 0.3)))
example("pow.Tensor_Scalar", lambda h: aten.pow.Tensor_Scalar(h, 3))
examples(
    ["maximum.default", "minimum.default", "fmax.default", "fmin.default", "max.other", "min.other"],
    lambda f: lambda h, p: f(h, p),
    params=((8,),),
)
example("where.self", lambda h, p: aten.where.self(h > 0, h, p), params=((8,),))
example("where.ScalarOther", lambda h: aten.where.ScalarOther(h > 0, h, 0.2))
example("where.ScalarSelf", lambda h: aten.where.ScalarSelf(h > 0, 0.2, h))
example("where.Scalar", lambda h: h * aten.where.Scalar(h > 0, 1.0, 0.2))
example(
    "masked_fill.Scalar",
    lambda h: torch.relu(aten.masked_fill.Scalar(h, torch.tensor([[True], [False], [True]]), 0.0)),
)
example("masked_fill.Tensor", lambda h, p: aten.masked_fill.Tensor(h, h < 0.1, p), params=((),))
_compare = ("eq", "ne", "lt", "le", "gt", "ge")
examples([f"{c}.Tensor" for c in _compare], lambda f: lambda h, p: h.relu() + f(h, p), params=((8,),))
examples([f"{c}.Scalar" for c in _compare], lambda f: lambda h: h.relu() + f(h, 0.2))
_logical = [f"logical_{c}.default" for c in ("and", "or", "xor")] + [
    f"bitwise_{c}.Tensor" for c in ("and", "or", "xor")
]
examples(
    _logical + [f"__{c}__.Tensor" for c in ("and", "or", "xor")],
    lambda f: lambda h, p: h * f(h > 0.1, p > 0),
    params=((8,),),
)
examples(["bitwise_and.Scalar", "bitwise_or.Scalar"], lambda f: lambda h: h * f(h > 0.1, True))
examples(
    """
    atan2.default fmod.Tensor remainder.Tensor floor_divide.default hypot.default clamp_min.Tensor
    clamp_max.Tensor logaddexp.default
    """.split(),
    lambda f: lambda h, p: f(h, p),
    params=((8,),),
)
examples(["fmod.Scalar", "remainder.Scalar"], lambda f: lambda h: f(h, 0.7))
example("pow.Tensor_Tensor", lambda h, p: aten.pow.Tensor_Tensor(h.abs(), p), params=((8,),))
example("pow.Scalar", lambda h: aten.pow.Scalar(1.5, h))
example("div.Tensor_mode", lambda h, p: aten.div.Tensor_mode(h, p, rounding_mode="floor"), params=((8,),))
example("div.Scalar_mode", lambda h: aten.div.Scalar_mode(h, 0.3, rounding_mode="trunc"))
example("xlogy.Tensor", lambda h, p: aten.xlogy.Tensor(h, p.abs()), params=((8,),))
example("clamp.Tensor", lambda h, p: aten.clamp.Tensor(h, p, p + 1), params=((8,),))
example("addcmul.default", lambda h, p, q: aten.addcmul.default(h, p, q).relu(), params=((8,), (8,)))
example("addcdiv.default", lambda h, p, q: aten.addcdiv.default(h, p, q).relu(), params=((8,), (8,)))
example("lerp.Tensor", lambda h, p, q: aten.lerp.Tensor(h, p.expand(2, 3, 8), q).relu(), params=((8,), (8,)))
example("lerp.Scalar", lambda h: aten.lerp.Scalar(h, h.relu(), 0.3))
example("glu.default", lambda h: aten.glu.default(h, -1), out=4)

# -- reductions --------------------------------------------------------------------------------------------

examples(
    ["mean.dim", "sum.dim_IntList", "amax.default", "amin.default", "logsumexp.default"],
    lambda f: lambda h: f(torch.relu(h), [1], True),
)
examples(
    ["mean.default", "sum.default", "max.default", "min.default"],
    lambda f: lambda h: h.relu() * f(h.sigmoid()),
)
examples(["nansum.default"], lambda f: lambda h: f(torch.relu(h), [1], True))
example("nanmean.default", lambda h: aten.nanmean.default(torch.relu(h), [1], True))
example("linalg_vector_norm.default", lambda h: aten.linalg_vector_norm.default(h, 2, [1], True))
example("linalg_norm.default", lambda h: aten.linalg_norm.default(h, None, [1], True))
example("linalg_norm.ord_str", lambda h: h * aten.linalg_norm.ord_str(h, "fro", [1, 2], True))
example("linalg_matrix_norm.default", lambda h: h * aten.linalg_matrix_norm.default(h, 2, [1, 2], True))
example("linalg_matrix_norm.str_ord", lambda h: h * aten.linalg_matrix_norm.str_ord(h, "nuc", [1, 2], True))
example("linalg_svdvals.default", lambda h: h * aten.linalg_svdvals.default(h)[..., :1, None])
example("norm.ScalarOpt_dim", lambda h: aten.norm.ScalarOpt_dim(h, 3, [1], True))
examples(["max.dim", "min.dim", "median.dim"], lambda f: lambda h: f(torch.relu(h), 1, True)[0])
examples(["var.correction", "std.correction"], lambda f: lambda h: f(h, [1], correction=1, keepdim=True))
examples(["var.dim", "std.dim"], lambda f: lambda h: f(h, [1], False, True))
examples(["var.default", "std.default"], lambda f: lambda h: h * f(h))
example("prod.dim_int", lambda h: aten.prod.dim_int(h, 1, True))
example("prod.default", lambda h: h * aten.prod.default(h.sigmoid() + 0.5))
examples(["any.dim", "all.dim"], lambda f: lambda h: h * f(h > 0.1, 1, True))
examples(["any.dims", "all.dims"], lambda f: lambda h: h * f(h > 0.1, [1], True))
examples(["any.default", "all.default"], lambda f: lambda h: h * f(h > -9))
examples(
    ["var_mean.correction", "std_mean.correction"],
    lambda f: lambda h: torch.cat(f(h, [1], correction=1, keepdim=True), 1),
)
examples(["argmax.default", "argmin.default"], lambda f: lambda h: h.relu() * f(h, 1, True))
examples(
    ["cumsum.default", "cumprod.default", "logcumsumexp.default"], lambda f: lambda h: f(torch.relu(h), 1)
)
examples(["cummax.default", "cummin.default"], lambda f: lambda h: f(h, 1)[0])
example("diff.default", lambda h: aten.diff.default(h, 1, 1))

# -- Fourier transforms ------------------------------------------------------------------------------------

examples(["fft_fft.default", "fft_ifft.default", "fft_rfft.default"], lambda f: lambda h: f(h, None, 1).abs())
example("fft_irfft.default", lambda h: aten.fft_irfft.default(aten.fft_rfft.default(h, None, 1), 4, 1))
examples(
    [
        "fft_fft2.default",
        "fft_ifft2.default",
        "fft_rfft2.default",
        "fft_fftn.default",
        "fft_ifftn.default",
        "fft_rfftn.default",
    ],
    lambda f: lambda h: f(h.unsqueeze(2), None, [1, 2]).abs().squeeze(2),
)
example(
    "fft_irfft2.default",
    lambda h: aten.fft_irfft2.default(aten.fft_fft.default(h, None, 1).unsqueeze(1), None, [1, 2]).squeeze(1),
)

# -- picked and put by an index ----------------------------------------------------------------------------


def places(*rows: int) -> Tensor:
    """Places along the tokens, the same in every channel."""
    return torch.tensor(rows).view(1, -1, 1)


example("gather.default", lambda h: aten.gather.default(h, 1, places(2, 0).expand(2, 2, 8)))
examples(
    ["scatter.src", "scatter_add.default"],
    lambda f: lambda h: f(h, 1, places(2, 0).expand(2, 2, 8), h.relu()),
)
example("scatter.value", lambda h: aten.scatter.value(h, 1, places(2).expand(2, 1, 8), 0))
example(
    "scatter.reduce", lambda h: aten.scatter.reduce(h, 1, places(2).expand(2, 1, 8), h.relu(), reduce="add")
)
example(
    "scatter.value_reduce",
    lambda h: aten.scatter.value_reduce(h, 1, places(2).expand(2, 1, 8), 2.0, reduce="multiply"),
)
example(
    "scatter_reduce.two",
    lambda h: aten.scatter_reduce.two(h, 1, places(2, 0).expand(2, 2, 8), h.relu(), "mean"),
)
examples(
    ["index_add.default", "index_copy.default"],
    lambda f: lambda h: f(h, 1, torch.tensor([2, 0]), h[:, :2].relu()),
)
example(
    "masked_scatter.default",
    lambda h: aten.masked_scatter.default(h, torch.tensor([[True], [False], [True]]), h.relu()),
)
example(
    "index_put.default",
    lambda h: aten.index_put.default(h, [torch.tensor([1, 0]), torch.tensor([2, 0])], h[:, 0].relu()),
)
example("take_along_dim.default", lambda h: aten.take_along_dim.default(h, places(2, 0), 1))
example("index_fill.int_Scalar", lambda h: aten.index_fill.int_Scalar(h, 1, torch.tensor([2]), 0))
example("one_hot.default", lambda h: aten.one_hot.default((h > 0).long(), 2)[..., 1] * h.relu())
example("topk.default", lambda h: aten.topk.default(h, 2, 1)[0])
examples(["sort.default"], lambda f: lambda h: f(h, 1)[0])
example("sort.stable", lambda h: aten.sort.stable(h, stable=True, dim=1)[0])
example("argsort.default", lambda h: h.relu() * aten.argsort.default(h, 1))
example("argsort.stable", lambda h: h.relu() * aten.argsort.stable(h, stable=True, dim=1))
examples(
    ["_embedding_bag.default", "_embedding_bag_forward_only.default"],
    lambda f: lambda h, w: h + f(w, torch.tensor([0, 3, 1]), torch.tensor([0, 2]))[0][:, None],
    params=((9, 8),),
)
example(
    "embedding_bag.padding_idx",
    lambda h, w: (
        h
        + aten.embedding_bag.padding_idx(
            w, torch.tensor([0, 3, 1]), torch.tensor([0, 2]), False, 0, False, None, False, None
        )[0][:, None]
    ),
    params=((9, 8),),
)
examples(
    ["linalg_inv.default", "inverse.default", "matrix_exp.default", "linalg_matrix_exp.default"],
    lambda f: lambda h, p: h @ f(p),
    params=((8, 8),),
)
example("linalg_solve.default", lambda h, p: aten.linalg_solve.default(p, h.mT).mT, params=((8, 8),))
example("matrix_power.default", lambda h, p: h @ aten.matrix_power.default(p, 3), params=((8, 8),))
example("trace.default", lambda h, p: h.relu() + aten.trace.default(p), params=((8, 8),))
examples(
    ["linalg_det.default", "det.default"],
    lambda f: lambda h, p: h @ p * f(p),
    params=((8, 8),),
)
examples(["linalg_slogdet.default"], lambda f: lambda h, p: h @ p + f(p)[1], params=((8, 8),))
example("logdet.default", lambda h, p: h @ p + aten.logdet.default(p @ p), params=((8, 8),))
example("eye.default", lambda h, p: h @ (p + aten.eye.default(8, dtype=h.dtype)), params=((8, 8),))
example("eye.m", lambda h, p: h @ (p * aten.eye.m(8, 8, dtype=h.dtype)), params=((8, 8),))
examples(
    ["linalg_cholesky.default"],
    lambda f: lambda h, p: h.relu() + f(p @ p.T + 9 * torch.eye(4)).sum(),
    params=((4, 6),),
)
examples(["linalg_qr.default"], lambda f: lambda h, p: h.relu() + f(p)[1].sum(), params=((4, 6),))
example("diag_embed.default", lambda h, p: (aten.diag_embed.default(h.relu()) @ p)[..., 0], params=((8, 1),))
example("diag.default", lambda h, p: h @ aten.diag.default(p), params=((8,),))
example("diagonal.default", lambda h: aten.diagonal.default(h.relu(), 0, 0, 1).t()[:, None] * h)
example("diagonal_copy.default", lambda h: aten.diagonal_copy.default(h.relu(), 0, 0, 1).t()[:, None] * h)

# -- products and distances --------------------------------------------------------------------------------

example("bilinear.default", lambda h, w: aten.bilinear.default(h, h, w, None), params=((9, 8, 8),), out=9)
example("kron.default", lambda h, p: aten.kron.default(h, p), params=((1, 1, 4),), out=32)
example(
    "cosine_similarity.default",
    lambda h, p: h * aten.cosine_similarity.default(h, p, -1)[..., None],
    params=((8,),),
)
examples(
    ["cdist.default", "_cdist_forward.default"],
    lambda f: lambda h, p: f(h, p.expand(2, 9, 8), 2.0, None),
    params=((9, 8),),
    out=9,
)
example(
    "pairwise_distance.default",
    lambda h, p: h.relu() * aten.pairwise_distance.default(h, p, 2.0, 1e-6, True),
    params=((8,),),
)
example("linalg_cross.default", lambda h, p: aten.linalg_cross.default(h, p, dim=1), params=((1, 3, 8),))
example("tensordot.default", lambda h, p: aten.tensordot.default(h, p, [2], [1]), params=((9, 8),), out=9)
example(
    "col2im.default",
    lambda h: aten.col2im.default(h.flatten(2), [5, 4], [2, 2], [1, 1], [0, 0], [1, 1]).repeat(1, 4, 1, 1),
    pixels=(3, 4),
    channels_last=False,
)
examples(
    ["grid_sampler.default", "grid_sampler_2d.default"],
    lambda f: lambda h: f(h, torch.linspace(-1, 1, 24, dtype=h.dtype).view(2, 2, 3, 2), 0, 0, False),
    **image,
)
example(
    "grid_sampler_3d.default",
    lambda h: aten.grid_sampler_3d.default(
        h, torch.linspace(-1, 1, 72, dtype=h.dtype).view(2, 2, 3, 2, 3), 0, 0, False
    ),
    **volume,
)

# -- recurrent layers --------------------------------------------------------------------------------------


def gates(count: int) -> dict[str, Any]:
    """The weights of a recurrent layer of 6 units with so many gates."""
    wide = 6 * count
    return {"params": ((wide, 8), (wide, 6), (wide,), (wide,)), "out": 6}


def blank(h: Tensor, layers: int = 1) -> Tensor:
    """A state to start from."""
    return h.new_zeros(layers, 2, 6)


example(
    "lstm.input",
    lambda h, *w: aten.lstm.input(h, [blank(h)] * 2, list(w), True, 1, 0.0, False, False, True)[0],
    **gates(4),
)
for op, count in (("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
    examples(
        [f"{op}.input"],
        lambda f: lambda h, *w: f(h, blank(h), list(w), True, 1, 0.0, False, False, True)[0],
        **gates(count),
    )
    examples(
        [f"{op}_cell.default"],
        lambda f: lambda h, *w: f(h[:, 0], blank(h)[0], *w)[:, None],
        **gates(count),
    )
example(
    "lstm_cell.default",
    lambda h, *w: aten.lstm_cell.default(h[:, 0], [blank(h)[0]] * 2, *w)[0][:, None],
    **gates(4),
)

# -- loops -------------------------------------------------------------------------------------------------


def repeated(h: Tensor, p: Tensor) -> Tensor:
    """h <- relu(h p) three times."""
    start = torch.zeros((), dtype=torch.int64)
    out: Tensor = while_loop(lambda k, h: k < 3, lambda k, h: (k + 1, (h @ p).relu()), (start, h.relu()))[1]
    return out


example("while_loop", repeated, params=((8, 8),))

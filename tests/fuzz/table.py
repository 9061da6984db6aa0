"""The op table of random programs, as text. One line, one step; what does not fit the values is not taken.

{a} {b} {c}  values of numbers; {b} and {c} rather of the shape of {a}
{i} {m}      a value of indices, a value of booleans
{d} {e}      dimensions of {a} (seldom the batch); {n} the size of {d}; {at} as many `:, ` as lead to {d}
{f}          a function of one operand; {k} {r} small numbers; {s} a shift
{p} {t}      a factor and another factor of {n}; {list} indices below {n}; {order} a permutation of {n}
{L} {Lx}     a linear map that fits {a}, the input; {W} a weight (out, {a}.shape[-1]); {v} a vector over {d}
{w}          a width; {x} the input
<text>       a part, made when it is first used: <nn.LayerNorm({a}.shape[-1])>
"""

# ruff: noqa: E501  (a template is one line)
from __future__ import annotations

import re

POINTWISE = """
    F.relu F.relu F.relu F.relu F.relu F.relu F.relu F.relu F.relu torch.tanh torch.tanh torch.tanh F.leaky_relu F.leaky_relu
    torch.abs torch.abs torch.tanh torch.square F.gelu F.silu torch.sigmoid F.leaky_relu F.elu F.softplus F.hardswish
    F.hardtanh F.relu6 F.mish F.selu F.celu F.hardsigmoid F.softsign F.logsigmoid F.tanhshrink F.hardshrink
    F.softshrink torch.abs torch.abs torch.square torch.neg torch.sin torch.cos torch.erf torch.sinh torch.asinh
    torch.atan torch.exp torch.sign torch.round torch.floor torch.ceil torch.trunc torch.frac torch.expm1
""".split()

# The ops that carry labels from place to place: what the algebra of axes is about.
COPIES = """
    {a}.repeat_interleave({r}, {d})
    {a}.repeat_interleave({r}, {d})
    torch.cat([{a}, {a}], {d})
    torch.cat([{a}] * {r}, {d})
    torch.cat([{a}, {b}], {d})
    {a}.tile({r})
    {a}.tile({r}, 1)
    {a}.repeat({ones}{r})
    {a}.repeat({ones}{r})
    {a}.repeat({ones}{r})
    {a}.repeat({r}, *[1] * {a}.dim()).transpose(0, 1)
    {a}.unsqueeze({d}).expand({minus}{r}, *{a}.shape[{d}:])
    {a}.unsqueeze({d}).expand({minus}{r}, *{a}.shape[{d}:]).flatten({d}, {d} + 1)
    {a}.unsqueeze(-1).expand(*{a}.shape, {r}).flatten(-2)
    {a}.expand({r}, *{a}.shape).transpose(0, 1)
    torch.stack([{a}, {a}], {d})
    torch.stack([{a}, {a}.flip({d})], -1).flatten(-2)
    torch.cat([{a}, {a}.flip({d})], {d})
    torch.cat([{a}, {f}({a})], {d})
    torch.cat([{a}, {f}({b})], {d})
    {a}.repeat_interleave({r}, {d}) + torch.cat([{b}] * {r}, {d})
    {a}.repeat_interleave({r}, {d}) * torch.cat([{b}] * {r}, {d})
    torch.cat([{a}.repeat({ones}{r}), {b}], {d})
"""

ORDERS = """
    {a}.flip({d})
    {a}.flip({d})
    {a}.flip({d}, {e})
    {a}.roll({s}, {d})
    {a}.roll({s}, {d})
    {a}.roll(({s}, 1), ({d}, {e}))
    {a}.roll({s})
    {a}[{at}::2]
    {a}[{at}1::2]
    {a}[{at}1:]
    {a}[{at}:-1]
    {a}[{at}{k}:]
    {a}[{at}:{n} // 2]
    {a}[{at}{n} // 2:]
    {a}[{at}1:-1:2]
    {a}.select({d}, 0)
    {a}.select({d}, -1)
    {a}.narrow({d}, 1, {n} - 1)
    {a}.split({k}, {d})[0]
    {a}.split({k}, {d})[-1]
    {a}.split([{k}, {n} - {k}], {d})[1]
    torch.cat({a}.split([{k}, {n} - {k}], {d})[::-1], {d})
    torch.cat({a}.chunk(2, {d})[::-1], {d})
    torch.cat([{a}[{at}::2], {a}[{at}1::2]], {d})
    torch.cat([{a}[{at}1:], {b}[{at}:1]], {d})
    {a}.chunk(2, {d})[0]
    {a}.chunk(2, {d})[1]
    torch.stack({a}.unbind({d})[::-1], {d})
    torch.stack({a}.unbind({d})[1:], {d})
    F.pad({a}, (1, 1))
    F.pad({a}, (0, {k}))
    F.pad({a}, ({k}, 0))
    F.pad({a}, (1, 0, 0, 1))
    F.pad({a}, (-1, 0))
    F.pad({a}, (-1, 1))
    torch.cat([{a}, torch.zeros_like({b})], {d})
    {a}.slice_scatter({b}[{at}1:], {d}, 1)
    {a}.select_scatter({b}.select({d}, 0), {d}, 1)
    {a}.diagonal(0, {d}, {e})
    {a}.tril()
    {a}.triu(1)
    {a}.rot90(1, ({d}, {e}))
"""

VIEWS = """
    {a}.transpose({d}, {e})
    {a}.transpose({d}, {e})
    {a}.movedim({d}, {e})
    {a}.transpose(0, {d})
    {a}.unsqueeze({d})
    {a}.unsqueeze(-1)
    {a}.squeeze({d})
    {a}.unflatten({d}, ({p}, -1))
    {a}.unflatten({d}, ({p}, -1))
    {a}.unflatten({d}, (-1, {p}))
    {a}.unflatten({d}, (-1, {p})).transpose({d}, {d} + 1)
    {a}.unflatten({d}, ({p}, -1)).transpose({d}, {d} + 1).flatten({d}, {d} + 1)
    {a}.unflatten({d}, ({p}, -1)).flip({d} + 1).flatten({d}, {d} + 1)
    {a}.flatten({d})
    {a}.flatten(1)
    {a}.flatten({d}, {d} + 1)
    {a}.reshape({a}.shape[0], -1, {p})
    {a}.reshape({a}.shape[0], {p}, -1)
    {a}.reshape(-1, {a}.shape[-1])
    {a}.reshape(-1, {p})
    {a}.reshape({a}.shape[0], -1)
    {a}.reshape({a}.shape[0], -1, {a}.shape[1])
    {a}.reshape({a}.shape[0], {a}.shape[-1], -1)
    {a}.t().reshape(-1, {a}.shape[1])
    {a}.transpose({d}, {e}).reshape({a}.shape)
    {a}.view({a}.shape[0], -1, {p}).flatten(1)
    {a}.swapaxes({d}, {e}).contiguous().view({a}.shape[0], -1)
    {a}.contiguous().as_strided({a}.shape, {a}.contiguous().stride())
    torch.stack([{a}, {b}], {d})
    torch.stack([{a}, {f}({a})], {d})
    torch.stack([{a}, {b}], -1).flatten(-2)
    torch.cat([{a}, {b}], {d})
    torch.cat([{a}, {b}, {c}], {d})
"""

LOOKUPS = """
    F.pad({a}, (1, 1), value=0.5)
    F.pad({a}, (1, 1), mode='reflect')
    F.pad({a}, (1, 1), mode='replicate')
    F.pad({a}, (1, 1), mode='circular')
    {a}[{at}{list}]
    {a}[{at}{order}]
    {a}[{at}torch.tensor({list})]
    {a}[{list}]
    {a}[{list}, {list}]
    {a}.index_select({d}, torch.tensor({list}))
    torch.gather({a}, {d}, {b}.argsort({d}))
    torch.gather({a}, {d}, torch.zeros_like({a}, dtype=torch.long))
    torch.gather({a}, {d}, torch.arange({n}).flip(0).view({view}).expand({a}.shape))
    {a}[{at}{b}.argmax({d}).flatten()[:1]]
    torch.take_along_dim({a}, {b}.argmax({d}, keepdim=True), {d})
    torch.fft.rfft({a}, dim={d}).abs()
    torch.fft.irfft(torch.fft.rfft({a}, dim={d}), {n}, dim={d})
    {a}.sort({d}).values
    {a}.sort({d}).indices.to({a}.dtype)
    {a}.topk(2, {d}).values
    {a}.topk(1, {d}).indices.to({a}.dtype)
    {a}.argsort({d}).to({a}.dtype)
    {a}.unfold({d}, 2, 1)
    {a}.masked_fill(torch.arange({n}).remainder(2).bool().view({view}), 0.0)
    torch.zeros_like({a}).index_copy({d}, torch.tensor({order}), {a})
    {a}.index_add({d}, torch.tensor({order}), {b})
    {a}.index_fill({d}, torch.tensor([0]), 0.0)
    {a}.scatter({d}, {b}.argmax({d}, keepdim=True), 0.5)
    {a}.scatter_add({d}, {b}.argsort({d}), {b})
    {a}.scatter_add({d}, torch.tensor({list}).remainder({n}).view({view}).expand({a}.shape), {b})
    torch.zeros_like({a}).scatter({d}, torch.arange({n}).flip(0).view({view}).expand({a}.shape), {b})
    {a}.scatter_reduce({d}, torch.arange({n}).flip(0).view({view}).expand({a}.shape), {b}, 'amax')
    {a}.scatter_reduce({d}, torch.arange({n}).flip(0).view({view}).expand({a}.shape), {b}, 'mean')
    {a}.scatter({d}, torch.zeros_like({a}, dtype=torch.long), {b})
    torch.gather({a}, {d}, {i}.remainder({n}).expand({a}.shape))
    {a}.cummin({d}).values
    {a}.index_put((torch.tensor([0]),), {b}[:1])
    {a}.index_put((torch.tensor([0, 0]),), {b}[:1], accumulate=True)
    {a}.index_put(({a}.flatten(1).sum(-1) > 0,), torch.zeros(()).to({a}))
    torch.zeros_like({a}).index_put((torch.tensor([0]), torch.tensor([0])), {b}[0, 0])
    torch.take_along_dim({a}, {b}.argsort({d}), {d})
    torch.take_along_dim({a}, torch.arange({n}).flip(0).view({view}), {d})
    F.pairwise_distance({a}, {b}, keepdim=True) * {a}
    torch.tensordot({a}, {W}, dims=([-1], [-1]))
    torch.linalg.cross({a}[:1].expand(3, *{a}.shape[1:]), {b}[:1].expand(3, *{b}.shape[1:]).cumsum(0), dim=0)[:1] + {a}
    {a}.masked_scatter({m}, {b})
    {a}[:, {a}[0].argmax(-1)]
    (lambda s: torch.zeros_like(s).scatter(-1, s.topk(2, -1).indices, s.topk(2, -1).values))({L}({a}))
    (lambda s: torch.zeros_like(s).scatter(-1, s.topk(2, -1).indices, 1.0))({f}({L}({a})))
    (lambda s: s.gather(-1, s.topk(2, -1).indices))({L}({a}))
    (lambda s: {f}(s).gather(-1, s.topk(1, -1).indices))({L}({a}))
    (lambda s: {f}(s) * F.one_hot(s.topk(2, -1).indices, s.shape[-1]).sum(-2))({L}({a}))
    (lambda s: <nn.Parameter(torch.empty(3, {w}))>[s.topk(2, -1).indices].sum(-2))(<nn.Linear({a}.shape[-1], 3, bias=False)>({a}))
    (lambda s: F.embedding(s.softmax(-1).topk(1, -1).indices, <nn.Parameter(torch.empty(3, {w}))>).sum(-2))(<nn.Linear({a}.shape[-1], 3)>({a}))
    torch.einsum('...eh,eho->...o', {f}(torch.einsum('...i,eih->...eh', {a}, <nn.Parameter(torch.empty(3, {a}.shape[-1], 4))>)), <nn.Parameter(torch.empty(3, 4, {w}))>)
    torch.einsum('...eh,eho->...eo', {f}(torch.einsum('...i,eih->...eh', {a}, <nn.Parameter(torch.empty(3, {a}.shape[-1], 4))>) + <nn.Parameter(torch.empty(3, 4))>), <nn.Parameter(torch.empty(3, 4, {w}))>)
    torch.einsum('...i,eih->...eh', {a}, <nn.Parameter(torch.empty(2, {a}.shape[-1], 4))>)
    (lambda s, t: sum({f}(s @ u) @ v for u, v in zip(t, <nn.Parameter(torch.empty(2, 4, {w}))>)))({a}, <nn.Parameter(torch.empty(2, {a}.shape[-1], 4))>)
    (lambda s, c: torch.bmm({f}(torch.bmm(s[:, None], <nn.Parameter(torch.empty(3, {a}.shape[-1], 4))>[c])), <nn.Parameter(torch.empty(3, 4, {w}))>[c])[:, 0])({a}.flatten(0, -2), <nn.Linear({a}.shape[-1], 3)>({a}).flatten(0, -2).topk(1, -1).indices[:, 0])
    (lambda s, c: torch.bmm({f}(torch.bmm(s[:, None], <nn.Parameter(torch.empty(3, {a}.shape[-1], 4))>[c])).roll(1, 0), <nn.Parameter(torch.empty(3, 4, {w}))>[c])[:, 0])({a}.flatten(0, -2), <nn.Linear({a}.shape[-1], 3)>({a}).flatten(0, -2).topk(1, -1).indices[:, 0])
    (lambda s, c: torch.einsum('bkh,bkho->bo', {f}(torch.einsum('bi,bkih->bkh', s, <nn.Parameter(torch.empty(3, {a}.shape[-1], 4))>[c])), <nn.Parameter(torch.empty(3, 4, {w}))>[c]))({a}.flatten(0, -2), <nn.Linear({a}.shape[-1], 3)>({a}).flatten(0, -2).topk(2, -1).indices)
    (lambda s: (s.unsqueeze(-1) * <nn.Parameter(torch.empty({a}.shape[-1], 3))>).tanh().mul(<nn.Parameter(torch.empty({a}.shape[-1], 3))>).sum(-1))({a})
    <nn.Linear(1, {w})>({f}(<nn.Linear({a}.shape[-1], 1)>({a})))
    <nn.Linear(1, {w})>({f}(<nn.Linear({a}.shape[-1], 1, bias=False)>({a})))
    <nn.Linear(1, {w})>(<nn.Linear({a}.shape[-1], 1)>({a}))
    <nn.Linear(1, {w})>({f}(<nn.Linear({a}.shape[-1], 1)>({a})) * <nn.Linear({b}.shape[-1], 1)>({b}))
    <nn.Linear(1, {w})>({f}(<nn.Linear({a}.shape[-1], 1)>({a})) + <nn.Linear({b}.shape[-1], 1)>({b}))
    <nn.Linear(1, {w})>({f}(<nn.Linear({a}.shape[-1], 1)>({a}).transpose(0, {d})).transpose(0, {d}))
    {a} * {f}(<nn.Linear({a}.shape[-1], 1)>({a}))
    {a} + {f}(<nn.Linear({a}.shape[-1], 1)>({a}))
    <nn.Linear({a}.shape[-1], 1)>({a})
    {f}(<nn.Linear({a}.shape[-1], 1)>({a})).expand({a}.shape)
    {a} @ torch.linalg.inv(<nn.Parameter(torch.empty({a}.shape[-1], {a}.shape[-1]))>)
    {a} @ torch.matrix_exp(<nn.Parameter(torch.empty({a}.shape[-1], {a}.shape[-1]))>)
    {a} @ torch.diag(<nn.Parameter(torch.empty({a}.shape[-1]))>)
    torch.diag_embed({f}({a})) @ <nn.Parameter(torch.empty({a}.shape[-1], {w}))>
    torch.einsum('...ii->...i', torch.einsum('...i,...j->...ij', {a}, {b}))
    torch.einsum('...ii->...', torch.einsum('...i,...j->...ij', {a}, {b})).unsqueeze(-1)
    {a} * torch.trace(<nn.Parameter(torch.empty(3, 3))>)
    {a} * torch.linalg.det(<nn.Parameter(torch.empty(3, 3))>)
    {a} + torch.logdet({a}.mT @ {a} + torch.eye({a}.shape[-1], dtype={a}.dtype))[..., None, None]
    {a} @ torch.linalg.inv({a}.mT @ {a} + 0.1 * torch.eye({a}.shape[-1]).to({a}))
    torch.linalg.inv({a} @ {a}.mT + torch.eye({a}.shape[-2]).to({a})) @ {b}
    {a} @ (<nn.Parameter(torch.empty({a}.shape[-1], {a}.shape[-1]))> + torch.eye({a}.shape[-1], dtype={a}.dtype))
    {f}({a}) @ torch.linalg.inv({b}.mT @ {b} + torch.eye({b}.shape[-1], dtype={b}.dtype))
    {a} @ (torch.eye({a}.shape[-1], dtype={a}.dtype) - {b}.mT @ {b})
    torch.complex({a}, {b}).abs()
    torch.view_as_real(torch.fft.fft({a}, dim={d})).sum(-1)
    (lambda s: torch.einsum('...i,...kio->...o', {a}, <nn.Parameter(torch.empty(3, {a}.shape[-1], {w}))>[s.topk(2, -1).indices]))(<nn.Linear({a}.shape[-1], 3, bias=False)>({a}))
    (lambda s: torch.einsum('...i,eio,...e->...o', {a}, <nn.Parameter(torch.empty(3, {a}.shape[-1], {w}))>, F.one_hot(s.sigmoid().topk(2, -1).indices, 3).sum(-2).to(s.dtype)))(<nn.Linear({a}.shape[-1], 3)>({a}))
"""

# Pairs of channels turned by angles that no weight decides, as rotary embeddings do, in several spellings.
ROTARY = """
    torch.cat([{a}.chunk(2, -1)[0] * 0.6 - {a}.chunk(2, -1)[1] * 0.8, {a}.chunk(2, -1)[1] * 0.6 + {a}.chunk(2, -1)[0] * 0.8], -1)
    {a} * torch.arange({a}.shape[-1] // 2).repeat(2).to({a}).cos() + torch.cat([-{a}.chunk(2, -1)[1], {a}.chunk(2, -1)[0]], -1) * torch.arange({a}.shape[-1] // 2).repeat(2).to({a}).sin()
    torch.view_as_real(torch.view_as_complex({a}.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(torch.ones({a}.shape[-1] // 2).to({a}), torch.arange({a}.shape[-1] // 2).to({a}))).flatten(-2)
    torch.stack([{a}[..., ::2] * 0.6 - {a}[..., 1::2] * 0.8, {a}[..., 1::2] * 0.6 + {a}[..., ::2] * 0.8], -1).flatten(-2)
    torch.stack([{a}[..., ::2] * 0.6 - {a}[..., 1::2] * 0.8, {a}[..., 1::2] * 0.6 - {a}[..., ::2] * 0.8], -1).flatten(-2)
    {a} * 0.6 + torch.cat([-{a}.chunk(2, -1)[1], {b}.chunk(2, -1)[0]], -1) * 0.8
    {a} * torch.arange({a}.shape[-1]).to({a}).cos() + torch.cat([-{a}.chunk(2, -1)[1], {a}.chunk(2, -1)[0]], -1) * torch.arange({a}.shape[-1]).to({a}).sin()
"""

ELEMENTWISE = """
    {f}({a})
    {f}({a})
    {f}({a})
    {f}({a})
    {f}({a})
    {a} + {b}
    {a} + {b}
    {a} - {b}
    {a} * {b}
    {a} * {b}
    {a} + {f}({b})
    {a} * {f}({b})
    {a} * torch.sigmoid({b})
    {a} / (1 + {b}.abs())
    {a} / (1 + {b} ** 2)
    {a} + {a}.flip({d})
    {a} * {a}.flip({d})
    {a} + {a}.roll({s}, {d})
    {a} * torch.sigmoid({a}.roll({s}, {d}))
    {a} + {b}.flip({d})
    {a} + {a}.transpose({d}, {e})
    {a}[{at}::2] * torch.sigmoid({a}[{at}1::2])
    {a}[{at}::2] * torch.sigmoid({a}[{at}1::2].flip({d}))
    {a}[{at}:{n} // 2] * torch.sigmoid({a}[{at}{n} // 2:])
    {a}[{at}::2] + {f}({a}[{at}1::2])
    {a}[{at}::2] + {a}[{at}1::2]
    {a}[{at}:{n} // 2] + {a}[{at}{n} // 2:]
    F.glu({a}, {d})
    torch.maximum({a}, {b})
    torch.minimum({a}, {b})
    torch.maximum({a}, {a}.flip({d}))
    torch.where({m}, {a}, {b})
    torch.where({a} > 0, {a}, {b})
    torch.where({a} > {b}, {a}, {b})
    torch.where({a} > {b}, {a}, 0.0)
    torch.where({b} > 0, {a}, 0.1 * {a})
    {a}.masked_fill({b} > 0, 0.0)
    {a}.masked_fill({b} > 0.5, 0.3)
    {a}.masked_fill({m}, 0.0)
    {a}.clamp(-0.5, 0.7)
    {a}.clamp(min=0)
    {a}.clamp(max=0.3)
    {a}.clamp(min={b})
    {a} ** 2
    {a} ** 3
    {a}.abs() ** 1.5
    {a}.abs() ** {b}
    2 * {a}
    -{a}
    1 - {a}
    {a} + 0.3
    {a} / 3
    1 / (1 + {a}.abs())
    ({a}.abs() + 0.1).log()
    {a}.abs().sqrt()
    ({a}.abs() + 0.1).rsqrt()
    {a} * {a}.abs().rsqrt()
    torch.lerp({a}, {b}, 0.3)
    torch.lerp({a}, {b}, torch.sigmoid({c}))
    torch.addcmul({a}, {b}, {c})
    torch.addcdiv({a}, {b}, 1 + {c}.abs())
    torch.atan2({a}, {b})
    torch.hypot({a}, {b})
    torch.logaddexp({a}, {b})
    torch.fmod({a}, 0.7)
    torch.remainder({a}, 0.7)
    torch.floor_divide({a}, 0.4)
    torch.xlogy({a}, 0.1 + {b}.abs())
    torch.copysign({a}, {b})
    torch.heaviside({a}, {b})
    {a}.int().to({a}.dtype)
    {a}.long().to({a}.dtype)
    {a}.bool().to({a}.dtype)
    (3 * {a}).long().to({a}.dtype)
    ({a} > 0).to({a}.dtype)
    ({a} > {b}).to({a}.dtype)
    {a} * ({a} > 0.1)
    {a} * ({b} > 0)
    {a} * {m}
    {a}.detach()
    {a}.clone()
    {a} * torch.ones_like({b})
    {a} + torch.zeros_like({b})
    {a}.nan_to_num()
    ({a} + 0).relu_()
    ({a} + 0).mul_({b})
    ({a} * 1).add_({b})
    ({a} + 0).clamp_(0)
    ({a} + 0).fill_(0.5) * {b}
    torch.zeros_like({a}).copy_({b})
    torch.zeros_like({a}).add_({b})
    {a}.new_zeros({a}.shape) + {b}
    {a} * torch.arange({n}, dtype={a}.dtype).view({view})
    {a} + torch.arange({n}, dtype={a}.dtype).view({view})
    {a} * (torch.arange({n}) % 2 == 0).view({view})
    {a} + torch.linspace(0, 1, {n}, dtype={a}.dtype).view({view})
    {a} * {v}
    {a} * {v}
    {a} + {v}
    {a} + {v}
    {a} + {v} * {b}
    {f}({a} * {v} + {v})
    {a} * torch.sigmoid({v})
    {a} * {v}.abs()
    {a} * {v} ** 2
    {a} / (0.1 + {v}.abs())
    torch.where({v} > 0, {a}, 0.2 * {a})
    F.prelu({a}, <nn.Parameter(torch.empty({a}.shape[1]))>)
    F.prelu({a}, <nn.Parameter(torch.empty(1))>)
    F.dropout({a}, 0.5, training=True)
    F.dropout({a}, 0.5, training=False)
    F.dropout1d({a}, 0.5, training=True)
    F.alpha_dropout({a}, 0.5, training=True)
    {a} * torch.rand_like({a})
    {a} + torch.randn_like({a})
    {a} * torch.rand({a}.shape[-1], dtype={a}.dtype)
    {a} * torch.rand({a}.shape[0], *[1] * ({a}.dim() - 1), dtype={a}.dtype)
    {a} * torch.bernoulli(torch.sigmoid({b}))
    {a} * torch.bernoulli(torch.full_like({a}, 0.5))
    {a}[{at}torch.randperm({n})]
    F.gumbel_softmax({a}, dim={d})
    F.rrelu({a}, training=True)
    torch.normal({a}, 1.0)
"""

CONTRACTIONS = """
    (<nn.Linear({a}.shape[-1], 6)>({a}).unflatten(-1, (2, 3)) * <nn.Parameter(torch.empty(2, 1))>).flatten(-2)
    <nn.Linear(6, {w})>((<nn.Linear({a}.shape[-1], 6)>({a}).unflatten(-1, (2, 3)) * <nn.Parameter(torch.empty(2, 1))>).flatten(-2))
    <nn.Linear(6, {w})>((<nn.Linear({a}.shape[-1], 6)>({a}).unflatten(-1, (2, 3)) * {f}(<nn.Parameter(torch.empty(2, 1))>)).flatten(-2))
    <nn.Linear(6, {w})>({f}(<nn.Linear({a}.shape[-1], 6)>({a}).unflatten(-1, (2, 3)) * <nn.Parameter(torch.empty(2, 1))>).flatten(-2))
    <nn.Linear(6, {w})>((<nn.Linear({a}.shape[-1], 6)>({a}).unflatten(-1, (2, 3)) * <nn.Linear({b}.shape[-1], 2)>({b}).unsqueeze(-1)).flatten(-2))
    ({L}({a}).unsqueeze(-1) * <nn.Linear({b}.shape[-1], 2)>({b}).unsqueeze(-2)).flatten(-2)
    ({a}.unsqueeze(-1) * {b}.unsqueeze(-2)).flatten(-2)
    <nn.Linear(6, {w})>((<nn.Linear({a}.shape[-1], 3)>({a}).unsqueeze(-1) * <nn.Linear({b}.shape[-1], 2)>({b}).unsqueeze(-2)).flatten(-2))
    <nn.Linear(6, {w})>(({f}(<nn.Linear({a}.shape[-1], 3)>({a})).unsqueeze(-1) * <nn.Linear({b}.shape[-1], 2)>({b}).unsqueeze(-2)).flatten(-2))
    <nn.Conv1d(4, {w}, 1)>(<nn.Conv1d(6, 4, 1, groups=2)>(<nn.Conv1d({a}.shape[1], 6, 1)>({a})))
    <nn.Conv1d(12, {w}, 1)>(<nn.Conv1d(12, 12, 1, groups=3)>({f}(<nn.Conv1d(12, 12, 1, groups=2)>(<nn.Conv1d({a}.shape[1], 12, 1)>({a})))))
    {L}({a})
    {L}({a})
    {L}({a})
    {L}({a})
    {L}({a})
    {L}({f}({a}))
    {L}({f}({a}))
    {f}({L}({a}))
    {f}({L}({a}))
    {f}({L}({a}))
    {f}({Lx}(x))
    {f}({Lx}(x))
    {Lx}(x)
    {f}({Lx}(x)) + {a}
    {Lx}(x) * {a}
    {a} + {L}({f}({L}({a})))
    {L}({a}) * {L}({a})
    {f}({L}({a})) * {L}({a})
    {L}({a}.transpose({d}, -1)).transpose({d}, -1)
    {f}({L}({a}.transpose({d}, -1)).transpose({d}, -1))
    F.linear({a}, {W})
    F.linear({a}, {W})
    F.linear({f}({a}), {W})
    F.linear({a}, {W}.abs())
    F.linear({a}, {W}, <nn.Parameter(torch.empty({w}))>)
    F.linear({a}, {W}.softmax(-1))
    F.linear({a}, F.normalize({W}, dim=-1))
    <nn.utils.parametrizations.weight_norm(nn.Linear({a}.shape[-1], {w}))>({a})
    <nn.utils.parametrizations.weight_norm(nn.Linear({a}.shape[-1], {w}), dim=1)>({a})
    <nn.utils.parametrizations.weight_norm(nn.Linear({a}.shape[-1], {w}), dim=None)>({a})
    {a} @ {W}.t()
    {a} @ {a}.transpose(-1, -2)
    {a} @ {b}.transpose(-1, -2)
    {a}.transpose(-1, -2) @ {b}
    {a}.transpose(-1, -2) @ {a}
    {a} @ {b}
    ({a} @ {b}.transpose(-1, -2)).softmax(-1) @ {b}
    ({a} @ {a}.transpose(-1, -2)).softmax(-1) @ {a}
    {a}.unsqueeze(-1) * {b}.unsqueeze(-2)
    {a}.unsqueeze(-1) * {a}.unsqueeze(-2)
    {a}.unsqueeze(-1) * {a}.unsqueeze(-2) ** 2
    {a}.unsqueeze(-1) * {f}({b}).unsqueeze(-2)
    {a}.unsqueeze(-1) + {b}.unsqueeze(-2)
    {a}.unsqueeze(-1) - {a}.unsqueeze(-2)
    ({a}.unsqueeze(-1) * {b}.unsqueeze(-2)).flatten(-2)
    ({a}.unsqueeze(-1) * {a}.unsqueeze(-2) ** 2).flatten(-2)
    ({a}.unsqueeze(-1) > {a}.unsqueeze(-2)).to({a}.dtype)
    torch.einsum('bi,bj->bij', {a}, {b})
    torch.einsum('bi,bi->b', {a}, {b}).unsqueeze(1) * {a}
    ({a} * {b}).sum({d}, keepdim=True) + {a}
    ({L}({a}) * {L}({b})).sum(-1, keepdim=True) * {b}
    ({L}({a}) * {f}({L}({a}))).sum(-1, keepdim=True) * {b}
    ({a}.unsqueeze(-2) * {W}).sum(-1)
    ({L}({a}).unflatten(-1, ({p}, -1)) * {L}({b}).unflatten(-1, ({p}, -1))).sum(-1)
    torch.square({L}({a})).sum(-1, keepdim=True) * {a}
    torch.mul({a}, {a}).sum({d}) + {a}.new_ones(1)
    {a} * torch.rsqrt({a}.pow(2).mean(-1, keepdim=True) + 0.1)
    {b} * ({L}({a}) ** 2).mean({d}, keepdim=True)
    {a}.sum({d}, dtype=torch.int64, keepdim=True) + {a}
    torch.einsum('bti,bsi->bts', {a}, {b})
    torch.einsum('bti,bsi->bts', {a}, {b}).softmax(-1)
    torch.einsum('bti,btj->bij', {a}, {b})
    torch.einsum('bti,oi->bto', {a}, {W})
    torch.einsum('bi,oi->bo', {a}, {W})
    torch.einsum('...i,oi->...o', {a}, {W})
    torch.einsum('bti,ti->bt', {a}, <nn.Parameter(torch.empty({a}.shape[1], {a}.shape[2]))>)
    torch.einsum('bti,tio->bto', {a}, <nn.Parameter(torch.empty({a}.shape[1], {a}.shape[2], {w}))>)
    torch.einsum('bti,tio->bto', {a}, <nn.Parameter(torch.empty({a}.shape[1], {a}.shape[2], {w}))>[:{a}.shape[1]])
    torch.einsum('bi,bj,ijo->bo', {a}, {b}, <nn.Parameter(torch.empty({a}.shape[1], {b}.shape[1], {w}))>)
    torch.einsum('bi,bj,ijo->bo', {a}, {a}, <nn.Parameter(torch.empty({a}.shape[1], {a}.shape[1], {w}))>)
    torch.einsum('bii->bi', {a})
    torch.einsum('bi,i->b', {a}, {v}).unsqueeze(1) + {a}
    F.bilinear({a}, {b}, <nn.Parameter(torch.empty({w}, {a}.shape[-1], {b}.shape[-1]))>)
    <nn.Bilinear({a}.shape[-1], {b}.shape[-1], {w})>({a}, {b})
    torch.bmm({a}, {b}.transpose(1, 2))
    torch.baddbmm({c}, {a}, {b}.transpose(1, 2))
    torch.baddbmm({a}, {a}, <nn.Parameter(torch.empty({a}.shape[2], {a}.shape[2]))>.expand({a}.shape[0], -1, -1))
    torch.addmm({b}, {a}, <nn.Parameter(torch.empty({a}.shape[1], {b}.shape[1]))>)
    torch.addmm(<nn.Parameter(torch.empty({w}))>, {a}, <nn.Parameter(torch.empty({a}.shape[1], {w}))>)
    torch.outer({a}.mean(0), {b}.mean(0)).flatten() + {a}.new_zeros({a}.shape[0], 1)
    torch.cdist({a}, {b})
    torch.cdist({a}, {b}, p=1.0)
    torch.cdist({L}({a}), {L}({b}))
    torch.kron({a}, {b})
    {a} / {a}.norm(dim={d}, keepdim=True)
    F.normalize({L}({a}), dim=-1) @ {W}.t()
    F.fold({a}.flatten(2), (2, {a}.shape[-1] + 1), (2, 2)) if {a}.dim() > 2 else {a}
    F.cosine_similarity({a}, {b}, dim={d}).unsqueeze({d}) * {a}
    F.scaled_dot_product_attention({a}, {b}, {c})
    F.scaled_dot_product_attention({a}, {a}, {a})
    F.scaled_dot_product_attention({L}({a}), {L}({a}), {a})
    F.scaled_dot_product_attention({L}({a}), {L}({a}), {L}({a}), is_causal=True)
    F.scaled_dot_product_attention({L}({a}), {L}({a}), {L}({a}), attn_mask=torch.ones({a}.shape[-2], {a}.shape[-2], dtype=torch.bool).tril())
    F.scaled_dot_product_attention({L}({a}), {L}({b}), {L}({b}), attn_mask=<torch.empty({a}.shape[-2], {b}.shape[-2])>)
    F.scaled_dot_product_attention({a}.unflatten(-1, ({p}, -1)).transpose(1, 2), {b}.unflatten(-1, ({p}, -1)).transpose(1, 2), {c}.unflatten(-1, ({p}, -1)).transpose(1, 2)).transpose(1, 2).flatten(2)
    F.scaled_dot_product_attention(*{a}.unflatten(-1, (3, {p}, -1)).permute(2, 0, 3, 1, 4)).transpose(1, 2).flatten(2)
    F.scaled_dot_product_attention(*<nn.Linear({a}.shape[-1], 12)>({a}).unflatten(-1, (3, 2, 2)).permute(2, 0, 3, 1, 4), is_causal=True).transpose(1, 2).flatten(2)
    F.scaled_dot_product_attention(*<nn.Linear({a}.shape[-1], 12)>({a}).unflatten(-1, (2, 3, 2)).permute(3, 0, 2, 1, 4)).transpose(1, 2).flatten(2)
    F.scaled_dot_product_attention(<nn.Linear({a}.shape[-1], 8)>({a}).unflatten(-1, (4, 2)).transpose(1, 2), <nn.Linear({a}.shape[-1], 4)>({a}).unflatten(-1, (2, 2)).transpose(1, 2), <nn.Linear({a}.shape[-1], 4)>({a}).unflatten(-1, (2, 2)).transpose(1, 2), enable_gqa=True).transpose(1, 2).flatten(2)
    <nn.MultiheadAttention({a}.shape[-1], 2, batch_first=True)>({a}, {a}, {a}, need_weights=False)[0]
    <nn.MultiheadAttention({a}.shape[-1], 2, batch_first=True)>({a}, {b}, {b})[0]
    <nn.MultiheadAttention({a}.shape[-1], 1, batch_first=True)>({a}, {a}, {a})[1]
    <nn.LSTM({a}.shape[-1], {w}, batch_first=True)>({a})[0]
    <nn.LSTM({a}.shape[-1], {w}, bidirectional=True, batch_first=True)>({a})[1][1].flatten(0, 1)
    <nn.LSTM({a}.shape[-1], {w}, 2)>({a})[0]
    <nn.GRU({a}.shape[-1], {w}, bidirectional=True, batch_first=True)>({a})[0]
    <nn.GRU({a}.shape[-1], {a}.shape[-1], batch_first=True)>({a}, {b}[None, :, 0].contiguous())[0]
    <nn.RNN({a}.shape[-1], {w}, nonlinearity='relu', batch_first=True)>({a})[0]
    <nn.RNN({a}.shape[-1], {w}, 2, batch_first=True)>({a})[1][-1]
    <nn.GRUCell({a}.shape[-1], {b}.shape[-1])>({a}, {b})
    <nn.LSTMCell({a}.shape[-1], {w})>({a})[1]
    <nn.Conv1d({a}.shape[1], {w}, 3, padding=1)>({a})
    <nn.Conv1d({a}.shape[1], {w}, 1)>({a})
    <nn.Conv1d({a}.shape[1], 2 * {a}.shape[1], 1, groups={a}.shape[1])>({a})
    <nn.Conv1d({a}.shape[1], {w}, 2, groups={g})>({a})
    <nn.ConvTranspose1d({a}.shape[1], {w}, 2)>({a})
    <nn.Conv1d({a}.shape[-1], {w}, 3, padding=1)>({a}.transpose(1, 2)).transpose(1, 2)
    F.conv1d({a}, {W}.unsqueeze(-1))
    <nn.Embedding(4, {w})>(({a} > 0).long())
    <nn.Embedding(4, {w})>({a}.long().clamp(0, 3))
    <nn.Embedding(8, {w})>({a}.argmax(-1))
    <nn.Embedding(16, {w})>(torch.arange({n})).t().unsqueeze(0) + {a}.mean()
    <nn.Embedding(8, {w})>({i})
    <nn.Embedding(8, {w})>({i})
    F.one_hot({a}.argmax(-1), {a}.shape[-1]).to({a}.dtype)
    F.one_hot({a}.argmax({d}), {n}).to({a}.dtype)
    {a} * F.one_hot({a}.argmax(-1), {a}.shape[-1])
    {a} + <nn.Parameter(torch.empty(16, {a}.shape[-1]))>[:{a}.shape[1]]
    {a} + <nn.Parameter(torch.empty(16, {a}.shape[-1]))>[-{a}.shape[1]:]
    {a} * <nn.Parameter(torch.empty(1, 16, {a}.shape[-1]))>[:, :{a}.shape[1]]
    {a} + <nn.Parameter(torch.empty({a}.shape[1], {a}.shape[-1]))>
    {a} + <nn.Parameter(torch.empty({a}.shape[1:]))>
    torch.cat([<nn.Parameter(torch.empty(1, 1, {a}.shape[-1]))>.expand({a}.shape[0], -1, -1), {a}], 1)
    torch.cat([{a}, <nn.Parameter(torch.empty(1, {k}))>.expand({a}.shape[0], -1)], 1)
    torch.cat([{a}, <torch.empty(1, {k})>.expand({a}.shape[0], -1)], 1)
    {a} + <torch.empty({a}.shape[-1])>
    {a} * <torch.empty({a}.shape[1:])>
"""

REDUCTIONS = """
    {a}.sum({d})
    {a}.mean({d})
    {a}.mean({d})
    {a}.sum({d}, keepdim=True)
    {a}.unflatten({d}, ({p}, {n} // {p})).mean({d})
    {a}.unflatten({d}, ({p}, {n} // {p})).sum({d} + 1)
    {f}({a}).unflatten({d}, ({p}, {n} // {p})).amax({d})
    {f}({a}).unflatten({d}, ({p}, {n} // {p})).norm(dim={d})
    {a} - {a}.mean({d}, keepdim=True)
    {a} / (0.1 + {a}.abs().sum({d}, keepdim=True))
    {a} / (0.1 + {a}.norm(dim={d}, keepdim=True))
    {a} * {a}.mean({d}, keepdim=True)
    {a}.amax({d})
    {a}.amax({d}, keepdim=True) + {a}
    {a}.amin({d})
    {a}.max({d}).values
    {a}.max({d}).indices.to({a}.dtype)
    {a}.contiguous().median({d}).values
    {a}.logsumexp({d})
    {a}.logsumexp({d}, keepdim=True) + {b}
    {a}.prod({d})
    {a}.prod({d}, keepdim=True) * {b}
    {a}.norm(dim={d})
    {a}.norm(p=1, dim={d}, keepdim=True) * {b}
    {a} / (0.1 + torch.linalg.norm({a}, 2, ({d}, {e}), keepdim=True))
    {a} / (0.1 + torch.linalg.norm({a}, 1, ({d}, {e}), keepdim=True))
    {a}.norm(p=0, dim={d}, keepdim=True) * {b}
    {a}.var({d})
    {a}.std({d}, keepdim=True) * {b}
    {a}.cumsum({d})
    {a}.cumprod({d})
    {a}.logcumsumexp({d})
    {a}.cummax({d}).values
    {a}.diff(dim={d})
    {a}.argmax({d}).to({a}.dtype)
    {a} * {a}.argmax({d}, keepdim=True)
    {a}.softmax({d})
    {a}.softmax({d})
    {a}.softmax(-1)
    {a}.log_softmax({d})
    F.normalize({a}, dim={d})
    ({a} > 0).any({d}, keepdim=True) * {b}
    ({a} > -1).all({d}, keepdim=True) * {b}
    ({a} > 0).sum({d}, keepdim=True) * {b}
    torch.count_nonzero({a}, {d}).unsqueeze({d}) * {b}
    {a} * {a}.sigmoid().mean()
    {a} + {b}[:0].sum(0)
    {a} + {b}[:0].prod(0)
    {a} * {b}[{at}:0].prod({d}, keepdim=True)
    {a} + torch.zeros_like({b}).logsumexp({d}, keepdim=True)
    {a} * torch.zeros_like({b}).exp()
    torch.var_mean({a}, {d}, keepdim=True)[0] * {b}
    {a} - {a}.amax({d}, keepdim=True)
    {a}.aminmax(dim={d}, keepdim=True)[0] + {b}
    {a}.quantile(0.5, dim={d})
    {a}.kthvalue(2, {d}).values
    {a}.renorm(2, {d}, 1.0)
    {a}.sum()  * {b}
"""

NORMS = """
    F.layer_norm({a}, ({a}.shape[-1],))
    <nn.LayerNorm({a}.shape[-1])>({a})
    <nn.LayerNorm({a}.shape[-1])>({a})
    <nn.LayerNorm({a}.shape[-2:])>({a})
    F.rms_norm({a}, ({a}.shape[-1],))
    <nn.RMSNorm({a}.shape[-1])>({a})
    <nn.BatchNorm1d({a}.shape[1])>({a})
    <nn.BatchNorm1d({a}.shape[1])>({a})
    <nn.BatchNorm1d({a}.shape[1], affine=False)>({a})
    <nn.BatchNorm2d({a}.shape[1])>({a})
    <nn.BatchNorm2d({a}.shape[1])>({a})
    F.batch_norm({a}, None, None, training=True)
    F.batch_norm({a}, <torch.empty({a}.shape[1])>, <torch.ones({a}.shape[1])>, training=True)
    F.batch_norm({a}, <torch.empty({a}.shape[1])>, <torch.ones({a}.shape[1])>, {v}.flatten(), training=True)
    F.batch_norm({a}, {v}.flatten(), {v}.flatten().abs() + 0.1)
    F.group_norm({a}, {g})
    <nn.GroupNorm({g}, {a}.shape[1])>({a})
    <nn.GroupNorm({g}, {a}.shape[1])>({a})
    F.instance_norm({a})
    <nn.InstanceNorm1d({a}.shape[1], affine=True)>({a})
    <nn.InstanceNorm2d({a}.shape[1], affine=True)>({a})
    F.instance_norm({a}, <torch.empty({a}.shape[1])>, <torch.ones({a}.shape[1])>, use_input_stats=True)
    F.local_response_norm({a}, 3)
    {a} * ({a}.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()
    ({a} - {a}.mean(-1, keepdim=True)) * ({a}.var(-1, keepdim=True) + 1e-5).rsqrt()
"""

IMAGES = """
    <nn.Conv2d({a}.shape[1], {w}, 3, padding=1)>({a})
    <nn.Conv2d({a}.shape[1], {w}, 3, padding=1)>({a})
    <nn.Conv2d({a}.shape[1], {w}, 1, bias=False)>({a})
    <nn.Conv2d({a}.shape[1], {w}, 1)>({f}({a}))
    <nn.Conv2d({a}.shape[1], {w}, 2, stride=2)>({a})
    <nn.Conv2d({a}.shape[1], {w}, 3, padding=1, padding_mode='reflect')>({a})
    <nn.Conv2d({a}.shape[1], {a}.shape[1], 3, padding=1, groups={a}.shape[1])>({a})
    <nn.Conv2d({a}.shape[1], 2 * {a}.shape[1], 1, groups={a}.shape[1])>({a})
    <nn.Conv2d({a}.shape[1], {a}.shape[1], 1, groups={g})>({a})
    <nn.Conv2d({a}.shape[1], 2 * {a}.shape[1], 1, groups={g})>({a})
    <nn.ConvTranspose2d({a}.shape[1], {w}, 2, stride=2)>({a})
    <nn.ConvTranspose2d({a}.shape[1], {a}.shape[1], 1, groups={g})>({a})
    {a} + <nn.Conv2d({a}.shape[1], {a}.shape[1], 3, padding=1)>({f}({a}))
    F.conv2d({a}, {W2})
    F.conv2d({a}, {W2})
    F.conv_transpose2d({a}, {W2}.transpose(0, 1))
    F.conv2d({a}, {W2}[:, :{a}.shape[1] // {g}], groups={g})
    F.pixel_shuffle({a}, 2)
    F.pixel_unshuffle({a}, 2)
    F.channel_shuffle({a}, {g})
    F.max_pool2d({a}, 2)
    F.max_pool2d({a}, 3, 1, 1)
    F.avg_pool2d({a}, 2)
    F.adaptive_avg_pool2d({a}, 1)
    F.adaptive_avg_pool2d({a}, 2)
    F.adaptive_max_pool2d({a}, 2)
    F.lp_pool2d({a}, 2, 2)
    F.interpolate({a}, scale_factor=2)
    F.interpolate({a}, scale_factor=2, mode='bilinear')
    F.interpolate({a}, size=(3, 3))
    F.unfold({a}, 2)
    F.max_pool1d({a}, 2)
    F.avg_pool1d({a}, 2)
    F.adaptive_avg_pool1d({a}, 2)
    F.adaptive_max_pool1d({a}, 1)
    {a} * torch.sigmoid({L}({a}.mean((2, 3))))[:, :, None, None]
    {a}.flatten(2).transpose(1, 2)
    {a}.flatten(2).transpose(1, 2)
    {a}.flatten(1)
    {a}.mean((2, 3))
    {a}.mean((2, 3))
    {a}.permute(0, 2, 3, 1)
    {a}.permute(0, 2, 3, 1)
    {a}.permute(0, 3, 1, 2)
    <nn.LayerNorm({a}.shape[1])>({a}.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    F.dropout2d({a}, 0.5, training=True)
    F.pad({a}, (1, 1, 1, 1), mode='reflect')
    F.pad({a}, (0, 0, 0, 0, 1, 1))
    F.grid_sample({a}, torch.zeros({a}.shape[0], 2, 2, 2, dtype={a}.dtype), align_corners=False)
"""

INDICES = """
    {a}.argmax(-1)
    ({a} > 0).long()
    {a}.long().clamp(0, 7)
    {a}.argsort(-1)
    {a}.abs().round().long().clamp(0, 7)
    torch.bucketize({a}, torch.tensor([-1.0, 0.0, 1.0], dtype={a}.dtype))
"""

BOOLEANS = """
    {a} > 0
    {a} > {b}
    {a} < {a}.flip({d})
    ({a} > 0) & ({b} > 0)
    ({a} > 0) | ({b} > 0)
    ({a} > 0).logical_not()
    {a} == {b}
    {a} >= {a}.mean({d}, keepdim=True)
    {a}.bool()
    torch.isclose({a}, {b})
"""


def lines(text: str) -> list[str]:
    """The templates of a table."""
    return [line.strip() for line in text.strip().splitlines()]


TABLES: dict[str, list[str]] = {
    "copies": lines(COPIES),
    "orders": lines(ORDERS),
    "views": lines(VIEWS),
    "lookups": lines(LOOKUPS),
    "elementwise": lines(ROTARY + ELEMENTWISE),
    "contraction": lines(CONTRACTIONS),
    "reduction": lines(REDUCTIONS),
    "norm": lines(NORMS),
    "image": lines(IMAGES),
    "index": lines(INDICES),
    "boolean": lines(BOOLEANS),
}


def leave_out(pattern: str) -> None:
    """Drop the templates that match: faults that are known hide others."""
    for table in TABLES.values() if pattern else ():
        table[:] = [line for line in table if not re.search(pattern, line)]

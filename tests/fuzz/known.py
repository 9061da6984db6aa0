"""Programs that once got a symmetry that does not hold (or a crash), kept as regression tests.

`KNOWN[name]()` builds (module, inputs): trace on the first input, the symmetry must hold on all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from .program import Model, Program, Shape, program

FLAT = ((3, 5), (1, 5), (4, 5))
FROM_ONE = ((1, 5), (4, 5), (3, 5))
LONG = ((2, 4, 5), (3, 7, 5), (1, 2, 5), (3, 4, 5))
IDS = ((2, 6), (3, 9), (1, 4))
PIXELS = ((2, 3, 4, 4), (3, 3, 6, 5), (1, 3, 4, 4))

KNOWN: dict[str, Callable[[], tuple[nn.Module, list[Tensor]]]] = {}
PROGRAMS: dict[str, Program] = {}

L6 = "nn.Linear(5, 6)"


def known(name: str, body: str, shapes: tuple[Shape, ...] = FLAT, vocabulary: int = 0, **parts: str) -> None:
    """Add a program; `o`, where it is not given, is a linear map that fits what it is applied to."""
    if name in PROGRAMS:
        raise ValueError(f"two programs named {name}")
    if "self.o(" in body and "o" not in parts:
        at = body.rindex("self.o(")
        inside = body[at + len("self.o(") : body.rindex(")")]
        parts["o"] = "nn.Linear({(" + inside.replace("{", "").replace("}", "") + ").shape[-1]}, 3)"
    PROGRAMS[name] = program(body, shapes, vocabulary, **parts)

    def build() -> tuple[nn.Module, list[Tensor]]:
        found = PROGRAMS[name]
        return Model(found), [found.inputs(shape, k) for k, shape in enumerate(found.shapes)]

    KNOWN[name] = build


# -- why: other sizes than the traced one ------------------------------------------------------------------

known(
    "positions cut at the length",
    "h = self.emb(x) + self.pos[:x.shape[1]]; h = h + self.down(F.gelu(self.up(h))); return self.o(h)",
    IDS,
    11,
    emb="nn.Embedding(11, 6)",
    pos="nn.Parameter(torch.empty(16, 6))",
    up="nn.Linear(6, 8)",
    down="nn.Linear(8, 6)",
)
known(
    "positions cut at the length and mixed",
    "h = self.pos[:x.shape[1]]; return self.o((x.unsqueeze(-1) * h).sum(1))",
    ((2, 6), (3, 9), (1, 4)),
    pos="nn.Parameter(torch.empty(16, 6))",
)
known(
    "positions from the end",
    "h = F.relu(self.l(x)) + self.pos[-x.shape[1]:]; return self.o(F.relu(h))",
    LONG,
    l=L6,
    pos="nn.Parameter(torch.empty(16, 6))",
)
known(
    "positions between",
    "h = F.relu(self.l(x)) + self.pos[2:2 + x.shape[1]]; return self.o(F.relu(h).mean(1))",
    LONG,
    l=L6,
    pos="nn.Parameter(torch.empty(16, 6))",
)
known(
    "positions by index",
    "h = F.relu(self.l(x)) + self.pos(torch.arange(x.shape[1])); return self.o(F.relu(h))",
    LONG,
    l=L6,
    pos="nn.Embedding(16, 6)",
)
known(
    "mixing over a length cut out of a weight",
    "h = F.relu(self.l(x)); h = torch.einsum('btc,st->bsc', h, self.w[:, :x.shape[1]]); "
    "return self.o(F.relu(h.transpose(1, 2)).sum(2))",
    LONG,
    l=L6,
    w="nn.Parameter(torch.empty(5, 16))",
)
known(
    "transposed and reshaped, from batch 1",
    "h = F.relu(self.l(x)); return self.o(h.t().reshape(-1, 6))",
    FROM_ONE,
    l=L6,
)
known("transposed and reshaped", "h = F.relu(self.l(x)); return self.o(h.t().reshape(-1, 6))", l=L6)
known(
    "tokens flattened with the batch, from batch 1",
    "h = F.relu(self.l(x)); return self.o(h.transpose(0, 1).reshape(h.shape[0], -1, 6))",
    ((1, 4, 5), (2, 4, 5), (3, 7, 5)),
    l=L6,
)
known(
    "length 1 squeezed and joined",
    "h = F.relu(self.l(x)); return self.o(h.transpose(1, 2).reshape(h.shape[0], -1, 6))",
    ((2, 1, 5), (2, 3, 5), (3, 2, 5)),
    l=L6,
)
known(
    "one pixel",
    "h = F.relu(self.c(x)); return self.o(h.permute(0, 2, 1, 3).reshape(h.shape[0], -1, 6))",
    ((2, 3, 1, 1), (2, 3, 2, 3), (1, 3, 4, 2)),
    c="nn.Conv2d(3, 6, 1)",
)

# -- item 3: exponents, copies ------------------------------------------------------------------------------

_SHARED = "return self.o(self.shared(self.inp(x).view(-1, 3, 4)).flatten(1))"
_SHARED_PARTS = {"inp": "nn.Linear(5, 12)", "shared": "nn.Linear(4, 6, bias=False)", "o": "nn.Linear(18, 3)"}


def _ordered(order: tuple[str, ...]) -> None:
    name = f"shared over a view, {' '.join(order)}"
    PROGRAMS[name] = program(_SHARED, **_SHARED_PARTS)

    def build() -> tuple[nn.Module, list[Tensor]]:
        found = PROGRAMS[name]
        model = Model(found)
        model._modules = {part: model._modules[part] for part in order}
        return model, [found.inputs(shape, k) for k, shape in enumerate(found.shapes)]

    KNOWN[name] = build


for _order in (
    "inp shared o",
    "inp o shared",
    "shared inp o",
    "shared o inp",
    "o inp shared",
    "o shared inp",
):
    _ordered(tuple(_order.split()))

_h = "h = F.relu(self.l(x)); "
for _tail in """
    h.repeat(1, 2).flip(1)
    h.repeat(1, 2)[:, 1:]
    h.repeat(1, 2).roll(1, 1)
    h.repeat(1, 2).roll(5, 1)
    h.repeat(1, 2).reshape(-1, 4, 3).flatten(1)
    h.repeat(1, 2).reshape(-1, 4, 3).transpose(1, 2).flatten(1)
    h.repeat(1, 2).reshape(-1, 3, 4).sum(1)
    h.repeat(1, 2).view(-1, 2, 6).flip(2).flatten(1)
    h.repeat(1, 3)[:, ::2]
    h.tile(2).flip(1)
    h.tile(1, 2).roll(1, 1)
    h.tile(2)[:, 1:]
    h.unsqueeze(1).expand(-1, 2, -1).reshape(h.shape[0], 12).flip(1)
    h.unsqueeze(1).expand(-1, 2, -1).reshape(h.shape[0], 12)[:, 1:]
    h.expand(2, *h.shape).permute(1, 0, 2).reshape(-1, 12).flip(1)
    h.expand(2, *h.shape).permute(1, 0, 2).flatten(1)[:, 1:]
    h.expand(2, *h.shape).transpose(0, 1).flatten(1).roll(1, 1)
    h.repeat_interleave(2, 1).flip(1)
    h.repeat_interleave(2, 1)[:, 1:]
    h.repeat_interleave(2, 1).reshape(-1, 4, 3).flatten(1)
    torch.cat([h.repeat(1, 2), h], 1)
    torch.cat([h, h.repeat(1, 2)], 1)
    torch.cat([h.repeat(1, 2), h.flip(1)], 1)
    F.relu(h.repeat_interleave(2, 1) + torch.cat([h, torch.tanh(h)], 1))
    F.relu(h.repeat_interleave(2, 1) + h.repeat(1, 2))
    F.relu(h.repeat(1, 2) + torch.cat([h, torch.tanh(h)], 1))
    h.repeat(2, 1)[:h.shape[0]].flip(1)
""".strip().splitlines():
    known(_tail.strip(), f"{_h}return self.o({_tail.strip()})", l=L6)
    known(f"linear: {_tail.strip()}", f"h = self.l(x); return self.o({_tail.strip()})", l=L6)

known(
    "copies through a general linear map",
    "h = self.l(x); return self.o(torch.cat([h.repeat(1, 2), h], 1))",
    l="nn.Linear(5, 4, bias=False)",
)
known(
    "a class in two blocks",
    f"{_h}return self.o(self.w(torch.cat([h, h], 1).view(-1, 6, 4)).flatten(1))",
    l="nn.Linear(5, 12)",
    w="nn.Linear(4, 5)",
)
known(
    "a class in two blocks, linear",
    "h = self.l(x); return self.o(self.w(torch.cat([h, h], 1).view(-1, 6, 4)).flatten(1))",
    l="nn.Linear(5, 12)",
    w="nn.Linear(4, 5, bias=False)",
)

# -- item 3: ordered pairs, gates ---------------------------------------------------------------------------

_two = "h = torch.cat([torch.tanh(self.l(x)), F.relu(self.m(x))], 1); "
known(
    "ordered pairs",
    f"{_two}return self.o((h[:, :, None] * h[:, None] ** 2).flatten(1))",
    l="nn.Linear(5, 3)",
    m="nn.Linear(5, 3)",
)
known(
    "ordered pairs, one factor an output",
    f"{_two}h1 = self.o((h[:, :, None] * h[:, None] ** 2).flatten(1)); return h1, h",
    l="nn.Linear(5, 3)",
    m="nn.Linear(5, 3)",
    o="nn.Linear(36, 3)",
)
known(
    "ordered pairs, the first half an output",
    "h0 = torch.tanh(self.l(x)); h = torch.cat([h0, F.relu(self.m(x))], 1); "
    "h1 = self.o((h[:, :, None] * h[:, None] ** 2).flatten(1)); return h1, h0",
    l="nn.Linear(5, 3)",
    m="nn.Linear(5, 3)",
    o="nn.Linear(36, 3)",
)
known(
    "ordered pairs of one layer",
    f"{_h}return self.o((h[:, :, None] * h[:, None] ** 2).flatten(1))",
    l=L6,
)
known(
    "ordered pairs of two layers",
    "h = F.relu(self.l(x)); h1 = torch.tanh(self.m(x)); "
    "h2 = self.o((h[:, :, None] * h1[:, None] ** 2).flatten(1)); return h2, h1",
    l="nn.Linear(5, 3)",
    m="nn.Linear(5, 4)",
    o="nn.Linear(12, 3)",
)
_cut = "h = torch.cat([self.l(x), self.m(x)], 1); "
known(
    "even channels gated by odd ones backwards",
    f"{_cut}return self.o(h[:, ::2] * torch.sigmoid(h[:, 1::2].flip(1)))",
    l="nn.Linear(5, 3)",
    m="nn.Linear(5, 3)",
)
known(
    "even channels gated by odd ones backwards, wide",
    f"{_cut}return self.o(h[:, ::2] * torch.sigmoid(h[:, 1::2].flip(1)))",
    l="nn.Linear(5, 4)",
    m="nn.Linear(5, 4)",
)
known(
    "padded and gated by the other half",
    "h = F.pad(F.relu(self.l(x)), (1, 1)); return self.o(h[:, :3] * torch.sigmoid(h[:, 3:]))",
    l="nn.Linear(5, 4)",
)
known(
    "gated by itself rolled",
    f"{_h}return self.o(h * torch.sigmoid(h.roll(2, 1)))",
    l=L6,
)

# -- item 3: single rules -----------------------------------------------------------------------------------

for _cast in ("int()", "long()", "bool()", "to(torch.int32)", "to(torch.uint8)", "type(torch.int64)"):
    known(f"cast: {_cast}", f"h = self.l(x).{_cast}.to(x.dtype); return self.o(h)", l=L6)
    known(f"cast of 3h: {_cast}", f"h = (3 * F.relu(self.l(x))).{_cast}.to(x.dtype); return self.o(h)", l=L6)
known(
    "an embedding's index carries labels",
    "h = self.emb((self.l(x) > 0).long()); return self.o(h.flatten(1))",
    l=L6,
    emb="nn.Embedding(2, 4)",
)
known(
    "an embedding of rounded channels",
    "h = self.emb((2 * self.l(x)).round().clamp(0, 3).long()); return self.o(h.flatten(1))",
    l=L6,
    emb="nn.Embedding(4, 3)",
)
known(
    "an embedding of argmax",
    "h = self.emb(self.l(x).argmax(1)); return self.o(F.relu(h))",
    l=L6,
    emb="nn.Embedding(6, 4)",
)
for _dim in (-1, 0, 1):
    _g = {-1: "(())", 0: "(6, 1)", 1: "(1, 5)"}[_dim]
    known(
        f"_weight_norm dim {_dim}",
        f"h = F.relu(F.linear(x, torch._weight_norm(self.v, self.g, {_dim}))); return self.o(h)",
        v="nn.Parameter(torch.empty(6, 5))",
        g=f"nn.Parameter(torch.empty{_g})",
    )
known(
    "weight norm without a dim between layers",
    "h = F.relu(F.linear(F.relu(self.l(x)), torch._weight_norm(self.v, self.g, -1))); return self.o(h)",
    l=L6,
    v="nn.Parameter(torch.empty(4, 6))",
    g="nn.Parameter(torch.empty(()))",
)
for _reduce in ("logsumexp(0)", "prod(0)", "exp().sum(0)", "amax(0)", "std(0)"):
    known(
        f"zeros through {_reduce}",
        f"h = F.relu(self.l(x)); return self.o(h + torch.zeros_like(h).repeat(2, 1).{_reduce})",
        l=L6,
    )
known("an empty product", "h = F.relu(self.l(x)); return self.o(h + h[:0].prod(0))", l=L6)
known(
    "an empty product of zeros",
    "h = F.relu(self.l(x)); return self.o(h + torch.zeros_like(h)[:0].prod(0))",
    l=L6,
)
known(
    "an empty logsumexp of zeros",
    "h = F.relu(self.l(x)); return self.o(torch.where(h > 1, h, torch.zeros_like(h)[:1].logsumexp(0)))",
    l=L6,
)
known("an empty sum", "h = F.relu(self.l(x)); return self.o(h + h[:0].sum(0))", l=L6)
known(
    "an empty product along channels",
    "h = F.relu(self.l(x)); return self.o(h + h[:, :0].prod(1, keepdim=True))",
    l=L6,
)
known(
    "batch norm in training mode",
    "h = F.batch_norm(self.l(x), self.mean, self.var, self.g, self.b, training=True); "
    "return self.o(F.relu(h))",
    ((4, 5), (2, 5), (7, 5)),
    l=L6,
    mean="torch.empty(6)",
    var="torch.ones(6)",
    g="nn.Parameter(torch.empty(6))",
    b="nn.Parameter(torch.empty(6))",
)
known(
    "batch norm in training mode, without gain",
    "h = F.relu(F.batch_norm(F.relu(self.l(x)), self.mean, self.var, training=True)); return self.o(h)",
    ((4, 5), (2, 5), (7, 5)),
    l=L6,
    mean="torch.empty(6)",
    var="torch.ones(6)",
)
for _random in (
    "F.dropout(h, 0.5, training=True)",
    "F.dropout1d(h, 0.5, training=True)",
    "F.alpha_dropout(h, 0.5, training=True)",
    "h * torch.rand_like(h)",
    "h + torch.randn_like(h)",
    "h * torch.bernoulli(torch.full_like(h, 0.5))",
    "h * torch.bernoulli(torch.sigmoid(h))",
    "h * torch.rand(h.shape[1], dtype=h.dtype)",
    "h * torch.rand(h.shape[0], 1, dtype=h.dtype)",
    "h[:, torch.randperm(6)]",
    "F.rrelu(h - 1, training=True)",
    "torch.normal(h, 1.0)",
    "h * torch.multinomial(h + 1, 1)",
):
    known(f"random: {_random}", f"{_h}return self.o({_random})", l=L6)

# -- found by random programs -------------------------------------------------------------------------------

known(
    "outer product of a layer with itself, one column kept",
    "h = self.l(x); h = torch.einsum('bti,btj->bij', h, h) * (torch.arange(3) == 0); "
    "return self.o(h.flatten(1))",
    ((2, 4, 5), (3, 4, 5), (1, 7, 5)),
    l="nn.Linear(5, 3)",
)
known(
    "each channel times each other in two orders",
    "h = self.l(x); return self.o(h.repeat_interleave(2, 1) * torch.cat([h] * 2, 1))",
    l="nn.Linear(5, 4)",
)
known(
    "outer product of a tied linear autoencoder",
    "h = F.linear(self.l(x), self.l.weight.t()); "
    "return self.o((h.unsqueeze(-1) * F.selu(h).unsqueeze(-2)).flatten(1))",
    l="nn.Linear(5, 3)",
)
known(
    "transposed with the batch, in the same shape, from batch 1",
    "h = F.relu(self.l(x)); return self.o(h.transpose(0, 1).reshape(h.shape))",
    FROM_ONE,
    l=L6,
)
known(
    "batch norm after a transpose with the batch, from batch 1",
    "h = self.l(x); return self.m(h.t().reshape(h.shape[0], -1))",
    FROM_ONE,
    l="nn.Linear(5, 3, bias=False)",
    m="nn.BatchNorm1d(3)",
)
known(
    "an embedding of comparisons, returned",
    "return self.emb((self.l(x) > 0).long())",
    l=L6,
    emb="nn.Embedding(4, 4)",
)
known(
    "batch norm in training mode of the input",
    "return F.batch_norm(x, self.mean, self.var, self.g, training=True)",
    ((4, 5), (3, 5), (7, 5)),
    mean="torch.empty(5)",
    var="torch.ones(5)",
    g="nn.Parameter(torch.empty(5))",
)
known(
    "positions cut at the length, returned",
    "return self.pos[:x.shape[1]] + x",
    LONG,
    pos="nn.Parameter(torch.empty(16, 5))",
)
known("no parameters", "return x.flip(1)")
known(
    "rows as long as the length, which is the width by chance",
    "h = self.l(x); return h.reshape(h.shape[0], -1, h.shape[1]).select(2, 0)",
    ((2, 4, 5), (1, 7, 5), (3, 2, 5)),
    l="nn.Linear(5, 4, bias=False)",
)
known(
    "a length that is the width by chance, and no other length but one runs",
    "h = self.l(x); r = h.reshape(h.shape[0], -1, h.shape[1]); "
    "o = (r.unsqueeze(-1) * h.unsqueeze(2)).flatten(2); return torch.einsum('bti,bsi->bts', o, o)",
    ((1, 4, 5), (2, 1, 5)),
    l="nn.Linear(5, 4)",
)
known(
    "joined parts that are empty at a length of one",
    "h = x[:, 1:]; return self.o(F.relu(self.l(torch.cat([h, h], 1))))",
    ((3, 2, 6), (2, 1, 6), (2, 4, 6)),
    l="nn.Linear(6, 4)",
    o="nn.Linear(4, 3)",
)
known(
    "rows of a table that a batch of one is stretched to, and no other batch but theirs runs",
    "return self.c(self.l(x) + self.p)",
    ((1, 5), (4, 5)),
    l="nn.Linear(5, 4)",
    p="nn.Parameter(torch.empty(4, 4))",
    c="nn.ConvTranspose1d(4, 4, 2)",
)
known(
    "rows of a table made in forward that a length of one is stretched to",
    "h = self.l(x) + torch.ones(6, 4, dtype=x.dtype); return self.o(F.relu(self.c(h)).flatten(1))",
    ((2, 1, 5), (2, 6, 5), (3, 6, 5)),
    l="nn.Linear(5, 4)",
    c="nn.Conv1d(6, 3, 1)",
    o="nn.Linear(12, 2)",
)
known(
    "channels between height and width in a flatten: only the product is fixed",
    "return self.o(self.c(x).unsqueeze(3).transpose(3, 1).flatten(1))",
    ((2, 3, 4, 4), (2, 3, 2, 8), (1, 3, 8, 2)),
    c="nn.Conv2d(3, 2, 3, padding=1)",
    o="nn.Linear(32, 3)",
)
known(
    "the batch flattened as well: only the product is fixed",
    "return self.o(F.relu(self.l(x)).transpose(0, 1).flatten())",
    ((4, 6), (4, 6)),
    l="nn.Linear(6, 8)",
    o="nn.Linear(32, 3)",
)
known(
    "a scramble that is none for squares",
    "h = self.c(x); return self.o(h.reshape(h.shape[0], h.shape[1], h.shape[3], h.shape[2])"
    ".transpose(2, 3).mean((2, 3)))",
    ((2, 3, 4, 4), (2, 3, 3, 5), (1, 3, 6, 2)),
    c="nn.Conv2d(3, 2, 3, padding=1)",
    o="nn.Linear(2, 3)",
)
known(
    "channels cut by a view across height and width",
    "h = self.c(x); return self.o(h.reshape(h.shape[0], h.shape[3], h.shape[1], h.shape[2]).mean((1, 3)))",
    ((2, 3, 4, 4), (2, 3, 3, 5), (1, 3, 6, 2), (1, 3, 2, 6)),
    c="nn.Conv2d(3, 2, 3, padding=1)",
    o="nn.Linear(2, 3)",
)
known(
    "a length of one, and the next that fits is four",
    "h = self.l(x); h = h.reshape(h.shape[0], -1, h.shape[1]); h = torch.stack([h, h], 2).split(3, 3)[-1]; "
    "return self.o(h.flatten(1))",
    ((2, 1, 5), (1, 4, 5), (2, 4, 5)),
    l="nn.Linear(5, 6)",
    o="nn.Linear(12, 3)",
)
known(
    "what is left out of every batch but of one",
    "h = self.l(x); h = h.transpose(2, 0).reshape(h.shape); return h[h.shape[0] // 2:]",
    ((3, 2, 6), (1, 2, 6), (4, 2, 6)),
    l="nn.Linear(6, 4)",
)
known(
    "copies that are divided by their common length do not mix",
    "h = self.l(x).repeat(1, 1, 2).roll(2, 2); return self.o(h / h.norm(dim=2, keepdim=True))",
    ((1, 4, 5), (2, 4, 5), (1, 3, 5)),
    l="nn.Linear(5, 8)",
    o="nn.Linear(16, 3)",
)
known(
    "a length that shares no divisor with the width cuts between all channels",
    "h = self.e(x); h = h.reshape(h.shape[0], -1, h.shape[1]).amax(2); "
    "return self.o(h.norm(p=1, dim=1, keepdim=True) * h)",
    ((1, 3), (2, 5), (2, 7)),
    8,
    e="nn.Embedding(8, 6)",
    o="nn.Linear(6, 3)",
)
known(
    "something is empty at every size, and a batch of one hides a scramble",
    "h = self.l(x); h = h * h[:0].prod(0, keepdim=True); h = h.transpose(2, 0).reshape(h.shape); "
    "return self.o(h.flatten(1))",
    ((1, 4, 5), (3, 4, 5), (2, 4, 5)),
    l="nn.Linear(5, 6)",
    o="nn.Linear(24, 3)",
)
for name, body in {
    "a table that is projected first": "return x + self.l(self.t)[: x.shape[1]]",
    "a table that is normed first": "return x + F.layer_norm(self.t, (5,))[: x.shape[1]]",
    "a table that is read as a whole too": "return x + self.t[: x.shape[1]] + self.t.mean(0)",
    "half a table": "return x + self.l(self.t)[: x.shape[1] // 2].mean(0)",
    "the row that a size chooses": "return x * self.l(self.t)[x.shape[1]].sigmoid() + self.t.mean(0)",
    "the first part of a table that is split": "return x + self.l(self.t).split(x.shape[1])[0]",
    "the end of a table that reads itself": "return F.linear(self.t[-x.shape[1] :], self.t)",
}.items():
    known(
        f"what a slice reads depends on the size: {name}",
        body,
        ((2, 4, 5), (1, 7, 5), (2, 11, 5), (1, 23, 5)),
        t="nn.Parameter(torch.empty(24, 5))",
        l="nn.Linear(5, 5)",
    )

# A matrix norm sees rows and columns, not entries.
for _order in ("2", "1", "float('inf')", "'nuc'"):
    known(
        f"a matrix norm of order {_order} of channels cut into a matrix",
        f"h = F.relu(self.l(x)); n = torch.linalg.norm(h.view(-1, 2, 3), {_order}, (1, 2)); "
        "return self.o(h / (0.1 + n[:, None]))",
        l=L6,
    )

# The ops are the same at every size, the weights are not.
known(
    "a gain of odd batches",
    "h = self.l(x); return self.o(h * (2 if x.shape[0] % 2 == 0 else self.g))",
    ((3, 5), (1, 5), (4, 5), (2, 5)),
    l=L6,
    g="nn.Parameter(torch.empty(6))",
)
known(
    "another layer for one row",
    "h = self.l(x); return self.o(F.linear(h, self.a if x.shape[0] > 1 else self.b))",
    ((3, 5), (1, 5), (4, 5)),
    l=L6,
    a="nn.Parameter(torch.empty(6, 6))",
    b="nn.Parameter(torch.empty(6, 6))",
)

known(
    "a number that is read off one channel",
    "return self.o(x) * F.relu(self.l(x[0])).item()",
    l="nn.Linear(5, 1)",
    o="nn.Linear(5, 3)",
)
known(
    "entries that their own mask picks",
    "h = F.relu(self.l(x)); return self.o(h[h > -1].view(-1, 6))",
    l=L6,
)
known(
    "channels that a mask of the data picks",
    "h = F.relu(self.l(x)); return h[:, h[0] > -1] @ h[:, h[0] > -1].t()",
    l=L6,
)
known(
    "as many rows as a layer says",
    "h = F.relu(self.l(x)); r = h[h.sum(1) > 1]; "
    "return self.o(r).sum(0), self.o(h[(h > 0.5).any(1)]).mean(0)",
    l=L6,
    o="nn.Linear(6, 3)",
)
known(
    "rows that are picked, cut into other rows",
    "h = F.relu(self.l(x)); return self.o(h[x.sum(1) > -99].t().reshape(-1, 6))",
    l=L6,
)

# Minutes in the solver: every entry that was unbound made labels of its own for the whole joint dimension.
known(
    "hundreds of unbound entries",
    """
    h = torch.sign(self.l(x)).flatten(0)
    h = h.unsqueeze(-1).expand(*h.shape, 3).flatten(-2)
    return torch.stack(h.unbind(0)[1:], 0)
    """,
    LONG,
    l=L6,
)

# Statistics that an op writes although neither its schema nor the graph says so.
known(
    "instance norm that writes its statistics",
    """
    h = F.instance_norm(self.c(x), self.n.running_mean, self.n.running_var, use_input_stats=True)
    return self.d(torch.tanh(h))
    """,
    PIXELS,
    c="nn.Conv2d(3, 6, 3)",
    d="nn.Conv2d(6, 4, 2)",
    n="nn.InstanceNorm2d(6, track_running_stats=True)",
)

known(
    "copies lie elsewhere among the positions from the third row on",
    "h = self.e(x); h = h[h.shape[0] // 2 :].repeat_interleave(2, 1).cummin(2).values; "
    "h = h.transpose(2, 0).reshape(h.shape); return self.o((h.transpose(-1, -2) @ h).flatten(1))",
    ((1, 3), (3, 2), (2, 5), (4, 3), (5, 4)),
    8,
    e="nn.Embedding(8, 4)",
    o="nn.Linear(16, 3)",
)

"""Inputs that need no data: tokens that the model writes itself, random tokens, pictures with a 1/f spectrum.

A causal language model that is sampled from, token after token, writes text of the kind that it was trained
on. Other tokens are drawn evenly from the rows of the embedding that looks them up, between the tokens that
all rows of the example begin and end with (as encoders are trained: much of attention goes there). Pictures
have Gaussian Fourier coefficients of size 1 / frequency, as photographs have; other real inputs are Gaussian.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from intertwine.errors import Unsupported
from intertwine.graph.export import eval_copy
from intertwine.merging.contractions import Call
from intertwine.rules.registry import facts
from intertwine.symmetry import Symmetry

ROWS = 256
DATA, WRITTEN, RANDOM = "data", "written", "random"  # what is measured on
CALIBRATIONS = (DATA, WRITTEN, RANDOM)


def random_inputs(
    model: nn.Module, symmetry: Symmetry, rows: int = ROWS, seed: int = 0, writes: bool | None = None
) -> Call:
    """Arguments of the traced example's shapes, as many rows as asked for, by position and by name.

    writes: whether the model is to write its tokens itself (None: if it can, True: or `Unsupported`).

    >>> from intertwine import trace
    >>> net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 2))
    >>> (tokens,), named = random_inputs(net, trace(net, torch.zeros(2, 3, dtype=torch.long)), rows=5)
    >>> tokens.shape, int(tokens.max()) < 7
    (torch.Size([5, 3]), True)
    """
    generator = torch.Generator().manual_seed(seed)
    example = symmetry.traced.example
    values = [*example.args, *example.kwargs.values()]
    tensors = [x for x in values if isinstance(x, Tensor)]
    batch = next((int(x.shape[0]) for x in tensors if x.dim()), 1)
    vocabulary = dict(zip(map(id, tensors), _vocabularies(symmetry), strict=False))

    def draw(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.dim() or x.shape[0] != batch:
            return x
        shape = (rows, *x.shape[1:])
        if x.is_floating_point():
            made = _pictures(shape, generator) if x.dim() == 4 else torch.randn(shape, generator=generator)
            return made.to(x)
        if vocabulary.get(id(x)):
            return _tokens(x, vocabulary[id(x)], rows, generator)
        return x[:1].expand(shape).contiguous()

    made = [draw(x) for x in values]
    written: Tensor | None = None
    if writes is not False and len(made) == 1 and made[0].dim() == 2 and vocabulary.get(id(values[0])):
        written = _write(model, made[0], vocabulary[id(values[0])], generator)
        made = [made[0] if written is None else written]
    if writes and written is None:
        raise Unsupported(
            "only a causal language model that takes nothing but tokens can write its own text",
            do="calibrate on random inputs, or on data",
        )
    count = len(example.args)
    return tuple(made[:count]), dict(zip(example.kwargs, made[count:], strict=True))


def _tokens(example: Tensor, vocabulary: int, rows: int, generator: torch.Generator) -> Tensor:
    """Tokens drawn evenly; those on which all rows of the example agree, and which stand nowhere else in it,
    stay where they are and are not drawn: ends of texts, places for images.

    >>> _tokens(torch.tensor([[1, 2, 0], [2, 1, 0]]), 9, 4, torch.Generator())[:, -1].unique()
    tensor([0])
    >>> len(_tokens(torch.tensor([[0, 0], [0, 1]]), 9, 40, torch.Generator())[:, 0].unique())
    9
    """
    alike = (example == example[:1]).all(0) & (len(example) > 1)
    alike &= not bool(alike.all())
    alike &= ~torch.isin(example[0], example[:, ~alike])
    free = torch.ones(vocabulary, dtype=torch.bool)
    free[example[0][alike].cpu()] = False
    choice = free.nonzero()[:, 0]
    drawn = choice[torch.randint(len(choice), (rows, *example.shape[1:]), generator=generator)]
    return torch.where(alike, example[:1], drawn.to(example))


def _vocabularies(symmetry: Symmetry) -> list[int]:
    """For every argument the rows of the embedding that looks it up; 0 where none does."""
    traced = symmetry.traced
    fixed = {*traced.weights, *traced.constants}
    inputs = [n for n in traced.graph.nodes if n.op == "placeholder" and n.name not in fixed]
    return [_vocabulary(node) for node in inputs]


def _vocabulary(node: fx.Node) -> int:
    for user in node.users:
        if facts(user).looks_up and len(user.args) > 1 and user.args[1] is node:
            table: Any = user.args[0]
            return int(table.meta["val"].shape[0])
    return 0


@torch.no_grad()
def _write(model: nn.Module, tokens: Tensor, vocabulary: int, generator: torch.Generator) -> Tensor | None:
    """What a causal language model writes by itself; None if the model is none."""
    copied = eval_copy(model, share=True)
    probe = tokens[:2].clone()
    scores = _scores(copied(probe))
    if scores is None or scores.shape != (*probe.shape, vocabulary):
        return None
    probe[:, -1] = (probe[:, -1] + 1) % vocabulary
    changed = _scores(copied(probe))
    assert changed is not None
    if not torch.allclose(scores[:, :-1], changed[:, :-1], atol=1e-4 * float(scores.abs().max())):
        return None
    written = tokens.clone()
    for t in range(1, tokens.shape[1]):
        logits = _scores(copied(written[:, :t]))
        assert logits is not None
        written[:, t] = torch.multinomial(logits[:, -1].softmax(-1), 1, generator=generator)[:, 0]
    return written


def _scores(output: Any) -> Tensor | None:
    if isinstance(output, (tuple, list)):
        output = output[0]
    output = getattr(output, "logits", output)
    return output if isinstance(output, Tensor) else None


def _pictures(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Gaussian pictures whose amplitudes fall as 1 / frequency, the colours alike, of unit variance."""
    batch, channels, height, width = shape
    y, x = torch.meshgrid(torch.fft.fftfreq(height), torch.fft.fftfreq(width), indexing="ij")
    falls = 1.0 / torch.hypot(y, x).clamp_min(1.0 / max(height, width))
    shared, own = (torch.randn(batch, c, height, width, generator=generator) for c in (1, channels))
    noise = 0.95 * shared + 0.3 * own
    out = torch.fft.ifft2(torch.fft.fft2(noise) * falls).real
    result: Tensor = out / out.std(dim=(1, 2, 3), keepdim=True)
    return result

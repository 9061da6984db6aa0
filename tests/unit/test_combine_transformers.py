"""combine on pre-norm transformers: folded norms, rotated streams, matched heads, learning on outputs."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from intertwine import act, combine, fold, trace
from intertwine.aligning import mix
from intertwine.cli.program import main
from intertwine.combining import align_all
from intertwine.combining._distil import distilled, teachers
from intertwine.data import load_data
from intertwine.errors import Unsupported
from intertwine.zoo.nanogpt import nanogpt

IDS = torch.randint(0, 11, (60, 8), generator=torch.Generator().manual_seed(0))


def small(seed):
    """A GPT whose norms have gains and shifts."""
    torch.manual_seed(seed)
    net = nanogpt(classes=11, context=8, width=16, heads=4, layers=2).eval()
    for module in net.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.3)
    return net


@torch.no_grad()
def off(a, b):
    """How far apart two networks are, relative to the spread of the first."""
    return float((a(IDS) - b(IDS)).square().mean() / a(IDS).var())


def test_a_folded_network_computes_the_same_and_its_stream_rotates():
    net = small(0)
    folded = fold(net, IDS[:2])
    assert off(net, folded) < 1e-9
    kinds = {str(axis.group) for axis in trace(folded, IDS[:2]).axes if axis.size == 16}
    assert "orthogonal" in kinds
    assert "orthogonal" not in {str(axis.group) for axis in trace(net, IDS[:2]).axes if axis.size == 16}


def test_what_cannot_be_folded_says_why():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.norm, self.out = nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)
            self.beside = nn.Linear(4, 2)

        def forward(self, x):
            x = self.inner(x)
            return self.out(self.norm(x)) + self.beside(x)

    with pytest.raises(Unsupported, match="without a norm"):
        fold(Bare(), torch.zeros(2, 3))
    with pytest.raises(Unsupported, match="no norm"):
        fold(nn.Linear(3, 2), torch.zeros(2, 3))


def test_activations_find_rotations_of_the_stream_and_of_heads():
    """A planted rotation of the stream, heads permuted and turned, MLP channels permuted."""
    net = fold(small(1), IDS[:2])
    symmetry = trace(net, IDS[:2])
    planted = symmetry.sample(3, parts=("permutation", "linear"), spread=0.0)
    other = act(net, planted)
    assert off(net, mix([net, other], [0.5, 0.5])) > 0.05  # the control
    elements = align_all([net, other], symmetry, data=IDS)
    aligned = act(other, elements[1])
    assert off(net, aligned) < 1e-6
    assert off(net, mix([net, aligned], [0.5, 0.5])) < 1e-4


def test_pre_norm_networks_fold_by_themselves():
    a, b = small(0), small(1)
    found, asked = (combine([a, b], train_data=IDS, **how) for how in ({}, {"fold": True}))
    assert found.folding is not None and found.folding.untied == ("wte",)
    assert off(found.model, asked.model) < 1e-9
    assert combine([a, b], train_data=IDS, how="average", fold=False).folding is None


class Untied(nn.Module):
    """A pre-norm block; nothing is tied, so that the norms can come back."""

    def __init__(self, pooled=False):
        super().__init__()
        self.pooled = pooled
        self.table, self.one, self.two = nn.Embedding(11, 8), nn.LayerNorm(8), nn.LayerNorm(8)
        self.up, self.down, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 5)

    def forward(self, ids):
        x = self.table(ids)
        x = x + self.down(torch.relu(self.up(self.one(x))))
        return self.head(self.two(x).mean(1) if self.pooled else self.two(x))


def untied(seed, pooled=False):
    torch.manual_seed(seed)
    net = Untied(pooled).eval()
    for norm in (net.one, net.two):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.3)
    return net


@pytest.mark.parametrize("pooled", [False, True])
def test_what_was_folded_gets_its_norms_back(pooled):
    """The architecture that was given, whose norms have gain one; nearer to the mean than without folding.

    A mean over tokens before the head hands the shift of the norm on, into the bias of the head.
    """
    a, b = untied(0, pooled), untied(1, pooled)
    found = combine([a, b], train_data=IDS)
    assert found.folding is None and found.model.state_dict().keys() == a.state_dict().keys()
    assert type(found.model.one) is nn.LayerNorm and bool((found.model.one.weight == 1).all())
    with torch.no_grad():
        wanted = (a(IDS) + b(IDS)) / 2
        plain = combine([a, b], train_data=IDS, fold=False).model
        errors = [float((m(IDS) - wanted).square().mean()) for m in (found.model, plain)]
    assert errors[0] < errors[1]


def test_layers_of_two_transformers_are_solved_for():
    a, b = small(0), small(1)
    found = {}
    for repair in ("none", "least-squares"):
        made = combine([a, b], train_data=IDS, repair=repair, fold=True).model
        with torch.no_grad():
            found[repair] = float((made(IDS) - (a(IDS) + b(IDS)) / 2).square().mean())
    assert found["least-squares"] < 0.7 * found["none"]


class Transposed(nn.Module):
    """Weights that are read as bias + x @ weight, as GPT-2 has them."""

    def __init__(self):
        super().__init__()
        self.up, self.start = nn.Parameter(torch.randn(6, 16)), nn.Parameter(torch.randn(16))
        self.down = nn.Linear(16, 3)

    def forward(self, x):
        return self.down(torch.relu(torch.addmm(self.start, x, self.up)))


def test_transposed_weights_are_solved_for_as_others_are():
    torch.manual_seed(0)
    nets, x = [Transposed().eval() for _ in range(2)], torch.randn(400, 6)
    plain = []
    for net in nets:
        other = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
        state = {
            "0.weight": net.up.T,
            "0.bias": net.start,
            "2.weight": net.down.weight,
            "2.bias": net.down.bias,
        }
        other.load_state_dict(state)
        plain.append(other)
    found, wanted = (combine(each, train_data=x).model for each in (nets, plain))
    with torch.no_grad():
        torch.testing.assert_close(found(x), wanted(x), rtol=1e-3, atol=1e-3)


def test_a_head_tied_under_another_name_is_folded():
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.norm = nn.Embedding(11, 8), nn.LayerNorm(8)
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.table.weight
            nn.init.uniform_(self.norm.weight, 0.5, 1.5)

        def forward(self, ids):
            return self.head(self.norm(self.table(ids)))

    net = Head().eval()
    assert off(net, fold(net, IDS[:2])) < 1e-9


def test_learning_comes_nearer_to_the_mean_outputs_and_touches_nothing():
    a, b = small(0), small(1)
    start = mix([a, b], [0.5, 0.5])
    before = {name: t.clone() for name, t in start.state_dict().items()}
    learned = distilled(start, teachers([a, b], [0.5, 0.5], IDS), IDS, epochs=80, learning_rate=3e-2)
    with torch.no_grad():
        wanted = ((a(IDS) + b(IDS)) / 2).softmax(-1)
        first, last = (float((m(IDS).softmax(-1) - wanted).square().mean()) for m in (start, learned))
    assert last < 0.7 * first
    assert all(torch.equal(t, before[name]) for name, t in start.state_dict().items())


def test_learning_keeps_the_start_where_nothing_is_better():
    a = small(0)
    wild = distilled(a, teachers([a, a], [0.5, 0.5], IDS), IDS, epochs=2, learning_rate=1.0)
    assert off(a, wild) == 0


def test_encoders_are_measured_by_the_cosine_with_their_mean(tmp_path, capsys):
    """A masked language model without a tokenizer has nothing to predict: outputs are compared."""
    pytest.importorskip("transformers")
    text = tmp_path / "a.txt"
    text.write_text("to be or not to be that is the question " * 60)
    argv = ["combine", "hf:bert?layers=1", "hf:bert?layers=1", "--data", f"text:{text}", "--context", "8",
            "--json"]  # fmt: skip
    assert main(argv) == 0  # both are the same network
    found = json.loads(capsys.readouterr().out)
    assert found["cosine_after"] == pytest.approx(1) and found["cosine_before"] == pytest.approx([1, 1])
    data = load_data(f"text:{text}", context=8, objective="embedding")
    torch.manual_seed(0)
    a, b = (nn.Sequential(nn.Embedding(40, 6), nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 5)) for _ in "ab")
    result = combine([a, b], data, train_data=data)
    x = data.images
    with torch.no_grad():
        mean = (a(x).mean(1) + b(x).mean(1)) / 2
        alike = nn.functional.cosine_similarity
        wanted = [alike(m(x).mean(1), mean, dim=-1).mean().item() for m in (a, b)]
    assert [stage.cosine for stage in result.before] == pytest.approx(wanted, abs=1e-4)
    assert "cosine" in repr(result) and "cosine" in result.page().write(tmp_path / "a.html").read_text()

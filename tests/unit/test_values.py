"""symmetry.values: channels and groups where guessing went wrong, one export, any data, what can be added."""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import intertwine
from intertwine import Group, act, collect, compare, functional_similarity, rotate, stitch, trace
from intertwine.cli import main
from intertwine.comparing import MEASURES, measure, measure_for, similarity
from intertwine.comparing import collect as collect_module
from intertwine.data import Batches
from intertwine.errors import DataError, InputError, NotFound
from intertwine.ir.groups import FAMILIES
from intertwine.rules import RULES
from intertwine.stitching import STITCH_CLASSES, parse_kind, stitch_class
from value_oracle import check_every_value

PACKAGE = Path(intertwine.__file__).parent


class Mixing(nn.Module):
    """Channels, then tokens, are mixed: channels lie on dimension 2, then on 1, tokens are mixed on 2."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.mix, self.out = nn.Linear(5, 12), nn.Linear(6, 7), nn.Linear(84, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.inner(x)).transpose(1, 2)
        return self.out(torch.relu(self.mix(hidden)).flatten(1))


class Attention(nn.Module):
    """torch's multi-head attention with a packed in_proj_weight."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.out = nn.Linear(5, 12), nn.LayerNorm(12), nn.Linear(12, 4)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        return self.out(self.norm(x + self.attention(x, x, x, need_weights=False)[0])).mean(1)


def tokens(count: int = 60, seed: int = 0) -> Tensor:
    return torch.randn(count, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("make", [Mixing, Attention])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_model_is_like_itself_under_the_group_at_every_value(make: type[nn.Module], seed: int) -> None:
    torch.manual_seed(seed)
    model = make().double().eval()
    symmetry = check_every_value(model, (tokens(4),))
    result = compare(model, act(model, symmetry.sample(seed)), tokens(), "auto", at="all", symmetry=symmetry)
    assert np.diag(result.values["auto"]) == pytest.approx(1, abs=1e-6)
    other = compare(model, make().double().eval(), tokens(), "auto", at="all")
    assert np.diag(other.values["auto"]).min() < 0.99  # the control: other weights are not alike


def test_what_is_made_from_sizes_alone_is_no_value_of_the_inputs() -> None:
    """A mask of zeros and ones has two rows, as the example has, and none for each of other inputs."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.out = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            mask = x.new_zeros(2, 6)
            mask[:1, 2:] = 1
            return self.out(torch.relu(self.inner(x)) + mask.sum(0)[None, :, None])

    torch.manual_seed(0)
    model = Masked().double().eval()
    symmetry = trace(model, tokens(2))
    result = compare(model, act(model, symmetry.sample(0)), tokens(), "auto", at="all", symmetry=symmetry)
    assert [name.split(".")[0] for name in result.layers_a] == ["inner", "relu", "add", "out"]
    assert np.diag(result.values["auto"]) == pytest.approx(1, abs=1e-6)


def test_a_product_is_a_value_unless_its_channels_are_summed() -> None:
    class Gated(nn.Module):
        def __init__(self, over: int) -> None:
            super().__init__()
            self.inner, self.gate, self.over = nn.Linear(5, 8), nn.Linear(5, 8), over

        def forward(self, x: Tensor) -> Tensor:
            return (self.inner(x) * torch.sigmoid(self.gate(x))).mean(self.over)

    assert "mul" in trace(Gated(1), tokens(2).float()).values  # a pool behind a gate
    assert "mul" not in trace(Gated(2), tokens(2).float()).values  # half of a contraction


def test_the_token_mixing_net_has_its_channels_on_two_dimensions() -> None:
    values = trace(Mixing(), tokens(3).float()).values
    assert {n: v.channels for n, v in values.items()} == {
        "inner": (2,), "relu": (2,), "mix": (1, 2), "relu_1": (1, 2), "out": (1,),
    }  # fmt: skip
    assert [[a.name for a in dim] for dim in values["mix"].axes] == [[], ["inner"], ["mix"]]
    assert values["mix"].makers == ("mix.weight", "mix.bias") and values["mix"].readers == ("relu_1",)
    assert values["out"].group.is_trivial and "output" in values["out"].reason
    with pytest.raises(NotFound, match="no layer named"):
        values["mixx"]


def test_the_value_of_attention_is_not_trivial() -> None:
    value = trace(Attention(), tokens(3).float()).values["attention.scaled_dot_product_attention"]
    assert value.group.name == "general linear" and value.channels == (1, 3)


def test_a_readme_axis_has_a_measure() -> None:
    norm, last = nn.BatchNorm2d(16), nn.Linear(576, 10)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), norm, nn.ReLU(), nn.Flatten(), last)
    axis = trace(model, torch.randn(2, 3, 8, 8)).axis("0")
    x = torch.randn(40, 16, generator=torch.Generator().manual_seed(0))
    assert similarity(x, -3 * x.flip(1), "auto", group=axis.group) == pytest.approx(1, abs=1e-5)


# -- one Group -----------------------------------------------------------------------------------------------

GROUPS = [Group.parse(f"{name}{blocks}") for name in FAMILIES for blocks in ("", " in each of 2 blocks")]


def test_groups_are_a_lattice() -> None:
    for a, b in itertools.product(GROUPS, GROUPS):
        assert Group.parse(str(a)) == a
        meet, join = a & b, a | b
        assert meet <= a and meet <= b and a <= join and b <= join
        for c in GROUPS:
            assert not (c <= a and c <= b) or c <= meet
            assert not (a <= c and b <= c) or join <= c
    with pytest.raises(NotFound, match="no group prints as"):
        Group.parse("Lorentz")


def test_every_group_has_the_smallest_measure_that_contains_it() -> None:
    for group in GROUPS:
        chosen = MEASURES[measure_for(group)]
        assert group <= chosen.group
        others = [m for m in MEASURES.values() if m.chosen and group <= m.group]
        assert all(chosen.group <= m.group for m in others if m.group <= chosen.group)


# -- one export ----------------------------------------------------------------------------------------------


def test_one_export_a_model_whatever_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    exports: Counter[str] = Counter()
    real = collect_module.__wrapped__.__globals__["Runner"].run.__globals__["export"]

    def counted(model: nn.Module, *args: Any) -> Any:
        exports[type(model).__name__] += 1
        return real(model, *args)

    monkeypatch.setitem(collect_module.__wrapped__.__globals__["Runner"].run.__globals__, "export", counted)
    a, b = Mixing(), Attention()
    data = [tokens(n, n).float() for n in (32, 32, 7, 1, 50)]
    compare(a, b, data, ["cka", "auto", "cka-rbf"])
    assert exports == {"Mixing": 1, "Attention": 1}
    found = collect(a, data, at="all")
    assert torch.allclose(found.outputs, a(torch.cat(data)), atol=1e-5)
    assert torch.allclose(found["inner"], a.inner(torch.cat(data)).transpose(1, 2), atol=1e-5)


# -- any data ------------------------------------------------------------------------------------------------


class Named(nn.Module):
    """Takes a keyword argument."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def forms(x: Tensor, y: Tensor) -> dict[str, Any]:
    return {
        "pair": (x, y),
        "dataset": TensorDataset(x, y),
        "loader": DataLoader(TensorDataset(x, y), batch_size=7),
        "batches": [(x[:9], y[:9]), (x[9:], y[9:])],
    }


@pytest.mark.parametrize("form", ["pair", "dataset", "loader", "batches"])
def test_every_function_takes_every_form_of_data(form: str) -> None:
    torch.manual_seed(0)
    net, x = Named(), torch.randn(30, 4)
    data = forms(x, net(x).argmax(1))
    assert torch.allclose(collect(net, data[form]).outputs, net(x), atol=1e-6)
    assert compare(net, net, data[form], "cka").matched("cka")[0][2] == pytest.approx(1)
    assert functional_similarity(net, net, data[form]).accuracy_a == 1
    report = stitch(net, net, data[form], data["pair"], at="body.1", kinds=["group"], batch=10)
    assert report["body.1", "group"].trained == 0
    assert rotate(net, data[form], data[form], at="body.0", by="identity", epochs=0, batch=10).before == 1


def test_batches_of_dicts_and_what_is_refused() -> None:
    x = torch.randn(5, 4)
    assert [len(b["x"]) for b, _ in Batches({"x": x}, batch=2)] == [2, 2, 1]
    assert [len(b) for b, _ in Batches(x, batch=2, limit=3)] == [2, 1]
    with pytest.raises(DataError, match="cannot read data"):
        list(Batches(3))
    with pytest.raises(DataError, match="has no labels"):
        Batches(x).whole(labelled=True, name="it")
    with pytest.raises(DataError, match="5 inputs but 4 labels"):
        list(Batches((x, torch.zeros(4))))


# -- what can be added ---------------------------------------------------------------------------------------


def test_a_measure_from_outside(capsys: pytest.CaptureFixture[str]) -> None:
    @measure("mine", Group(permutation=True, sign=1), title="mine", pixels="pool", chosen=True)
    def mine(moments: Any) -> float:
        return 0.5

    try:
        x = torch.randn(10, 4)
        assert similarity(x, x, "mine") == 0.5
        assert measure_for("signed permutation") == "mine" and measure_for("orthogonal") == "procrustes"
        net = Named()
        assert compare(net, net, torch.randn(20, 4), "mine").values["mine"][0, 0] == 0.5
        with pytest.raises(InputError, match="already"):
            measure("mine", Group())(mine)
        assert main(["compare", "--help"]) == 0
        assert "mine" in capsys.readouterr().out
    finally:
        MEASURES.pop("mine")


def test_a_stitch_class_from_outside(capsys: pytest.CaptureFixture[str]) -> None:
    @stitch_class("flip", "channels backwards", ranges=lambda group: None, square=True)
    def flip(moments: Any, group: Group, number: float) -> Tensor:
        return torch.eye(moments.width_a, dtype=torch.float64).flip(0)

    try:
        net, x = Named(), torch.randn(30, 4)
        data = (x, net(x).argmax(1))
        report = stitch(net, net, data, data, at="body.1", kinds=["flip"], batch=10)
        assert torch.equal(report["body.1", "flip"].matrix, torch.eye(8).flip(0))
        with pytest.raises(InputError, match="takes no number"):
            parse_kind("flip:3")
        assert main(["stitch", "--help"]) == 0
        assert "channels backwards" in capsys.readouterr().out
    finally:
        STITCH_CLASSES.pop("flip")


# -- one place for what is known of ops ----------------------------------------------------------------------


def _tables(source: str) -> list[str]:
    """Collections of strings, or strings of words, mostly names of ops; and uses of torch.ops.aten."""
    common = {"mean", "var", "sum", "add", "index", "split", "linear", "max"}
    ops = {op.split(".")[0] for op in RULES} - common
    found = []
    for node in ast.walk(ast.parse(source)):
        words: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." not in node.value:
            words = node.value.split()
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            words = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.ops.aten":
            found.append("torch.ops.aten")
        known = [w for w in words if w in ops]
        if len(set(known)) >= 3 and 2 * len(known) > len(words):
            found.append(" ".join(known))
    return found


def test_no_table_of_ops_outside_the_rules() -> None:
    theirs = ("rules", "activations")
    elsewhere = [p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] not in theirs]
    tables = {str(p.relative_to(PACKAGE)): _tables(p.read_text(encoding="utf-8")) for p in elsewhere}
    named = {p: found for p, found in tables.items() if found}
    # the demo names activations to show; which ops are products belongs into the records of the rules
    assert named.keys() <= {"demo.py", "merging/contractions.py"}
    assert _tables('X = ("relu", "gelu", "conv2d")') and _tables('X = "relu gelu silu".split()')


def test_no_name_of_a_target_is_read_outside_the_rules() -> None:
    """`str(node.target)` is how a table of ops begins; the two of symmetry/ only print it."""
    named = re.compile(r"str\(\w+\.target\)|[\"']aten\.")
    elsewhere = [p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] != "rules"]
    readers = [p for p in elsewhere if named.search(p.read_text(encoding="utf-8"))]
    assert {str(p.relative_to(PACKAGE)) for p in readers} <= {"symmetry/infer.py", "symmetry/surgery.py"}

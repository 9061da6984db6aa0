"""Everybody's spec, generated: each format is read as its tool reads it, and what it says holds."""

from __future__ import annotations

import json
import string
from typing import Any

import networkx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import intertwine
from intertwine.cli import main
from intertwine.errors import InputError, NotFound
from intertwine.symmetry.specs import FORMATS


class Flat(nn.Module):
    """Convolutions, a residual, a batch norm and a flatten."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.inner, self.back = nn.Conv2d(6, 5, 3, padding=1), nn.Conv2d(5, 6, 3, padding=1)
        self.head = nn.Linear(6 * 16, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(x + self.back(F.relu(self.inner(x))))
        return self.last(F.relu(self.head(x.flatten(1))))


class Awkward(nn.Module):
    """What a permutation of whole dimensions cannot say: groups, heads, a concatenation, a shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.grouped = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 1, groups=2)
        self.b, self.both = nn.Conv2d(6, 4, 1), nn.Conv2d(10, 5, 1)
        self.c, self.d = nn.Conv2d(5, 6, 1), nn.Conv2d(6, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.grouped(F.gelu(self.a(x))))
        x = F.gelu(self.both(torch.cat([x, F.gelu(self.b(x))], 1)))
        return self.d(F.gelu(self.c(x)).flip(1)).mean((2, 3))


def generic(model: nn.Module) -> nn.Module:
    """float64, no weight at a value that hides a wrong permutation."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.is_floating_point():
                tensor.uniform_(0.5, 2) if name.endswith("var") else tensor.normal_(0.2, 0.6)
    return model.double().eval()


def permuted(model: nn.Module, axes_to_perm: dict[str, Any], perms: dict[str, Tensor]) -> nn.Module:
    """What Git Re-Basin does: every dimension of every entry of the state dict, by its permutation."""
    state = {}
    for name, tensor in model.state_dict().items():
        for dim, perm in enumerate(axes_to_perm[name]):
            if perm is not None:
                tensor = tensor.index_select(dim, perms[perm])
        state[name] = tensor
    moved = type(model)()
    moved.double().eval().load_state_dict(state)
    return moved


def drawn(axes_to_perm: dict[str, Any], model: nn.Module) -> dict[str, Tensor]:
    sizes = {
        perm: model.state_dict()[name].shape[dim]
        for name, dims in axes_to_perm.items()
        for dim, perm in enumerate(dims)
        if perm is not None
    }
    return {perm: torch.randperm(size).flip(0).roll(1) for perm, size in sizes.items()}


@pytest.fixture(scope="module")
def flat() -> tuple[nn.Module, Tensor, intertwine.Symmetry]:
    torch.manual_seed(0)
    model, x = generic(Flat()), torch.randn(2, 3, 4, 4, dtype=torch.float64)
    return model, x, intertwine.trace(model, x)


@pytest.fixture(scope="module")
def awkward() -> tuple[nn.Module, Tensor, intertwine.Symmetry]:
    torch.manual_seed(0)
    model, x = generic(Awkward()), torch.randn(2, 3, 4, 4, dtype=torch.float64)
    return model, x, intertwine.trace(model, x)


@pytest.mark.parametrize("which", ["flat", "awkward"])
def test_git_re_basin_permutes_the_state_dict_and_keeps_the_function(which, request):
    model, x, symmetry = request.getfixturevalue(which)
    spec = json.loads(symmetry.to_spec("git-re-basin").to_json())
    axes_to_perm = spec["axes_to_perm"]
    assert set(axes_to_perm) == set(model.state_dict())
    assert all(len(axes_to_perm[n]) == t.dim() for n, t in model.state_dict().items())
    inverse: dict[str, list[list[Any]]] = {}
    for name, dims in axes_to_perm.items():
        for dim, perm in enumerate(dims):
            if perm is not None:
                inverse.setdefault(perm, []).append([name, dim])
    assert inverse == spec["perm_to_axes"] and inverse
    torch.manual_seed(1)
    perms = drawn(axes_to_perm, model)
    moved = permuted(model, axes_to_perm, perms)
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), moved.parameters(), strict=True))
    assert torch.allclose(model(x), moved(x), atol=1e-12)
    # The control: one dimension forgotten, as a hand-written spec might.
    perm, ((name, dim), *_) = next((p, at) for p, at in inverse.items() if len(at) > 1)
    broken = {n: list(d) for n, d in axes_to_perm.items()}
    broken[name][dim] = None
    assert not torch.allclose(model(x), permuted(model, broken, perms)(x), atol=1e-6)


def test_what_cannot_be_said_is_left_out_with_the_reason(flat, awkward):
    often = "head.weight dim 1 carries each channel 16 times"
    assert flat[2].to_spec("git-re-basin").left_out == {"first": often}
    spec = awkward[2].to_spec("git-re-basin")
    assert "both" in spec.permutations
    reasons = " ".join(spec.left_out.values())
    assert "blocks" in reasons and "another order" in reasons and "other channels too" in reasons


def test_unf_numbers_move_together_and_fixed_dimensions_have_their_own(flat):
    model, x, symmetry = flat
    spec = symmetry.to_spec("unf")
    tree = json.loads(spec.to_json())
    leaves: dict[str, list[int]] = {}
    for name, tensor in model.state_dict().items():
        node = tree
        for part in name.split("."):
            node = node[part]
        assert len(node) == tensor.dim() and all(isinstance(k, int) for k in node)
        leaves[name] = node
    held = {n: [k if k in spec.permutations else None for k in dims] for n, dims in leaves.items()}
    fixed = [k for dims in leaves.values() for k in dims if k not in spec.permutations]
    assert len(set(fixed)) == len(fixed)
    perms = drawn(held, model)
    assert torch.allclose(model(x), permuted(model, held, perms)(x), atol=1e-12)


def test_folding_names_modules_what_they_read_and_whom_they_agree_with(flat):
    model, x, symmetry = flat
    spec = symmetry.to_spec("folding")
    graph = json.loads(spec.to_json())
    final = graph.pop("final_module_name")
    modules, first = dict(model.named_modules()), graph.pop("input")
    assert final == "last" and set(graph) <= set(modules) and not first["do_folding"]
    assert graph["back"]["consistent_map"] == "first" and graph["norm"]["pre"] == "first"
    assert graph["head"]["pre"] == "first" and graph["last"]["pre"] == "head"  # through the flatten
    # As the tool walks it: outputs by the module's own map (or the shared one), then whoever reads it.
    torch.manual_seed(3)
    maps: dict[str, Tensor] = {}

    def of(name: str) -> Tensor:
        entry = graph[name]
        if entry["consistent_map"]:
            return of(entry["consistent_map"])
        if isinstance(modules[name], nn.BatchNorm2d):
            return of(entry["pre"])
        return maps.setdefault(name, torch.randperm(entry["num_channels"]))

    moved = type(model)().double().eval()
    moved.load_state_dict(model.state_dict())
    targets = dict(moved.named_modules())
    for name, entry in graph.items():
        assert entry["do_folding"]
        state = targets[name].state_dict()
        if name != final:
            state = {k: t.index_select(0, of(name)) if t.dim() else t for k, t in state.items()}
        if entry["pre"] != "input" and state["weight"].dim() > 1:
            order = of(entry["pre"])
            ratio = state["weight"].shape[1] // len(order)
            order = (order[:, None] * ratio + torch.arange(ratio)).reshape(-1)
            state["weight"] = state["weight"].index_select(1, order)
        targets[name].load_state_dict(state)
    assert torch.allclose(model(x), moved(x), atol=1e-12)


def test_folding_leaves_out_what_merging_would_change():
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2))
    spec = intertwine.trace(net, torch.zeros(2, 3)).to_spec("folding")
    assert not spec.permutations and spec.left_out == {"0": "its channels may be moved but not merged"}
    assert not spec.content["0"]["do_folding"]


def test_folding_has_words_for_modules_that_write_along_0_and_read_along_1_only():
    layers = nn.ConvTranspose2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 5, 1), nn.ReLU(), nn.Conv2d(5, 2, 1)
    up = nn.Sequential(*layers)
    spec = intertwine.trace(up, torch.zeros(2, 3, 4, 4)).to_spec("folding")
    assert spec.left_out == {"0": "0.weight has it along dimension 1"} and spec.permutations == ("2",)
    assert spec.content["2"]["pre"] == "input" and spec.content["2"]["num_channels"] == 5
    assert not spec.content["0"]["do_folding"]

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = nn.RNN(3, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.rnn(x)[0])

    spec = intertwine.trace(Last(), torch.zeros(2, 5, 3)).to_spec("folding")
    assert not spec.permutations and spec.left_out


def test_mergekit_describes_every_weight_once_and_spaces_are_permutations():
    from intertwine.vision_shim import prepare

    prepare()
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    ends = {"bos_token_id": 0, "eos_token_id": 1}
    config = GPT2Config(n_layer=2, n_embd=8, n_head=2, vocab_size=11, n_positions=6, n_inner=12, **ends)
    model = GPT2LMHeadModel(config).double().eval()
    model.config._attn_implementation = "eager"
    ids = torch.randint(0, 11, (2, 5))
    symmetry = intertwine.trace(model, (ids,), {"use_cache": False})
    spec = symmetry.to_spec("mergekit", model)
    file = json.loads(spec.to_json())
    assert file["model_type"] == "gpt2" and file["architectures"] == ["GPT2LMHeadModel"]
    assert getattr(config, file["num_layers_config_key"]) == 2
    weights = [*file["pre_weights"], *file["post_weights"]]
    text = json.dumps(file["layer_templates"]["weights"])
    for layer in range(2):
        weights += json.loads(string.Template(text).substitute(layer_index=layer))
    known = {"name", "is_embed", "input_space", "output_space", "tied_names"}
    assert all(set(w) <= known for w in weights)
    names = [n for w in weights for n in (w["name"], *w.get("tied_names", ()))]
    assert sorted(names) == sorted(model.state_dict())
    assert next(w for w in weights if w["name"] == "transformer.wte.weight")["is_embed"]
    # The hidden channels of every MLP, and the stream, can be permuted as the spaces say.
    spaces = {s for w in weights for s in (w.get("input_space"), w.get("output_space")) if s}
    assert "stream" in spaces and {f"transformer.h.{k}.mlp.c_fc" for k in range(2)} <= spaces
    state = dict(model.state_dict())
    perms: dict[str, Tensor] = {}
    for info in weights:
        tensor = state[info["name"]]
        inside, outside = info.get("input_space"), info.get("output_space")
        transposed = info["name"].endswith(("c_attn.weight", "c_fc.weight", "c_proj.weight"))
        for space, dim in ((inside, 0 if transposed or tensor.dim() == 1 else 1), (outside, 1)):
            if space is not None:
                order = perms.setdefault(space, torch.randperm(tensor.shape[dim]))
                tensor = tensor.index_select(dim, order)
        for name in (info["name"], *info.get("tied_names", ())):
            state[name] = tensor
    moved = GPT2LMHeadModel(config).double().eval()
    moved.load_state_dict(state)
    assert torch.allclose(model(ids).logits, moved(ids).logits, atol=1e-12)


def test_mergekit_needs_a_config(flat):
    with pytest.raises(InputError, match="config"):
        flat[2].to_spec("mergekit")


def test_networkx_graph_holds_every_member_and_round_trips(flat):
    symmetry = flat[2]
    graph = symmetry.to_networkx()
    edges = {(w, a, d["dim"]) for w, a, d in graph.edges(data=True)}
    expected = {(m.param, f"axis {a.name}", m.dim) for a in symmetry.axes for m in a.members}
    assert {(w, a, d) if a.startswith("axis ") else (a, w, d) for w, a, d in edges} == expected
    back = networkx.node_link_graph(json.loads(symmetry.to_spec("networkx").to_json()), edges="edges")
    assert networkx.utils.graphs_equal(graph, back)


def test_unknown_formats_and_the_command_line(capsys, tmp_path, flat):
    with pytest.raises(NotFound, match="no format 'onnx'"):
        flat[2].to_spec("onnx")
    target = tmp_path / "spec.json"
    assert main(["inspect", "zoo:lenet5", "--no-proof", "--spec", "git-re-basin", "-o", str(target)]) == 0
    out = capsys.readouterr()
    assert "left out" in out.out and "axes_to_perm" in json.loads(target.read_text())
    assert main(["inspect", "zoo:mlp", "--no-proof", "--spec", "networkx"]) == 0
    assert networkx.node_link_graph(json.loads(capsys.readouterr().out), edges="edges").number_of_edges()
    assert main(["inspect", "--help"]) == 0
    assert "{" + ",".join(FORMATS) + "}" in "".join(capsys.readouterr().out.split())

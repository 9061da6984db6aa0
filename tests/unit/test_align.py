"""Alignment: planted elements come back, the function stays, errors are clear."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from intertwine import Symmetry, act, trace, zoo
from intertwine.aligning import align, alignment_report, check_llfc, interpolation_curve, mix
from intertwine.cli.program import main
from intertwine.errors import DataError, InputError
from intertwine.orbit.scales import best_signs


class Attention(nn.Module):
    """Embedding, packed attention with heads, a gated MLP: heads, matrices, signs and scales at once."""

    def __init__(self, width: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Linear(5, width)
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.gate, self.down = nn.Linear(width, 16), nn.Linear(width, 16), nn.Linear(16, width)
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, c)
        x = x + self.out(mixed)
        x = x + self.down(nn.functional.gelu(self.gate(x)) * self.up(x))
        return self.head(x.mean(1))


def mlp(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = (nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    return nn.Sequential(*layers).double()


def attention() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = Attention().double()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            nn.init.normal_(parameter)
    return model, torch.randn(2, 7, 5, dtype=torch.float64)


def pair(name: str) -> tuple[nn.Module, Tensor]:
    if name == "attention":
        return attention()
    if name == "mlp":
        return mlp(), torch.randn(4, 6, dtype=torch.float64)
    torch.manual_seed(0)
    return zoo.build(name), torch.randn(2, 3, 32, 32)


@pytest.mark.parametrize("name", ["mlp", "attention", "resnet20", "tiny10"])
@pytest.mark.parametrize("seed", [0, 1])
def test_planted_elements_are_recovered(name: str, seed: int) -> None:
    model, x = pair(name)
    symmetry = trace(model, x)
    other = act(model, symmetry.sample(seed))
    before = [p.detach().clone() for p in other.parameters()]
    found = align(model, other, symmetry)
    aligned = act(other, found.element)
    with torch.no_grad():
        # The aligned model computes the same whatever the element; the mean of both only if it is right.
        middle, wanted = mix([model, aligned], [0.5, 0.5])(x), model(x)
    assert found.distance_before > 0.5 and found.distance_after < 1e-6
    assert float((middle - wanted).abs().max() / wanted.abs().max()) < 1e-5
    assert all(torch.equal(a, b) for a, b in zip(before, other.parameters(), strict=True))


def test_permutations_alone_do_not_undo_scales() -> None:
    model, x = pair("mlp")
    symmetry = trace(model, x)
    plain = act(model, symmetry.sample(0, parts=("permutation",)))
    scaled = act(model, symmetry.sample(0))
    assert align(model, plain, symmetry, group="permutation").distance_after < 1e-12
    assert align(model, scaled, symmetry, group="permutation").distance_after > 0.1


@pytest.mark.parametrize("by", ["activations", "both"])
def test_activations_recover_permutations(by: str) -> None:
    model, x = mlp(), torch.randn(200, 6, dtype=torch.float64)
    symmetry = trace(model, x[:1])
    other = act(model, symmetry.sample(2))
    assert align(model, other, symmetry, by=by, data=x).distance_after < 1e-6  # type: ignore[arg-type]


def test_unrelated_models_keep_their_function_and_come_closer() -> None:
    a, b, x = mlp(0), mlp(1), torch.randn(4, 6, dtype=torch.float64)
    symmetry = trace(a, x)
    first, again = (align(a, b, symmetry, seed=5) for _ in range(2))
    assert first.distance_after == again.distance_after < first.distance_before
    assert torch.allclose(act(b, first.element)(x), b(x), atol=1e-10)
    permuted = align(a, b, symmetry, group="permutation", seed=5)
    assert first.distance_after <= permuted.distance_after


def test_report_shares_add_up() -> None:
    a, x = pair("attention")
    symmetry = trace(a, x)
    report = alignment_report(a, act(a, symmetry.sample(0)), symmetry)
    shares = (report.permutation, report.scaling, report.linear, report.rest)
    assert abs(sum(shares) - 1) < 1e-9 and report.rest < 1e-9
    assert report.linear > 0.01
    assert alignment_report(mlp(0), mlp(1), trace(mlp(0), torch.zeros(1, 6).double())).rest > 0.3


def test_best_signs_is_the_best_of_all() -> None:
    import itertools

    import numpy as np

    exponents = np.array([[1, 0], [1, 1], [0, 1], [0, 0]])
    agreement = np.random.default_rng(0).normal(size=(20, 4))
    found = (best_signs(exponents, agreement) * agreement).sum(1)
    patterns = [1 - 2 * (exponents @ np.array(x) % 2) for x in itertools.product((0, 1), repeat=2)]
    assert np.allclose(found, np.max([agreement @ p for p in patterns], axis=0))


def batch_norm_pair() -> tuple[list[nn.Module], tuple[Tensor, Tensor], Symmetry]:
    torch.manual_seed(0)
    nets = [
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval() for _ in range(3)
    ]
    data = (torch.randn(60, 4), torch.randint(3, (60,)))
    return list(nets), data, trace(nets[0], data[0][:1])


@pytest.mark.parametrize("repair", ["none", "reset", "repair"])
def test_the_line_between_copies_is_flat(repair: str) -> None:
    models, data, symmetry = batch_norm_pair()
    other = act(models[0], symmetry.sample(0))
    far = interpolation_curve([models[0], other], data, repair=repair)  # type: ignore[arg-type]
    aligned = act(other, align(models[0], other, symmetry).element)
    near = interpolation_curve([models[0], aligned], data, repair=repair)  # type: ignore[arg-type]
    # An untrained net has no loss to rise: what counts is that the loss moves, or does not.
    moved = [max(abs(s.loss - c.lines[0].scores[0].loss) for s in c.lines[0].scores) for c in (far, near)]
    assert moved[0] > 1e-3 and moved[1] < 1e-5
    assert near.lines[0].ts[0] == 0 and near.repair == repair and near.inputs == 60


def test_repair_gives_back_the_statistics_of_the_ends() -> None:
    from intertwine.aligning import Mixer
    from intertwine.aligning._repair import layer_statistics

    models, data, _ = batch_norm_pair()
    plain = [nn.Sequential(m[0], m[2], nn.Linear(8, 8), nn.ReLU(), m[3]) for m in models[:2]]  # type: ignore[index]
    ends = [layer_statistics(m, data) for m in plain]
    middle = Mixer(plain, "repair", data).mixed([0.5, 0.5])
    with torch.no_grad():
        second = middle[2](middle[1](middle[0](data[0])))  # type: ignore[index]
    wanted = (ends[0]["2"][1] + ends[1]["2"][1]) / 2
    assert torch.allclose(second.std(0, correction=0), wanted, rtol=1e-4)


def test_several_models_and_their_mean() -> None:
    models, data, _ = batch_norm_pair()
    curve = interpolation_curve(models, data, [0.5])
    assert [line.other for line in curve.lines] == [1, 2]
    assert curve.lines[0].scores[0] == curve.lines[1].scores[0]
    assert curve.mean.loss > 0


def test_features_of_the_mean() -> None:
    models, data, _ = batch_norm_pair()
    same = check_llfc(models[0], models[0], data)
    other = check_llfc(models[0], models[1], data)
    assert all(layer.error < 1e-6 for layer in same) and any(layer.error > 0.1 for layer in other)


def test_errors() -> None:
    model, x = pair("mlp")
    symmetry = trace(model, x)
    wide = nn.Sequential(nn.Linear(6, 17), nn.ReLU(), nn.Linear(17, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    with pytest.raises(InputError, match="B does not fit"):
        align(model, wide, symmetry)
    with pytest.raises(InputError, match="needs data"):
        align(model, model, symmetry, by="activations")
    with pytest.raises(InputError, match="does not run"):  # on numbers of another precision
        align(model, model, symmetry, by="activations", data=x.half())
    with pytest.raises(InputError, match="other weights"):
        interpolation_curve([model, wide], (x, torch.zeros(4, dtype=torch.long)))
    with pytest.raises(DataError, match="no labels"):
        interpolation_curve([model, model], x)
    with pytest.raises(InputError, match="fails on"):
        interpolation_curve([model, model], (torch.randn(4, 9), torch.zeros(4, dtype=torch.long)))


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "aligned.safetensors"
    two = ["zoo:digits-vgg", "zoo:digits-vgg"]
    pair_ = ["--weights-a", "shipped:0", "--weights-b", "shipped:1"]
    assert main(["align", *two, *pair_, "--restarts", "0", "-o", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["distance_after"] < found["distance_before"] and out.exists()
    assert main(["align", "zoo:digits-vgg", "zoo:lenet5"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert main(["align", *two, "-o", str(tmp_path / "x.txt")]) == 2


def test_command_line_interpolate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "lmc.html"
    models = ["zoo:digits-vgg"] * 2
    options = ["--weights", "shipped:0", "--weights", "shipped:1", "--data", "digits", "--limit", "100"]
    command = ["interpolate", *models, *options, "--align", "--repair", "--points", "3"]
    assert main([*command, "-o", str(page), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    barrier = {curve["label"]: curve["barrier"] for curve in found["curves"]}
    assert barrier["permutation"] < barrier["none"] and barrier["full"] <= barrier["permutation"] + 1e-6
    assert "REPAIR" in found["curves"][0]["statistics"] and page.read_text().count("<figure>") >= 3
    assert main(["interpolate", "zoo:digits-vgg", "--data", "digits"]) == 2


def test_an_input_that_no_unit_answers_is_alike_in_equal_nets() -> None:
    from intertwine.aligning import check_llfc

    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        net[0].bias.fill_(-100.0)
    assert [layer.cosine for layer in check_llfc(net, net, torch.randn(6, 4))] == pytest.approx([1.0, 1.0])

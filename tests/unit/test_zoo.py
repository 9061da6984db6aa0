"""Every zoo entry builds, runs, and has the parameters that its source counts."""

from __future__ import annotations

import pytest
import torch

from intertwine import zoo
from intertwine.data import evaluate, load_data
from intertwine.data.evaluation import logits_of
from intertwine.errors import InputError, NotFound

EXPECTED = {
    *("mlp lenet5 vgg11 vgg13 vgg16 vgg19 vgg16-plain resnet18 resnet34 resnet50".split()),
    *("myrtle myrtle-plain myrtle-constant tiny10 digits-vgg".split()),
    *("cct6 convnext-cifar resnet20-open resnet50-open mobilenet mobilenetv2".split()),
    *("minigrid-agent minigrid-agent-bottleneck vit48 nanogpt64 modadd59".split()),
    *("resnet20-cifar100 resnet32-cifar100 resnet56-cifar100".split()),
    *(f"resnet{depth}{variant}" for depth in (20, 32, 44, 56, 110) for variant in ("", "-pad")),
}


def test_names() -> None:
    assert set(zoo.names()) == EXPECTED
    assert zoo.names() == sorted(zoo.names())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_builds_and_runs(name: str) -> None:
    entry = zoo.entry(name)
    model = zoo.build(name)
    assert not model.training
    assert entry.description
    with torch.no_grad():
        out = logits_of(model(zoo.resolve(f"zoo:{name}").example[0]))
    assert out.shape[0] == 2
    assert out.shape[-1] == entry.classes
    assert torch.isfinite(out).all()
    assert not out[0].equal(out[1])


@pytest.mark.parametrize(
    "name", ["mlp", "lenet5", "vgg11", "resnet18", "resnet20-pad", "myrtle-plain", "tiny10"]
)
def test_classes(name: str) -> None:
    with torch.no_grad():
        assert zoo.build(name, classes=7)(torch.randn(1, *zoo.entry(name).shape)).shape == (1, 7)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("lenet5", 61_706),
        ("myrtle", 1_558_026),  # source 002, figure 26a
        ("myrtle-plain", 1_555_200),  # figure 26b
        ("resnet20-pad", 269_722),  # figure 27a
        ("resnet18", 11_173_962),  # figure 28a
    ],
)
def test_parameter_counts_of_the_sources(name: str, count: int) -> None:
    assert sum(p.numel() for p in zoo.build(name).parameters()) == count


@pytest.mark.parametrize(
    ("name", "convolutions"), [("vgg11", 8), ("vgg13", 10), ("vgg16", 13), ("vgg19", 16)]
)
def test_vgg_depth(name: str, convolutions: int) -> None:
    kernels = [k for k, v in zoo.build(name, width=4).state_dict().items() if v.ndim == 4]
    assert len(kernels) == convolutions


@pytest.mark.parametrize("depth", [20, 32, 44, 56, 110])
def test_cifar_resnet_depth(depth: int) -> None:
    model = zoo.build(f"resnet{depth}-pad", width=4)
    weights = [k for k, v in model.state_dict().items() if v.ndim in (2, 4)]
    assert len(weights) == depth


def test_padded_shortcut_is_subsampling_and_zeros() -> None:
    """With the residual branch silenced, a widening block is relu(pad(x[::2, ::2]))."""
    block = zoo.build("resnet20-pad").get_submodule("layer2.0")
    torch.nn.init.zeros_(block.get_parameter("bn2.weight"))
    x = torch.rand(1, 16, 8, 8)
    with torch.no_grad():
        out = block(x)
    assert out.shape == (1, 32, 4, 4)
    assert out[:, 8:24].equal(x[:, :, ::2, ::2])
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


@pytest.mark.parametrize("name", ["resnet20", "resnet20-pad"])
def test_a_resnet_of_slope_one_is_affine(name: str) -> None:
    torch.manual_seed(0)
    x, y, zero = torch.randn(1, 3, 8, 8).double(), torch.randn(1, 3, 8, 8).double(), torch.zeros(1, 3, 8, 8)
    for slope, affine in ((1.0, True), (0.5, False), (None, False)):
        net = zoo.build(name, width=4, slope=slope).double().eval()
        bend = net(x + y) + net(zero.double()) - net(x) - net(y)
        assert bool(bend.abs().max() < 1e-12) == affine


def test_unknown_name_suggests() -> None:
    with pytest.raises(NotFound, match="resnet20") as info:
        zoo.build("resnet21")
    assert "did you mean" in str(info.value)


def test_unknown_argument_is_an_input_error() -> None:
    with pytest.raises(InputError, match="colour"):
        zoo.build("tiny10", colour="red")


@pytest.mark.parametrize("seed", [0, 1])
def test_shipped_checkpoints_are_accurate_and_small(seed: int) -> None:
    path = zoo.checkpoint("digits-vgg", seed)
    assert path.stat().st_size < 300_000
    model = zoo.load_weights(zoo.build("digits-vgg"), path)
    assert evaluate(model, load_data("digits", split="test")).accuracy >= 0.97


def test_shipped_seeds_differ() -> None:
    a, b = (zoo.read_weights(zoo.checkpoint("digits-vgg", seed)) for seed in (0, 1))
    assert (a["features.0.weight"] - b["features.0.weight"]).abs().max() > 0.1


def test_no_such_checkpoint() -> None:
    with pytest.raises(NotFound, match="seed 7") as info:
        zoo.checkpoint("digits-vgg", 7)
    assert "digits-vgg-seed0" in str(info.value)

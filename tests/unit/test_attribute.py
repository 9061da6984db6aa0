"""Attribution against an obvious transcription, by its invariances, and on what models really look like."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from stitch_nets import images, residual
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import act, attribute, trace
from intertwine.cli import main
from intertwine.errors import DataError, InputError, NotFound
from intertwine.inside.backward import Backward
from intertwine.inside.methods import METHODS, attribute_rows, heat_map
from intertwine.inside.network import Network

pytestmark = pytest.mark.usefixtures("one_thread")


class Guided(torch.autograd.Function):
    """relu whose gradient passes where z > 0 and u > 0: the definition, for hand-written forwards."""

    @staticmethod
    def forward(ctx, z):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(z)
        return z.clamp_min(0)

    @staticmethod
    def backward(ctx, u):  # type: ignore[no-untyped-def]
        (z,) = ctx.saved_tensors
        return u * (z > 0) * (u > 0)


class Functional(nn.Module):
    """One functional relu used three times, an in-place one, a concatenation and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(8, 5, 3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor, relu: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        relu = relu or F.relu
        first = relu(self.a(x))
        second = self.relu(self.b(first)) if relu is F.relu else relu(self.b(first))
        return relu(self.c(torch.cat([first + second, second], 1)))


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.one, self.two, self.three = nn.Linear(6, 7), nn.Linear(7, 7), nn.Linear(7, 5)

    def forward(self, x: Tensor, relu: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        relu = relu or self.relu
        h = relu(self.one(x))
        return relu(self.three(relu(self.two(h)) + h))


def by_hand_residual(net: nn.Module, x: Tensor, relu: Callable[[Tensor], Tensor]) -> Tensor:
    def block(b: nn.Module, h: Tensor) -> Tensor:
        inner = relu(b.bn1(b.conv1(h)))
        return relu(b.bn2(b.conv2(inner)) + b.short(h))

    return block(net.two, block(net.one, relu(net.bn(net.conv(x)))))


def by_hand_vgg(net: nn.Module, x: Tensor, relu: Callable[[Tensor], Tensor]) -> Tensor:
    for layer in net:
        x = relu(x) if isinstance(layer, nn.ReLU) else layer(x)
    return x


def vgg() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(inplace=True),
    )  # fmt: skip


def nets() -> dict[str, tuple[nn.Module, Tensor, str, Callable[..., Tensor]]]:
    """Name -> (net, inputs, value or "" for the last, the value as a function of the inputs and a relu)."""
    torch.manual_seed(0)
    functional, shared, plain, res = (
        Functional().double(),
        Shared().double(),
        vgg().double().eval(),
        residual(1),
    )
    wide = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 5), nn.ReLU()).double()
    return {
        "functional": (functional, images(5), "", lambda x, relu: functional(x, relu)),
        "shared": (shared, images(5)[:, 0, 0, :6], "", lambda x, relu: shared(x, relu)),
        "vgg": (plain, images(5), "", lambda x, relu: by_hand_vgg(plain, x, relu)),
        "residual": (res, images(5), "two.relu_1", lambda x, relu: by_hand_residual(res, x, relu)),
        "mlp": (wide, images(5)[:, 1, 1, :6], "", lambda x, relu: by_hand_vgg(wide, x, relu)),
    }


def seeded(value: Tensor, weights: Tensor) -> Tensor:
    return sum((weight * value[:, channel].sum() for channel, weight in enumerate(weights)), torch.zeros(()))


@pytest.mark.parametrize("name", list(nets()))
def test_the_five_methods_are_what_they_say(name: str) -> None:
    net, x, value, by_hand = nets()[name]
    network = Network(net, x[:4])  # five rows in batches of four
    back = Backward(network, value or network.values[-1].name, 1)
    channels = by_hand(x, F.relu).shape[1]
    weights = torch.zeros(channels, dtype=torch.float64)
    weights[[0, 3]] = torch.tensor([1.0, 0.5], dtype=torch.float64)
    rows = weights.expand(len(x), -1)

    def slope(at: Tensor, relu: Callable[[Tensor], Tensor]) -> Tensor:
        at = at.clone().requires_grad_()
        return torch.autograd.grad(seeded(by_hand(at, relu), weights), at)[0]

    def score(at: Tensor) -> Tensor:
        value = by_hand(at, F.relu).detach()
        return value.reshape(*value.shape[:2], -1).sum(-1) @ weights

    found = {m: attribute_rows(back, x, rows, m) for m in METHODS}
    assert torch.allclose(found["guided"].attribution, slope(x, Guided.apply), atol=1e-12)
    assert torch.allclose(found["gradient"].attribution, slope(x, F.relu), atol=1e-12)
    assert not torch.allclose(found["guided"].attribution, found["gradient"].attribution)
    assert torch.allclose(found["input"].attribution, x * slope(x, F.relu), atol=1e-12)
    scores = score(x)
    assert torch.allclose(found["guided"].score, scores, atol=1e-12)
    gain = scores - score(torch.zeros_like(x))
    shares = found["integrated"].attribution.flatten(1)
    assert ((shares.sum(1) - gain).abs() <= 0.01 * shares.abs().sum(1)).all()
    assert float(found["integrated"].error.max()) <= 0.01  # type: ignore[union-attr]
    heat = heat_map(back, found["occlusion"], "occlusion")
    for place in np.ndindex(*heat.shape[1:]):  # patches of an eighth of 8 pixels are single pixels
        without = x.clone()
        without[(slice(None), ..., *place)] = 0
        assert torch.allclose(heat[(slice(None), *place)], scores - score(without), atol=1e-10)


@pytest.mark.parametrize("activation", [nn.GELU(), nn.SiLU(), nn.ELU(), nn.LeakyReLU(0.1), nn.PReLU(4)])
def test_other_rectifiers_pass_their_slope_through_the_gates(activation: nn.Module) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 2)).double()
    x = torch.randn(6, 3, dtype=torch.float64)
    back = Backward(Network(net, x), "2", 1)
    weights = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(6, -1)
    z = net[0](x).detach().requires_grad_()
    y = activation(z)
    above = net[2].weight[0].expand_as(y)
    passed = torch.autograd.grad(y, z, above * ((above > 0) & (y > 0)))[0] @ net[0].weight
    assert torch.allclose(back.gradient(x, weights, guided=True)[0], passed, atol=1e-12)


def test_a_sigmoid_gate_passes_its_plain_gradient() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 2)).double()
    x = torch.randn(4, 3, dtype=torch.float64)
    back = Backward(Network(net, x), "2", 1)
    weights = torch.ones(4, 2, dtype=torch.float64)
    guided, plain = (back.gradient(x, weights, guided=g)[0] for g in (True, False))
    assert torch.equal(guided, plain)


def with_twins(seed: int = 0) -> nn.Module:
    """A net whose features 1, 4 and 6 of its first axis are equal up to scale, and 2 and 3."""
    torch.manual_seed(seed)
    net = vgg().double()
    net.append(nn.Flatten()).append(nn.Linear(128, 3).double())
    norm = net[1]
    norm.running_mean.normal_(0, 0.2), norm.running_var.uniform_(0.5, 2)
    with torch.no_grad():
        for parts in ((net[0].weight, net[0].bias), (net[4].weight.transpose(0, 1),)):
            for t in parts:
                t[4] = t[1]
                t[5] = t[1]
        for t in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            t[4] = t[5] = t[1]
    return net.eval()


def test_equal_features_see_the_same_and_random_ones_do_not() -> None:
    found = attribute(with_twins(), images(24), "0", controls=3, methods=("guided", "integrated"))
    (view,) = found.classes
    assert found.at == "2" and view.members == (1, 4, 5) and view.alive == 3
    assert view.maps.members == pytest.approx(1) and view.heat.members == pytest.approx(1)
    assert view.maps.random < 0.9 and view.heat.random < 0.95
    assert view.incomplete is not None and view.incomplete <= 0.01
    assert list(view.scores) == sorted(view.scores, reverse=True)
    json.dumps(found.to_dict())


@pytest.mark.parametrize("channels", [None, [0, 3]])
@pytest.mark.parametrize("seed", [0, 1])
def test_acting_by_the_group_changes_nothing(seed: int, channels: list[int] | None) -> None:
    """Scales and permutations move the class; what it sees stays, to 1e-10 of its own scale."""
    net, x = with_twins(), images(16)
    symmetry = trace(net, x)
    g = symmetry.sample(seed)
    axis = symmetry.axis("0").classes.reshape(-1)
    target = {int(c): int(np.flatnonzero(axis == g.relabel[c])[0]) for c in axis}
    moved_channels = None if channels is None else [target[int(axis[c])] for c in channels]
    first = attribute(net, x, "0", channel=channels, methods=tuple(METHODS), beta=1e-6)
    second = attribute(act(net, g), x, "0", channel=moved_channels, methods=tuple(METHODS), beta=1e-6)
    a, b = first.classes[0], second.classes[0]
    assert sorted(target[int(axis[c])] for c in a.members) == sorted(b.members)
    assert a.inputs == b.inputs
    for method in METHODS:
        largest = np.abs(a.heats[method]).max()
        assert np.abs(a.heats[method] - b.heats[method]).max() <= 1e-10 * largest
    assert a.maps.members == pytest.approx(b.maps.members, abs=1e-10)


def test_without_balance_unequal_scales_do_change_it() -> None:
    net, x = with_twins(), images(16)
    symmetry = trace(net, x)
    g = symmetry.sample(3, parts=("scale",))
    plain, moved = (attribute(n, x, "0", channel=[0, 3], balance=False) for n in (net, act(net, g)))
    a, b = (r.classes[0].heats["guided"] for r in (plain, moved))
    ratio = float((a * b).sum() / (b * b).sum())
    assert np.abs(a - ratio * b).max() > 1e-3 * np.abs(a).max()


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(11, 8), nn.Parameter(torch.randn(6, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
        self.head = nn.Linear(8, 11)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(ids) + self.place))


def test_tokens_are_attributed_through_their_embeddings(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, ids = Words().eval(), torch.randint(0, 11, (20, 6))
    words = [[f"<w{i}>" for i in row] for row in ids.tolist()]
    found = attribute(net, ids, "layer.linear1", channel=3, methods=("guided", "integrated"), tokens=words)
    columns, (row,) = found.tables()[0][1:3]
    assert row[columns.index("features")] == 1 and row[columns.index("ever active")] == 1
    assert found.at == "layer.gelu" and found.classes[0].heats["integrated"].shape == (4, 6)
    page = found.page().render()
    assert "&lt;w" in page and "<w" not in page.replace("<wbr", "")
    found.save(tmp_path / "maps.npz")
    with np.load(tmp_path / "maps.npz") as stored:
        assert stored["class0/integrated"].shape == (4, 6)
        assert json.loads(str(stored["summary"]))["axis"] == "layer.linear1"


def test_errors_say_what_to_do() -> None:
    net, x = with_twins(), images(8)
    with pytest.raises(NotFound, match="no axis named 'nine'") as error:
        attribute(net, x, "nine")
    assert "the axes are 0" in str(error.value)
    with pytest.raises(DataError, match="there are no inputs"):
        attribute(net, x[:0], "0")
    with pytest.raises(NotFound, match="does not carry") as error:
        attribute(net, x, "0", at="5")
    assert "it is carried by 0, 1, 2" in str(error.value)
    with pytest.raises(NotFound, match="no two features") as error:
        attribute(net, x, "4")
    assert "the first pair merges at beta" in str(error.value)
    with pytest.raises(InputError, match="no method named 'magic'"):
        attribute(net, x, "0", methods=("magic",))
    with pytest.raises(NotFound, match="no channel 99"):
        attribute(net, x, "0", channel=99)
    with pytest.raises(DataError, match="no labels"):
        attribute(net, x, "0", labels=["cat"])


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    command = (
        "attribute zoo:digits-vgg --weights shipped:0 --data digits --limit 64 --axis features.3 --by ward"
    )
    options = [
        "--beta",
        "0.5",
        "--labels",
        "3,8",
        "--inputs",
        "2",
        "--classes",
        "2",
        "--json",
        "-o",
        str(page),
    ]
    assert main([*command.split(), *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["at"] == "features.5" and len(printed["classes"]) == 2
    assert len(printed["classes"][0]["inputs"]) == 4
    text = page.read_text()
    assert text.count("data:image/png;base64,") > 16 and "members:" in text
    assert main(["attribute", "zoo:digits-vgg", "--data", "digits", "--axis", "nope"]) == 2
    assert "no axis named" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "shape", "axis"),
    [
        ("timm:convnext_atto", (2, 3, 64, 64), "stages.3.blocks.1.mlp.fc1"),
        ("zoo:resnet20", (2, 3, 32, 32), "layer3.2.conv1"),
    ],
)
def test_real_architectures(model: str, shape: tuple[int, ...], axis: str) -> None:
    from intertwine import zoo

    source = zoo.resolve(model, input="x".join(map(str, (1, *shape[1:]))), seed=0)
    found = attribute(source.model, torch.randn(*shape), axis, channel=[1, 2], inputs=1, controls=1, batch=2)
    assert found.classes[0].heats["guided"].shape == (1, *shape[2:])
    assert np.abs(found.classes[0].heats["guided"]).max() > 0


def test_the_hint_names_a_beta_that_works() -> None:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), torch.randn(20, 4)
    with pytest.raises(NotFound) as refused:
        attribute(net, x, "0", beta=1e-6)
    found = re.search(r"merges at beta ([\d.e-]+)", str(refused.value))
    assert found is not None
    assert attribute(net, x, "0", beta=float(found[1])).classes

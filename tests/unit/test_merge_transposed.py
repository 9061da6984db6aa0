"""`x @ W.T` reads a weight as a linear layer does: its input channels add up when they are merged."""

import pytest
import torch
from torch import Tensor, nn

from intertwine import merge, trace
from intertwine.merging.places import find_places


class Turned(nn.Linear):
    """Falcon's linear layer."""

    def forward(self, input: Tensor) -> Tensor:
        hidden = input @ self.weight.T
        return hidden if self.bias is None else hidden + self.bias


class Scaled(nn.Linear):
    """Its weight is squared first: merged columns do not add up, and nothing says what they do."""

    def forward(self, input: Tensor) -> Tensor:
        return input @ (self.weight**2).T


def roles(last: nn.Module) -> list[dict[str, str]]:
    """Of every mergeable axis, what each weight does there."""
    net = nn.Sequential(Turned(3, 8), nn.ReLU(), last)
    symmetry = trace(net, torch.zeros(2, 3))
    axes = [a for a in symmetry.axes if a.mergeable]
    return [{place.param: place.role for place in find_places(symmetry, axis)} for axis in axes]


def test_a_transposed_weight_has_a_role() -> None:
    (found,) = roles(Turned(8, 2))
    assert found["2.weight"] == "in"
    assert not roles(Scaled(8, 2))


@pytest.mark.parametrize("method", ["sequential", "ifm", "magnitude"])
def test_it_merges_as_a_linear_layer_does(method: str) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        for tensor in (plain[0].weight, plain[0].bias):
            tensor[4:] = tensor[:4]
    turned = nn.Sequential(Turned(3, 8), nn.ReLU(), Turned(8, 2))
    turned.load_state_dict(plain.state_dict())
    x = torch.randn(64, 3)
    found = [merge(net, x, target_params=0.6, method=method).model for net in (plain, turned)]
    assert found[1][0].weight.shape == (4, 3) and found[1][2].weight.shape == (2, 4)
    if method == "sequential":  # which knows what was read
        assert torch.allclose(found[1](x), plain(x), atol=1e-4)
    if method == "magnitude":
        assert torch.allclose(found[0](x), found[1](x), atol=1e-6)

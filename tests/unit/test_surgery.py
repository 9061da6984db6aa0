"""Cut a network at any value: both halves together are the network, and the caller's model stays as it is."""

from __future__ import annotations

import copy

import pytest
import stitch_nets
import torch
from torch import nn

from intertwine.errors import NotFound, Unsupported
from intertwine.symmetry.surgery import Surgeon


@pytest.fixture(scope="module")
def net() -> nn.Module:
    return stitch_nets.residual()


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return stitch_nets.images(4)


@pytest.fixture(scope="module")
def surgeon(net: nn.Module, images: torch.Tensor) -> Surgeon:
    return Surgeon(net, (images,))


def test_both_halves_are_the_network_at_every_value(net, surgeon, images):
    expected = net(images)
    names = [v.name for v in surgeon.values if not surgeon.is_output(v.name)]
    cuts = [surgeon.cut(name) for name in names]
    found = iter(surgeon.record(cuts)(images))
    for cut in cuts:
        values = [next(found) for _ in range(1 + len(cut.live))]
        assert torch.allclose(surgeon.suffix(cut)(*values), expected, atol=1e-12), cut.name
    assert torch.allclose(next(found), expected, atol=1e-12)


def test_a_cut_inside_a_block_needs_the_skip(surgeon):
    assert surgeon.cut("one.relu_1").live == ()
    assert surgeon.cut("one.relu").labels == ("relu",)
    # Where the shortcut has weights, it is the prefix's value that is kept.
    assert surgeon.cut("two.relu").labels == ("two.short",)


def test_the_suffix_reads_the_skip(surgeon, images):
    """A negative control: another skip must change the output."""
    cut = surgeon.cut("one.relu")
    value, skip = surgeon.prefix(cut)(images)
    suffix = surgeon.suffix(cut)
    assert not torch.allclose(suffix(value, skip), suffix(value, skip + 1), atol=1e-3)


def test_any_number_of_rows(net, surgeon, images):
    more = torch.cat([images, images.flip(0), images[:3]])
    cut = surgeon.cut("one.relu_1")
    for rows in (more, more[:1]):
        assert torch.allclose(surgeon.suffix(cut)(*surgeon.prefix(cut)(rows)), net(rows), atol=1e-12)


def test_weights_keep_their_names_and_do_not_train(surgeon, net):
    suffix = surgeon.suffix(surgeon.cut("one.relu_1"))
    state = {name.removeprefix("body."): tensor for name, tensor in suffix.state_dict().items()}
    assert set(state) <= set(net.state_dict())
    assert "fc.weight" in state and "conv.weight" not in state
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in state.items())
    assert not any(p.requires_grad for p in suffix.parameters())


def test_batch_norms_are_measured_again_and_restored(surgeon, net, images):
    before = copy.deepcopy(net.state_dict())
    cut = surgeon.cut("relu")
    suffix = surgeon.suffix(cut)
    (value,) = surgeon.prefix(cut)(images)
    expected = suffix(value)
    suffix.reset_statistics([[value], [value]])
    # The first norm sees this input itself: its statistics are known.
    first = net.one.conv1(value)
    mean = suffix.get_buffer("body.one.bn1.running_mean")
    variance = suffix.get_buffer("body.one.bn1.running_var")
    count = 2 * first.numel() // first.shape[1]
    assert torch.allclose(mean, first.mean((0, 2, 3)), atol=1e-12)
    unbiased = first.var((0, 2, 3), unbiased=False) * count / (count - 1)
    assert torch.allclose(variance, unbiased, atol=1e-12)
    # One batch: measured statistics and those of the batch differ by the factor n / (n - 1) alone.
    of_batch, measured = suffix.train()(value), suffix.eval()(value)
    assert (of_batch - measured).abs().max() < 0.1 * (measured - expected).abs().max()
    suffix.restore_statistics()
    assert torch.equal(suffix(value), expected)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


def test_a_module_used_twice_and_a_reused_value():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.act = nn.Linear(4, 4), nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.act(self.layer(x))
            return self.layer(x) + x.mean(1, keepdim=True)

    net, x = Twice(), torch.randn(3, 4)
    surgeon = Surgeon(net, (x,))
    for name in ("layer", "act", "layer_1"):
        cut = surgeon.cut(name)
        assert torch.allclose(surgeon.suffix(cut)(*surgeon.prefix(cut)(x)), net(x), atol=1e-6), name
    assert surgeon.cut("act").live == () and surgeon.cut("layer_1").inside


def test_gradients_reach_the_cut_only(surgeon, images):
    cut = surgeon.cut("one.relu_1")
    (value,) = surgeon.prefix(cut)(images)
    value.requires_grad_(True)
    suffix = surgeon.suffix(cut)
    suffix(value).square().sum().backward()
    assert value.grad is not None and value.grad.abs().sum() > 0
    assert all(p.grad is None for p in suffix.parameters())


def test_unknown_names_get_the_nearest(surgeon):
    with pytest.raises(NotFound, match="no layer named") as error:
        surgeon.cut("one.rel")
    assert "one.relu" in str(error.value)


def test_a_value_that_does_not_reach_the_output():
    class Dead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.one(x), self.two(x)

    with pytest.raises(Unsupported, match="does not depend"):
        Surgeon(Dead(), (torch.randn(2, 3),)).cut("two")

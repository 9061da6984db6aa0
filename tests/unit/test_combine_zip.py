"""zip and unequal widths: networks side by side compute what they compute, and merging undoes it."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from intertwine import combine, load, trace, zoo
from intertwine.cli.program import main
from intertwine.combining._branch import branch
from intertwine.combining._join import join, last_layer
from intertwine.combining._layerwise import batch_graph
from intertwine.combining._statistics import reset
from intertwine.combining._widths import equal_widths
from intertwine.combining._zip import ZipPlanner, zipped
from intertwine.errors import DataError, InputError, Unsupported, WeightsError
from intertwine.graph.export import export
from intertwine.graph.once import run_once
from intertwine.merging import Options, Planner, apply_merge, widen
from intertwine.merging.sequential import in_output_error
from intertwine.zoo.nanogpt import nanogpt

X = torch.randn(160, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Trunk(nn.Module):
    """A residual block with batch norm and a depthwise convolution, of any width, with any classes."""

    def __init__(self, width: int, classes: int = 4) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width)
        self.one = nn.Conv2d(width, 6, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(6)
        self.two, self.norm2 = nn.Conv2d(6, width, 1, bias=False), nn.BatchNorm2d(width)
        self.deep = nn.Conv2d(width, width, 3, groups=width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(x + self.norm2(self.two(torch.relu(self.norm1(self.one(x))))))
        return self.head(torch.relu(self.deep(x)).mean((2, 3)))


def net(seed, width=8, classes=4):
    torch.manual_seed(seed)
    made = Trunk(width, classes)
    for _ in range(40):
        made.train()(torch.randn(32, 3, 8, 8))
    return made.eval()


@torch.no_grad()
def off(found, wanted):
    """Relative mean squared error."""
    return float((found - wanted).square().mean() / wanted.var())


def test_side_by_side_networks_make_the_mean_of_their_outputs():
    a, b = net(0), net(1, width=10)
    with torch.no_grad():
        both = join([a, b], trace(a, X[:2]), X[:4], shares=[0.25, 0.75])
        assert off(both(X), 0.25 * a(X) + 0.75 * b(X)) < 1e-9
    assert both.stem.out_channels == 18 and both.deep.groups == 18


def test_side_by_side_networks_keep_their_heads():
    a, b = net(0), net(1, classes=7)
    symmetry = trace(a, X[:2])
    assert last_layer(symmetry.traced) == {"head.weight": 0, "head.bias": 0}
    with torch.no_grad():
        assert off(join([a, b], symmetry, X[:4], heads="each")(X), torch.cat([a(X), b(X)], 1)) < 1e-9


def test_what_cannot_lie_side_by_side_says_so():
    ids = torch.randint(0, 11, (3, 8))
    nets = [nanogpt(classes=11, context=8, width=16, heads=4, layers=1).eval() for _ in range(2)]
    with pytest.raises(Unsupported, match="layer norm"):
        join(nets, trace(nets[0], ids), ids)
    with pytest.raises(InputError, match=r"head\.\w+ .*no symmetry"):
        join([net(0), net(1, classes=7)], trace(net(0), X[:2]), X[:4])
    with pytest.raises(InputError, match="another architecture"):
        join([net(0), nn.Linear(3, 2)], trace(net(0), X[:2]), X[:4])


def test_a_network_zipped_with_its_wider_copy_is_the_network():
    """Every channel of the copy is one of the first's: what is left after merging computes the same."""
    a = net(0)
    symmetry = trace(a, X[:2])
    copies = {axis.name: [*range(axis.size), 0, 1] for axis in symmetry.axes if axis.mergeable}
    b = widen(a, symmetry, copies, seed=0)
    result = combine([a, b], train_data=X, how="zip")
    assert {n: t.shape for n, t in result.model.state_dict().items()} == {
        n: t.shape for n, t in a.state_dict().items()
    }
    with torch.no_grad():
        assert off(result.model(X), a(X)) < 1e-3
        assert off(net(1)(X), a(X)) > 0.1  # the control


def test_zip_meets_its_budget_and_more_room_loses_less():
    a, b = net(0), net(1)
    whole = 2 * sum(p.numel() for p in a.parameters())
    error = {}
    for share in (0.45, 0.9):
        made = combine([a, b], train_data=X, how="zip", target_params=share).model
        assert sum(p.numel() for p in made.parameters()) <= share * whole
        error[share] = off(made(X), (a(X) + b(X)) / 2)
    assert error[0.9] < error[0.45] < 1


def test_two_tasks_share_a_trunk_and_each_is_measured_on_its_own_data():
    a, b = net(0), net(1, classes=7)
    with torch.no_grad():
        data = [(X, m(X).argmax(1)) for m in (a, b)]
    result = combine([a, b], data, train_data=X, how="zip", target_params=0.9)
    assert result.heads == "each" and result.model.head.out_features == 11
    assert [s.accuracy for s in result.before] == [1.0, 1.0]
    assert [h.name for h in result.after.heads] == ["head 1", "head 2"]
    assert all(h.accuracy > 0.4 for h in result.after.heads)
    assert result.after.accuracy == pytest.approx(sum(h.accuracy for h in result.after.heads) / 2)
    learned = combine([a, b], data, train_data=X, how="zip", target_params=0.9, epochs=30)
    assert learned.after.loss < result.after.loss
    with pytest.raises(DataError, match="list of 2 data sets"):
        combine([a, b], data[0], train_data=X, how="zip")


def test_networks_that_share_a_trunk_up_to_a_layer_compute_what_they_compute():
    a, b = net(0), net(1, width=10, classes=7)
    whole = sum(p.numel() for m in (a, b) for p in m.parameters())
    both, rows = branch([a, b], trace(a, X[:2]), "stem", X[:4])
    with torch.no_grad():
        assert off(both(X), torch.cat([a(X), b(X)], 1)) < 1e-9
    one, other = both.double().networks  # which makes new buffers, and must not part those of the trunk
    assert one.norm.running_mean is other.norm.running_mean and one.one is not other.one
    assert rows["networks.1.stem.weight"] == [8, 10] and rows["networks.1.one.weight"] == [0, 6]
    made = combine([a, b], train_data=X, how="zip", target_params=0.7, trunk="st*").model
    one, other = made.networks
    assert one.stem is other.stem and one.head is not other.head
    assert one.stem.out_channels == one.deep.groups < 18 and one.deep is other.deep
    assert sum(p.numel() for p in made.parameters()) <= 0.7 * whole
    with torch.no_grad():
        assert off(made(X), torch.cat([a(X), b(X)], 1)) < 0.2
    with pytest.raises(InputError, match="stem, one"):
        branch([a, b], trace(a, X[:2]), "stone", X[:4])
    with pytest.raises(InputError, match="heads='each'"):
        combine([a, net(1)], train_data=X, how="zip", target_params=0.7, trunk="stem")


def test_a_trunk_stands_once_in_the_graph():
    """What random numbers make, and what differs only in the kind of a number, is not taken for one."""
    a, b = net(0), net(1, classes=7)
    both, _ = branch([a, b], trace(a, X[:2]), "one", X[:4])
    convolutions = [n for n in batch_graph(both, X).graph.nodes if "conv2d" in n.name]
    assert len(convolutions) == 4  # of eight that forward runs

    class Twice(nn.Module):
        def forward(self, x):
            noise = torch.rand_like(x) - torch.rand_like(x)
            return (x + 1) * (x + 1), noise, x.long() * 2, x.long() * 2.0

    nodes = [n.name for n in run_once(export(Twice(), (torch.zeros(2, 2),))).graph.nodes]
    assert "add" in nodes and "add_1" not in nodes and "rand_like_1" in nodes
    assert sum(name.startswith("mul") for name in nodes) == 3


def test_a_network_that_counts_more_keeps_more_of_itself():
    a, b = net(0), net(1, classes=7)
    error = {}
    for share in (0.99, 0.01):
        made = combine([a, b], train_data=X, how="zip", target_params=0.6, shares=[share, 1 - share]).model
        with torch.no_grad():
            error[share] = off(made(X)[:, :4], a(X)), off(made(X)[:, 4:], b(X))
    assert error[0.99][0] < error[0.01][0] and error[0.01][1] < error[0.99][1]


def test_layers_that_are_solved_for_err_less_than_refitted_readers():
    """What is left of the joined network, as `merge` leaves it and with all of its layers solved for."""
    a, b = net(0), net(1, classes=7)
    with torch.no_grad():
        found = zipped([a, b], trace(a, X[:2]), X, shares=[0.5, 0.5], heads="each", target_params=0.6)
        plan = ZipPlanner([a, b], found.joined, trace(found.joined, X[:2]), X, [0.5, 0.5], "each").plan(
            sum(p.numel() for p in found.model.parameters())
            / sum(p.numel() for p in found.joined.parameters())
        )
        merged = reset(apply_merge(found.joined, plan), X)
        fresh = torch.randn(200, 3, 8, 8, generator=torch.Generator().manual_seed(5))
        assert {n: p.shape for n, p in merged.named_parameters()} == {
            n: p.shape for n, p in found.model.named_parameters()
        }
        assert off(found.model(fresh), found.joined(fresh)) < off(merged(fresh), found.joined(fresh))


def test_unequal_widths_are_made_equal_without_changing_anything():
    a, b = net(0), net(1, width=12)
    wide, same = equal_widths([a, b], ((X[:2],), {}))
    assert same is b and wide.stem.out_channels == 12
    with torch.no_grad():
        assert off(wide(X), a(X)) < 1e-9


def test_networks_of_unequal_widths_are_combined_layer_by_layer():
    a, b = net(0), net(1, width=12)
    result = combine([a, b], train_data=X)
    assert "widened" in result.notes[0] and result.model.stem.out_channels == 12
    with torch.no_grad():
        assert off(result.model(X), (a(X) + b(X)) / 2) < 0.5
    with pytest.raises(InputError, match=r"cannot be made equal: head\.weight"):
        combine([a, net(1, classes=7)], train_data=X)


def test_zip_from_the_command_line(tmp_path, capsys):
    out = tmp_path / "both.safetensors"
    argv = ["combine", "zoo:digits-vgg", "zoo:digits-vgg", "--weights", "shipped:0", "--weights", "shipped:1",
            "--data", "digits", "--limit", "200", "--train-data", "digits", "--train-limit", "200",
            "--how", "zip", "-o", str(out), "--json"]  # fmt: skip
    assert main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["how"] == "zip" and found["heads"] == "one" and found["accuracy_after"] > 0.8
    assert zoo.load_weights(zoo.build("digits-vgg"), out)
    assert main([*argv, "--heads", "each", "--head-data", "digits", "--train-data", "digits"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["stages"][-1]["heads"]) == 2 and found["inputs"] == 200
    folder = tmp_path / "trunk"  # one that is wider than each of them, and has two heads
    argv[argv.index(str(out))] = str(folder)
    assert main([*argv, "--heads", "each", "--head-data", "digits", "--target-params", "0.6"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy_after"] > 0.5
    trunk = load(folder)
    assert trunk(torch.zeros(2, 1, 8, 8)).shape == (2, 20)
    recipe = folder / "recipe.json"
    recipe.write_text(recipe.read_text().replace('"wider": true', '"wider": false'))
    with pytest.raises(WeightsError, match="do not fit"):  # of merged models, larger weights are a mistake
        load(folder)
    each = [*argv, "--heads", "each", "--head-data", "digits", "--target-params", "0.6"]
    assert main([*each, "--trunk", "features.7"]) == 0
    found, trunk = json.loads(capsys.readouterr().out), load(folder)
    assert trunk(torch.zeros(2, 1, 8, 8)).shape == (2, 20) and len(trunk.networks) == 2
    assert sum(p.numel() for p in trunk.parameters()) == found["parameters"]
    recipe.write_text(json.dumps({**json.loads(recipe.read_text()), "networks": ["zoo:digits-vgg"]}))
    with pytest.raises(WeightsError, match="contradicts itself about 'networks'"):
        load(folder)
    argv[argv.index(str(folder))] = str(out)
    assert main([*argv, "--heads", "each"]) != 0
    assert "head-data" in capsys.readouterr().err


def test_widths_that_cannot_be_made_equal_are_told():
    narrow, wide = (nn.Sequential(nn.Linear(3, n), nn.LayerNorm(n), nn.Linear(n, 2)).eval() for n in (4, 6))
    with pytest.raises(InputError, match=r"cannot be made equal: 0.weight is \(4, 3\) and \(6, 3\)"):
        combine([narrow, wide], train_data=torch.randn(40, 3))


def test_an_axis_is_not_weighed_by_a_cut_that_costs_nothing():
    """What the outputs do not see (channels that are dead on the inputs) says nothing about what they see."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3)).eval()
    x = torch.randn(100, 6)
    planner = Planner(model, trace(model, x[:2]), Options(repair="data"), None, [x], True, ((x[:2],), {}))
    (axis,) = (a for a in planner.whole().axes if a.merges)

    def error(small):
        return 0.5 if small[0].out_features < 10 else 0.0

    costs = in_output_error(planner, axis, error, 0.4).costs
    assert costs[-1] > 0.5 > costs[7] > 0
    assert max(in_output_error(planner, axis, lambda small: 0.0, 0.4).costs) == 0

"""The rotation penalty: what a group element and a rotation do to a trained net, and the command line."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from intertwine import Group
from intertwine.cli import main
from intertwine.errors import InputError, NotFound
from intertwine.stitching import rotate
from intertwine.stitching.rotation import random_basis
from intertwine.symmetry.surgery import Surgeon

RELU = Group(permutation=True, positive=1)


@pytest.fixture(scope="module")
def trained():
    """A narrow bottleneck, so that a rotation before its ReLU cannot be undone."""
    torch.manual_seed(0)
    x = torch.randn(800, 4)
    labels = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[:600]), labels[:600]).backward()
        optimizer.step()
    return net.eval(), (x[:600], labels[:600]), (x[600:], labels[600:])


def test_a_group_element_is_undone_by_the_next_weights(trained):
    """W phi(A)^-1 in the next layer restores the network exactly (Proposition 3.4)."""
    net, _, (x, _) = trained
    surgeon = Surgeon(net, (x[:10],))
    cut = surgeon.cut("0")
    basis = random_basis("group", 4, surgeon.value("0").group).float()
    suffix = surgeon.suffix(cut)
    (value,) = surgeon.prefix(cut)(x)
    assert not torch.allclose(suffix(value @ basis.T), net(x), atol=1e-2)
    weight = suffix.get_parameter("body.2.weight")
    weight.data = weight.data @ torch.linalg.inv(basis)
    assert torch.allclose(suffix(value @ basis.T), net(x), atol=1e-4)


def test_fine_tuning_mends_the_group_and_not_the_rotation(trained):
    net, train, test = trained
    state = {k: v.clone() for k, v in net.state_dict().items()}
    options = {"at": "0", "epochs": 40, "learning_rate": 0.03, "batch": 100, "spread": 0.5}
    found = {by: rotate(net, train, test, by=by, **options) for by in ("group", "orthogonal", "identity")}
    assert found["group"].broken < found["group"].before - 0.1
    assert found["identity"].broken == found["identity"].before
    assert found["group"].tuned > found["group"].broken
    assert found["group"].penalty < 5
    assert found["group"].penalty < found["orthogonal"].penalty - 2
    assert all(torch.equal(state[k], v) for k, v in net.state_dict().items())


def test_bases_belong_where_they_should():
    q = random_basis("orthogonal", 6, RELU, seed=1)
    assert torch.allclose(q.T @ q, torch.eye(6, dtype=torch.float64), atol=1e-12)
    g = random_basis("group", 6, RELU, seed=1)
    assert (g.count_nonzero(0) == 1).all() and (g.sum(1) > 0).all() and g.max() != 1
    gelu = random_basis("group", 6, Group(permutation=True), seed=1)
    assert set(gelu.unique().tolist()) == {0.0, 1.0}
    tanh = random_basis("group", 40, Group(permutation=True, sign=1), seed=1)
    assert set(tanh.unique().tolist()) == {-1.0, 0.0, 1.0}


def test_the_group_is_what_the_rest_of_the_network_can_undo():
    net = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2)
    )
    surgeon = Surgeon(net.eval(), (torch.zeros(2, 3),))
    groups = [surgeon.value(name).group.name for name in ("0", "1", "2", "3", "5")]
    assert groups == ["monomial", "positive monomial", "positive monomial", "permutation", "trivial"]


def test_bad_arguments(trained):
    net, train, test = trained
    with pytest.raises(InputError, match="no change of basis"):
        rotate(net, train, test, at="0", by="shear")
    with pytest.raises(NotFound, match="no layer named"):
        rotate(net, train, test, at="zero")
    with pytest.raises(InputError, match="epochs"):
        rotate(net, train, test, at="0", epochs=-1)


def test_command_line(capsys):
    arguments = ["rotate", "zoo:digits-vgg", "--weights", "shipped:0", "--data", "digits", "--limit", "100"]
    arguments += ["--train-limit", "200", "--epochs", "1"]
    assert main([*arguments, "--at", "features.4", "--by", "orthogonal", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["by"] == "orthogonal" and found["before"] > 0.9 > found["broken"]
    assert main([*arguments, "--at", "features.44"]) == 2
    assert "features.4" in capsys.readouterr().err

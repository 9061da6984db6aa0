"""Networks of unequal depths: blocks that do nothing, where they may stand, and what is refused."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from intertwine import act, combine, load, trace
from intertwine.cli.program import main
from intertwine.combining._depths import differ_in_depth, equal_depths
from intertwine.errors import InputError

X = torch.randn(300, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.two, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(x + self.norm2(self.two(torch.relu(self.norm1(self.one(x))))))


class Net(nn.Module):
    def __init__(self, *blocks: int, kind=Block) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.stages = nn.ModuleList(nn.Sequential(*(kind(6) for _ in range(n))) for n in blocks)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))


class Normed(Block):
    """Whose sum is normed: no weights make it do nothing."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.last = nn.GroupNorm(1, width)

    def forward(self, x):
        return self.last(super().forward(x))


class Pre(nn.Module):
    """Two branches a block, as in transformers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 8)
        self.norm2, self.mix = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        x = x + self.mix(self.norm2(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def net(seed, *blocks, kind=Block):
    torch.manual_seed(seed)
    found = Net(*blocks, kind=kind)
    for k in range(10):
        found.train()(X[k * 30 :][:30])
    return found.eval()


@pytest.mark.parametrize("kind", [Block, Pre])
def test_blocks_that_do_nothing_change_nothing(kind):
    shallow, deep = net(0, 2, 1, kind=kind), net(1, 4, 1, kind=kind)
    found = equal_depths([shallow, deep], X, ["a", "b"])
    assert found.deepest == 1 and found.models[1] is deep and not found.idle[1]
    assert len(found.models[0].stages[0]) == 4 and len(shallow.stages[0]) == 2
    with torch.no_grad():
        torch.testing.assert_close(found.models[0](X), shallow(X), rtol=1e-5, atol=1e-5)
    # What those blocks read is free, and nothing else is: any numbers there leave the function as it is.
    with torch.no_grad():
        own = dict(found.models[0].named_parameters())
        free = [n for n in own if n.startswith(tuple(found.idle[0])) and n not in found.zero]
        assert free
        for name in free:
            own[name].normal_()
        torch.testing.assert_close(found.models[0](X), shallow(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_network_and_its_deeper_form_are_combined_into_it(swapped):
    """The deeper one computes the same in other coordinates; a block does nothing at some place."""
    shallow = net(0, 2, 1)
    deep = equal_depths([shallow, net(1, 3, 1)], X, ["a", "b"]).models[0]
    deep = act(deep, trace(deep, X[:2]).sample(3, parts=("permutation",)))
    models = [deep, shallow] if swapped else [shallow, deep]
    result = combine(models, train_data=X)
    assert "unequal depths" in result.notes[0] and result.like == (0 if swapped else 1)
    with torch.no_grad():
        wanted = shallow(X)
        apart = float((result.model(X) - wanted).square().mean() / wanted.var(0).mean())
    assert apart < 0.02


def test_unrelated_networks_of_unequal_depths_are_nearer_than_their_average():
    a, b = net(0, 2, 1), net(1, 3, 2)
    new = torch.randn(200, 3, 8, 8, generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        wanted = (a(new) + b(new)) / 2
        errors = [
            float((combine([a, b], train_data=X, **way).model(new) - wanted).square().mean())
            for way in ({}, {"how": "average", "align": "none"})
        ]
    assert errors[0] < 0.5 * errors[1]


def test_blocks_are_put_into_networks_whose_norms_are_folded():
    def words(seed, depth):
        torch.manual_seed(seed)
        blocks = [Pre(8) for _ in range(depth)]
        model = nn.Sequential(nn.Embedding(11, 8), nn.Sequential(*blocks), nn.LayerNorm(8), nn.Linear(8, 11))
        for norm in (m for m in model.modules() if isinstance(m, nn.LayerNorm)):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, std=0.1)
        return model.eval()

    ids, new = torch.randint(11, (2, 400, 6), generator=torch.Generator().manual_seed(0))
    a, b = words(0, 1), words(1, 3)
    with torch.no_grad():
        wanted = (a(new) + b(new)) / 2
        errors = [
            float((combine([a, b], train_data=ids, **way).model(new) - wanted).square().mean())
            for way in ({"fold": True}, {"how": "average", "align": "none"})
        ]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize(
    "models, says",
    [
        (lambda: (net(0, 1, 1, kind=Normed), net(1, 2, 1, kind=Normed)), "does not compute what it did"),
        (lambda: (net(0, 1, 2), net(1, 2, 1)), "no network is the deepest"),
        (lambda: (_plain(1), _plain(2)), "do not fit"),
    ],
    ids=["norm after the sum", "each deeper somewhere", "no residual blocks"],
)
def test_what_cannot_be_deepened_is_told(models, says):
    pair = models()
    assert differ_in_depth(pair)
    with pytest.raises(InputError, match=says):
        combine(pair, train_data=X)


def _plain(depth):
    hidden = [layer for _ in range(depth) for layer in (nn.Linear(10, 10), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 10), nn.ReLU(), *hidden, nn.Linear(10, 4)).eval()


def test_the_command_writes_the_deeper_network(tmp_path, capsys):
    code = tmp_path / "nets.py"
    code.write_text(
        "import torch\nfrom torch import nn\n"
        "class Block(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.up, self.down = nn.Linear(16, 24), nn.Linear(24, 16)\n"
        "    def forward(self, x):\n        return x + self.down(self.up(x).relu())\n"
        "def make(n):\n    torch.manual_seed(n)\n"
        "    blocks = [Block() for _ in range(n)]\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), *blocks, nn.Linear(16, 10))\n"
        "def two():\n    return make(2)\n"
        "def three():\n    return make(3)\n"
    )
    out = tmp_path / "both"
    argv = ["combine", f"{code}:two", f"{code}:three", "--data", "digits", "--limit", "200", "--train-data",
            "digits", "--train-limit", "200", "-o", str(out), "--json"]  # fmt: skip
    assert main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    loaded = load(out, run_code=True)
    assert len(loaded) == 6 and "unequal depths" in found["notes"][0]
    assert sum(p.numel() for p in loaded.parameters()) == found["parameters"]

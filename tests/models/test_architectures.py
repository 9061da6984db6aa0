"""The table of real architectures: claimed symmetries hold in float64, and the control shows a wrong one."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import Any

import pytest
import torch
from shallow import SHALLOW
from torch import nn

from intertwine import Report, verify, zoo
from intertwine.zoo.myrtle import myrtle

# Inputs are smaller than usual where the architecture allows it; the graph is the same.
TORCHVISION = {
    "alexnet": 64,
    "resnet50": 64,
    "resnext50_32x4d": 64,
    "densenet121": 64,
    "mobilenet_v2": 64,
    "mobilenet_v3_small": 64,
    "efficientnet_b0": 64,
    "shufflenet_v2_x1_0": 64,
    "squeezenet1_1": 64,
    "googlenet": 64,
    "regnet_y_400mf": 64,
    "convnext_tiny": 64,
    "swin_t": 64,
}
TIMM = {
    "resnetv2_50": 64,
    "mixer_s16_224": 224,
    "convmixer_768_32": 64,
    "ghostnet_100": 64,
    "levit_128": 224,
    "poolformer_s12": 64,
    "res2net50_26w_4s": 64,
    "coatnet_nano_rw_224": 224,
    "eva02_tiny_patch14_224": 224,
}
DEEP = ("resnet56-pad", pytest.param("resnet110", marks=pytest.mark.nightly))
BETWEEN = ("resnet44", "resnet56", "resnet110")  # one builder: other depths and heads add nothing
AGAIN = ("resnet20-cifar100", "resnet32", "resnet34", "resnet50-open", "vgg13", "vgg19")  # the same; nightly
ZOO = [name for name in zoo.names() if not name.startswith((*BETWEEN, *AGAIN))]


# The others are held by shallow nets of the same blocks, by nets of the zoo or by test_model_values.
BY_DAY = {"squeezenet1_1"}


def rows(names: Iterable[str]) -> list[Any]:
    """Names as cases, all but those of BY_DAY marked nightly."""
    return [pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in names]


def check(spec: str, size: str | None = None) -> Report:
    """Verify one model and hold it to the bar."""
    source = zoo.resolve(spec, input=size)
    return hold(spec, verify(source.model, source.example, kwargs=source.kwargs))


def hold(spec: str, report: Report) -> Report:
    assert report.max_error <= 1e-10, f"{spec}: a claimed symmetry does not hold"
    assert report.control_error >= 1e-4, f"{spec}: the control should have failed"
    assert not report.unknown_ops
    if report.parameter_coverage < 0.95:
        reasons = [why for why in report.frozen.values() if why]
        assert reasons or report.unused_parameters, f"{spec}: {report.parameter_coverage} without a reason"
    return report


def narrow(name: str) -> nn.Module:
    """A net of the zoo with an eighth of its channels: the graph is the same, float64 runs in a second."""
    if name == "myrtle-constant":
        return myrtle((64,) * 4).eval()
    width = signature(zoo.entry(name).factory).parameters.get("width")
    fewer = {} if width is None else {"width": max(8, width.default // 8)}
    return zoo.build(name, **fewer).eval()


@pytest.mark.parametrize("name", [name for name in ZOO if not zoo.entry(name).tokens])
def test_zoo(name: str) -> None:
    example = torch.randn(1, *zoo.entry(name).shape, generator=torch.Generator().manual_seed(0))
    assert hold(name, verify(narrow(name), example)).parameter_coverage >= 0.95


@pytest.mark.parametrize("name", [name for name in ZOO if zoo.entry(name).tokens])
def test_zoo_of_tokens(name: str) -> None:
    assert check(f"zoo:{name}", f"1x{zoo.entry(name).shape[0]}:int64").parameter_coverage >= 0.95


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in zoo.names() if not name.startswith(BETWEEN)])
def test_zoo_at_full_width(name: str) -> None:
    shape, kind = "x".join(map(str, zoo.entry(name).shape)), ":int64" if zoo.entry(name).tokens else ""
    assert check(f"zoo:{name}", f"1x{shape}{kind}").parameter_coverage >= 0.95


@pytest.mark.parametrize("name", DEEP)
def test_zoo_deep(name: str) -> None:
    assert check(f"zoo:{name}", "1x3x16x16").parameter_coverage >= 0.95


@pytest.mark.parametrize("name", SHALLOW)
def test_shallow(name: str) -> None:
    build, size = SHALLOW[name]
    torch.manual_seed(0)
    report = verify(build().eval(), torch.randn(1, 3, size, size))
    rotary = name.startswith("eva02")  # its queries and keys turn in planes, which are no axis
    assert hold(name, report).parameter_coverage >= (0.85 if rotary else 0.99)


@pytest.mark.parametrize("name", rows(TORCHVISION))
def test_torchvision(name: str) -> None:
    check(f"torchvision:{name}", f"1x3x{TORCHVISION[name]}x{TORCHVISION[name]}")


@pytest.mark.parametrize("name", rows(TIMM))
def test_timm(name: str) -> None:
    check(f"timm:{name}", f"1x3x{TIMM[name]}x{TIMM[name]}")

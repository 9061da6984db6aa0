"""Accuracy and loss against a direct computation, and no trace left on the model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from intertwine.data import Dataset, evaluate
from intertwine.errors import DataError, ModelError


def make_data(count: int = 23, classes: int = 4) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(count, 2, 3, 3, generator=generator)
    labels = torch.randint(0, classes, (count,), generator=generator)
    return Dataset("made", images, labels, tuple("abcd"), batch=5)


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.Dropout(0.9), nn.Flatten(), nn.Linear(27, 4)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matches_direct_computation(dtype: torch.dtype) -> None:
    model, data = make_model().to(dtype), make_data()
    got = evaluate(model, data)
    with torch.no_grad():
        logits = model.eval()(data.images.to(dtype)).double()
    loss = -logits.log_softmax(1)[torch.arange(len(data)), data.labels].mean()
    assert got.loss == pytest.approx(float(loss), rel=1e-6)
    assert got.accuracy == pytest.approx(float((logits.argmax(1) == data.labels).double().mean()))


def test_batch_size_does_not_matter() -> None:
    model, data = make_model().double(), make_data()
    a, b = evaluate(model, data, batch=1), evaluate(model, data, batch=100)
    assert a.accuracy == b.accuracy
    assert a.loss == pytest.approx(b.loss, rel=1e-12)


def test_the_model_is_left_as_it_was() -> None:
    model, data = make_model().train(), make_data()
    model[1].eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    evaluate(model, data)
    assert [m.training for m in model.modules()] == modes
    assert all(before[k].equal(v) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_modes_are_restored_after_a_failure() -> None:
    model = make_model().train()
    bad = Dataset("bad", torch.randn(3, 9, 3, 3), torch.zeros(3, dtype=torch.int64), ("a",))
    with pytest.raises(ModelError, match="shape \\(3, 9, 3, 3\\)"):
        evaluate(model, bad)
    assert all(m.training for m in model.modules())


class Wrapped(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.inner, self.form = make_model(), form

    def forward(self, x: Tensor) -> object:
        y = self.inner(x)
        forms = {"tuple": (y, x), "logits": {"logits": y}, "out": {"out": y}, "other": {"z": y}, "flat": y[0]}
        return forms[self.form]


@pytest.mark.parametrize("form", ["tuple", "logits", "out"])
def test_wrapped_outputs(form: str) -> None:
    assert evaluate(Wrapped(form), make_data()) == evaluate(make_model(), make_data())


@pytest.mark.parametrize("form", ["other", "flat"])
def test_outputs_without_scores(form: str) -> None:
    with pytest.raises(ModelError, match="class scores"):
        evaluate(Wrapped(form), make_data())


def test_too_few_classes() -> None:
    with pytest.raises(DataError, match="only 4 classes"):
        evaluate(make_model(), make_data(classes=9))


def test_progress_counts_images() -> None:
    seen: list[int] = []
    evaluate(make_model(), make_data(), progress=seen.append)
    assert seen == [5, 5, 5, 5, 3]

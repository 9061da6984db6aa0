"""How well a model predicts: accuracy and cross entropy of classes or of tokens, each with its interval."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine.data.batches import Batches, arguments
from intertwine.data.tokens import IGNORED
from intertwine.errors import DataError, IntertwineError, ModelError
from intertwine.text import first_line

SIGMAS = 1.96  # 95 % of a normal distribution


@dataclass(frozen=True)
class Evaluation:
    """accuracy in [0, 1]; loss = mean cross entropy in nats; cosine = that of embeddings with a reference's.

    An `_error` is the half width of the 95 % interval, over inputs (the tokens of one window are not
    independent). Of text, `tokens` is how many were predicted, and perplexity = exp(loss). NaN: not measured.
    """

    accuracy: float
    loss: float
    accuracy_error: float = field(default=math.nan, compare=False)
    loss_error: float = field(default=math.nan, compare=False)
    inputs: int = 0
    tokens: int = 0
    cosine: float = field(default=math.nan, compare=False)
    cosine_error: float = field(default=math.nan, compare=False)

    @property
    def perplexity(self) -> float:
        """exp(loss): among how many equally likely tokens the model wavers."""
        return math.exp(min(self.loss, 700.0))

    def __str__(self) -> str:
        if not math.isnan(self.cosine):
            return f"cosine {self.cosine:.4f} ± {self.cosine_error:.4f}"
        accuracy = f"accuracy {self.accuracy:.2%} ± {self.accuracy_error:.2%}"
        if not self.tokens:
            return accuracy
        low, high = (math.exp(min(self.loss + sign * self.loss_error, 700.0)) for sign in (-1, 1))
        return f"perplexity {self.perplexity:.3f} ({low:.3f} to {high:.3f}), {accuracy} of tokens"

    def to_dict(self) -> dict[str, float]:
        """Plain numbers; what was not measured is left out."""
        found = {**asdict(self), **({"perplexity": self.perplexity} if self.tokens else {})}
        return {name: value for name, value in found.items() if not math.isnan(value)}


class _Ratio:
    """sum a_i / sum b_i over inputs i, and the half width of its 95 % interval (by linearisation)."""

    def __init__(self) -> None:
        self.count, self.sums = 0, torch.zeros(5, dtype=torch.float64)

    def add(self, a: Tensor, b: Tensor) -> None:
        a, b = a.double().cpu(), b.double().cpu()
        self.count += len(a)
        self.sums += torch.stack([a.sum(), b.sum(), (a * a).sum(), (a * b).sum(), (b * b).sum()])

    def result(self) -> tuple[float, float]:
        a, b, aa, ab, bb = self.sums.tolist()
        if not b:
            return math.nan, math.nan
        ratio, n = a / b, self.count
        spread = max(aa - 2 * ratio * ab + ratio * ratio * bb, 0.0)
        return ratio, SIGMAS * math.sqrt(spread * n / (n - 1)) / b if n > 1 else math.inf


def evaluate(
    model: nn.Module,
    dataset: Any,
    *,
    batch: int | None = None,
    progress: Callable[[int], None] | None = None,
    reference: nn.Module | Embeddings | None = None,
) -> Evaluation:
    """accuracy = mean [argmax f(x) = y], loss = mean -log softmax f(x)_y, in eval mode and without gradients.

    dataset: labelled data of any form (`data.batches`); where a label is a row (text), every position that is
    not -100 counts. Text for encoders has nothing to predict: the cosine of the model's embeddings (the mean
    over tokens) with those of `reference` is measured, a model or, for several evaluations, its `Embeddings`.
    Device and dtype are the model's; the training flag of every module is put back. `progress` is called
    with the number of inputs of each batch.

    >>> from intertwine.data import load_data
    >>> constant = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    >>> _ = [nn.init.zeros_(p) for p in constant.parameters()]
    >>> round(evaluate(constant, load_data("digits")).loss, 4)  # ln 10
    2.3026
    """
    like = like_inputs(model)
    if getattr(dataset, "objective", "") == "embedding":
        known = Embeddings(reference) if isinstance(reference, nn.Module) else reference
        return _cosine(model, known, Batches(dataset, batch=batch, device=like.device), progress)
    accuracy, loss, tokens = _Ratio(), _Ratio(), 0
    with eval_mode(model), torch.no_grad():
        for inputs, given in Batches(dataset, batch=batch, device=like.device):
            if given is None:
                raise DataError("the data has no labels", do="pass (inputs, labels), or batches of them")
            logits = scores(model, inputs, like.dtype, tokens=given.dim() == 2)
            labels = given.to(logits.device)
            _assert_fits(logits, labels, dataset)
            counted = (labels != IGNORED).reshape(len(labels), -1)
            wrong = F.cross_entropy(
                logits.double().flatten(0, -2), labels.flatten(), reduction="none", ignore_index=IGNORED
            )
            hits = (logits.argmax(-1) == labels).reshape(counted.shape) & counted
            accuracy.add(hits.sum(1), counted.sum(1))
            loss.add(wrong.reshape(counted.shape).sum(1), counted.sum(1))
            tokens += int(counted.sum()) if labels.dim() == 2 else 0
            if progress is not None:
                progress(len(labels))
    if not accuracy.count:
        raise DataError("there are no inputs")
    (right, right_error), (mean, mean_error) = accuracy.result(), loss.result()
    return Evaluation(right, mean, right_error, mean_error, accuracy.count, tokens)


class Embeddings:
    """What an encoder makes of batches, one vector an input. A batch is known by its entries, so that nothing
    is computed twice, in whatever order the data come.

    >>> seen = Embeddings(nn.Linear(3, 2))
    >>> x = torch.ones(4, 3)
    >>> seen.of(x) is seen.of(x.clone()), seen.of(x) is seen.of(2 * x)
    (True, False)
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._known: dict[bytes, Tensor] = {}

    @torch.no_grad()
    def of(self, inputs: Any) -> Tensor:
        """The vectors of one batch."""
        entries = _digest(inputs)
        if entries not in self._known:
            with eval_mode(self.model):
                self._known[entries] = embedding_of(call(self.model, inputs))
        return self._known[entries]


def _digest(inputs: Any) -> bytes:
    args, kwargs = arguments(inputs)
    total = hashlib.sha256()
    for name, tensor in [*enumerate(args), *sorted(kwargs.items())]:
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return total.digest()


def _cosine(
    model: nn.Module, reference: Embeddings | None, data: Batches, progress: Callable[[int], None] | None
) -> Evaluation:
    """The mean cosine between what two encoders make of the same windows."""
    if reference is None:
        raise DataError(
            "an encoder predicts no tokens: its embeddings can only be compared with another's",
            do="evaluate(model, data, reference=other)",
        )
    found = _Ratio()
    with eval_mode(model), torch.no_grad():
        for inputs, _ in data:
            b = reference.of(inputs)
            a = b if model is reference.model else embedding_of(call(model, inputs))
            if a.shape != b.shape:
                raise ModelError(f"embeddings of shapes {tuple(a.shape)} and {tuple(b.shape)}")
            cosine = F.cosine_similarity(a.double(), b.double(), dim=-1)
            found.add(cosine, torch.ones_like(cosine))
            if progress is not None:
                progress(len(cosine))
    if not found.count:
        raise DataError("there are no inputs")
    mean, error = found.result()
    return Evaluation(math.nan, math.nan, inputs=found.count, cosine=mean, cosine_error=error)


def like_inputs(model: nn.Module) -> Tensor:
    """A tensor of the device and precision of a model's inputs: a weight, or one that is empty without any.

    >>> like_inputs(nn.ReLU()).dtype
    torch.float32
    """
    stored = chain(model.parameters(), model.buffers())
    return next((tensor for tensor in stored if tensor.is_floating_point()), torch.empty(0))


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; the flag of every module is put back."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in training.items():
            module.training = mode


def scores(
    model: nn.Module, inputs: Any, dtype: torch.dtype | None = None, *, tokens: bool = False
) -> Tensor:
    """The class scores of a model, N x classes; ModelError whatever its forward raises, sys.exit included.

    tokens: scores of a token at every position, N x positions x classes.

    >>> tuple(scores(nn.Linear(3, 2), torch.zeros(4, 3)).shape)
    (4, 2)
    """
    args, kwargs = arguments(inputs)
    shape = tuple(args[0].shape) if args else tuple(kwargs)
    logits = logits_of(call(model, inputs, dtype))
    if logits.ndim != 2 + tokens or (args and len(logits) != len(args[0])):
        raise ModelError(
            f"class scores of shape {tuple(logits.shape)} for inputs of {shape}",
            do="return a tensor of N x tokens x classes" if tokens else "return a tensor of N x classes",
        )
    return logits


def call(model: nn.Module, inputs: Any, dtype: torch.dtype | None = None) -> Any:
    """What the model makes of inputs (in `dtype`, except whole numbers); ModelError whatever it raises."""
    args, kwargs = arguments(inputs)
    if dtype is not None:  # tokens stay numbers
        args = tuple(x if x.dtype == torch.int64 else x.to(dtype) for x in args)
        kwargs = {k: x.to(dtype) if x.is_floating_point() else x for k, x in kwargs.items()}
    shape = tuple(args[0].shape) if args else tuple(kwargs)
    try:
        return model(*args, **kwargs)
    except IntertwineError:
        raise
    except (Exception, SystemExit) as error:
        tokens = [x for x in args[:1] if x.dtype == torch.int64 and x.numel()]
        if isinstance(error, IndexError) and tokens:
            most = int(tokens[0].max())
            raise ModelError(
                f"the model fails on tokens up to {most} in windows of {shape[-1]}: {first_line(error)}",
                so="a table of it has fewer rows",
                do="give the model's own tokenizer (--tokenizer), or shorter windows (--context), or, of a "
                f"toy, a larger table (hf:bert?layers=2&vocabulary={most + 1})",
            ) from error
        raise ModelError(
            f"the model fails on inputs of shape {shape}: {first_line(error)}",
            do="check that model and data belong together (channels, image size, vocabulary, batches of one)",
        ) from error


def embedding_of(output: Any) -> Tensor:
    """One vector an input: the mean over tokens of the last hidden state, or of what a head makes of it."""
    states = output
    if isinstance(output, Mapping):
        states = output.get("last_hidden_state", output.get("logits"))
    states = states[0] if isinstance(states, tuple | list) and states else states
    if not isinstance(states, Tensor) or states.dim() not in (2, 3):
        raise ModelError("the model's output holds no hidden states", do="use an encoder without a head")
    return states if states.dim() == 2 else states.mean(1)


def logits_of(output: Any) -> Tensor:
    """The class scores in an output: the tensor, its entry "logits" or "out", or the first of a tuple."""
    if isinstance(output, Mapping):
        output = output.get("logits", output.get("out"))
    elif isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, Tensor) or not output.dim() or not output.is_floating_point():
        raise ModelError("the model's output holds no class scores", do="return a tensor of N x classes")
    return output


def _assert_fits(logits: Tensor, labels: Tensor, dataset: Any) -> None:
    if logits.shape[:-1] != labels.shape:
        raise ModelError(f"class scores of shape {tuple(logits.shape)} for labels of {tuple(labels.shape)}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise DataError(f"labels are {labels.dtype}, not whole numbers")
    if bool(((labels < 0) & (labels != IGNORED)).any()):
        raise DataError(f"{getattr(dataset, 'name', 'the data')} has the label {int(labels.min())}")
    if int(labels.max()) >= logits.shape[-1]:
        what = "classes" if labels.dim() == 1 else "tokens"
        raise DataError(
            f"{getattr(dataset, 'name', 'the data')} has the label {int(labels.max())}, "
            f"the model only {logits.shape[-1]} {what}"
        )

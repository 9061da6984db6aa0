"""J(t) = 1/|C| sum over x in C of |phi(x, theta) - phi(x, t)|^2, for any module (section 3 of GENNI).

An `Objective` is a scalar function of a flat parameter vector: the distance J of two functions on a fixed
set C, or a data loss. It owns a private copy of the model, so that the caller's model is never touched, and
evaluates many parameter vectors in one of two ways that give the same numbers: *batched*
(`torch.func.vmap` over the vectors, fast for small networks) and *streamed* (one vector at a time).

The coordinates are the model's parameters. Buffers are not coordinates: with `batch_norm="stored"` every
vector is run with the buffers of theta (batch norm in evaluation mode), with `batch_norm="batch"` batch
norm uses the statistics of C itself, and C is then never cut into pieces.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, replace_all_batch_norm_modules_, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from intertwine.checks import checked
from intertwine.data.evaluation import logits_of
from intertwine.errors import InputError, IntertwineError, ModelError, Unsupported, WeightsError
from intertwine.graph.copying import copy_model
from intertwine.graph.export import check_values
from intertwine.text import first_line

PerExample = Callable[[Tensor, Tensor], Tensor]
Inputs = Tensor | Sequence[Tensor] | Mapping[str, Tensor]


@dataclass(frozen=True)
class FlatLayout:
    """How a flat vector splits into named parameters.

    >>> layout = FlatLayout(("a", "b"), ((2, 1), (3,)))
    >>> {name: tuple(part.shape) for name, part in layout.unflatten(torch.arange(5.0)).items()}
    {'a': (2, 1), 'b': (3,)}
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(torch.Size(shape).numel() for shape in self.shapes)

    @property
    def length(self) -> int:
        return sum(self.sizes)

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """The parameters as one vector, in the order of the names."""
        missing = [name for name in self.names if name not in parameters]
        if missing:
            raise WeightsError(f"no parameter named {missing[0]!r} ({len(missing)} missing)")
        for name, shape in zip(self.names, self.shapes, strict=True):
            if tuple(parameters[name].shape) != shape:
                raise WeightsError(
                    f"parameter {name!r} has shape {tuple(parameters[name].shape)}, expected {shape}"
                )
        return torch.cat([parameters[name].detach().reshape(-1) for name in self.names])

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Views of the vector, one a parameter; leading dims (a stack of vectors) are kept."""
        parts = vector.split(self.sizes, dim=-1)
        return {
            name: part.reshape(*vector.shape[:-1], *shape)
            for name, shape, part in zip(self.names, self.shapes, parts, strict=True)
        }


def squared_distance(output: Tensor, target: Tensor) -> Tensor:
    """|output - target|_2^2 of every example: the integrand of J."""
    return (output - target).flatten(1).square().sum(1) if output.dim() > 1 else (output - target).square()


def scores(output: Any) -> Tensor:
    """The tensor that a model returns, or its logits where it names them; of a tuple, none stands for all."""
    found = logits_of(output) if isinstance(output, Mapping) else output
    if not isinstance(found, Tensor):
        raise ModelError(
            f"the model's output is a {type(output).__name__}, not a tensor",
            so="the distance of two functions is not defined",
            do="wrap the model in a module that returns one tensor, for example its logits",
        )
    if found.is_nested or found.layout is not torch.strided:
        raise ModelError("the model's output is not dense", do="call to_dense() on it before it is returned")
    return found


class Objective:
    """A scalar function of a flat parameter vector; see `function_distance` and `data_loss`."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Inputs,
        *,
        targets: Tensor | None = None,
        loss: PerExample = squared_distance,
        name: str = "J",
        batch_norm: str = "stored",
    ) -> None:
        if batch_norm not in ("stored", "batch"):
            raise InputError(f"batch_norm is 'stored' or 'batch', not {batch_norm!r}")
        check_values(model)
        self._module = copy_model(model).eval().requires_grad_(False)
        self._norms = sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in self._module.modules())
        if batch_norm == "batch":
            replace_all_batch_norm_modules_(self._module)
        self.batch_norm = batch_norm
        self.name = name
        self.loss = loss
        parameters = dict(self._module.named_parameters())
        if not parameters:
            raise ModelError("the model has no parameters", so="there is nothing to explore")
        whole = next((name for name, p in parameters.items() if not p.is_floating_point()), None)
        if whole is not None:
            raise Unsupported(f"{whole} is no real number: {parameters[whole].dtype}", do="make it a buffer")
        self.layout = FlatLayout(tuple(parameters), tuple(tuple(p.shape) for p in parameters.values()))
        self.theta = self.layout.flatten(parameters)
        self._names = tuple(inputs) if isinstance(inputs, Mapping) else ()
        self.inputs = _check_inputs(inputs)
        self.size = len(self.inputs[0])
        self._shape: torch.Size | None = None  # of a row of the outputs
        self.outputs = self._check_outputs()
        self._shape = self.outputs.shape[1:]
        self.targets = self.outputs if targets is None else targets
        if len(self.targets) != self.size:
            raise InputError(f"{len(self.targets)} targets for {self.size} inputs")

    @property
    def splittable(self) -> bool:
        """Whether C may be evaluated in pieces: not when batch norm looks at all of it."""
        return self.batch_norm == "stored" or self._norms == 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know about how the numbers were made."""
        buffers = sum(b.is_floating_point() for b in self._module.buffers())
        if self._norms and self.batch_norm == "batch":
            return (f"{self._norms} batch norms use the statistics of C itself",)
        if buffers:
            return (f"{buffers} floating-point buffers are held at their values in theta (evaluation mode)",)
        return ()

    @property
    def spread(self) -> float:
        """Variance of theta's own outputs on C: the J of the best constant function.

        An epsilon near or above it does not tell the function of theta from a constant.
        """
        out = self.outputs.double().flatten(1) if self.outputs.dim() > 1 else self.outputs.double()[:, None]
        return float((out - out.mean(0)).square().sum(1).mean())

    def module(self, vector: Tensor) -> nn.Module:
        """A new module that holds the parameters of `vector`."""
        module = copy_model(self._module)
        named = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in self.layout.unflatten(vector).items():
                named[name].copy_(value)
        return module

    def run(self, vector: Tensor, examples: slice = slice(None)) -> Tensor:
        """phi(x, vector) for the chosen part of C."""
        output = functional_call(self._module, self.layout.unflatten(vector), *self.arguments(examples))
        found = scores(output)
        if self._shape is not None and found.shape[1:] != self._shape:
            raise ModelError(
                f"a row of the model's outputs is {tuple(found.shape[1:])}, and was {tuple(self._shape)}",
                so="the distance of two functions is not defined",
                do="let forward compute the same in every call",
            )
        return found

    def arguments(self, examples: slice = slice(None)) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """What the model is called with for the chosen part of C."""
        found = tuple(x[examples] for x in self.inputs)
        return ((), dict(zip(self._names, found, strict=True))) if self._names else (found, {})

    def sums(self, vectors: Tensor, examples: slice = slice(None), *, batched: bool = False) -> Tensor:
        """Sum (not mean) of the loss over a part of C, for every row of `vectors`; differentiable."""
        targets = self.targets[examples]

        def one(vector: Tensor) -> Tensor:
            return self.loss(self.run(vector, examples), targets).sum()

        if batched:
            with warnings.catch_warnings():
                # Ops without a batching rule run in a loop; the measurement then prefers to stream.
                warnings.filterwarnings(
                    "ignore", message="There is a performance drop because we have not yet"
                )
                return vmap(one)(vectors)
        return torch.stack([one(vector) for vector in vectors])

    @checked
    @torch.no_grad()
    def values(self, vectors: Tensor, *, batched: bool = False, examples: int | None = None) -> Tensor:
        """The objective at every row of `vectors`, in float64, `examples` of C at a time."""
        step = (examples or self.size) if self.splittable else self.size
        total = torch.zeros(len(vectors), dtype=torch.float64, device=vectors.device)
        for start in range(0, self.size, step):
            total += self.sums(vectors, slice(start, start + step), batched=batched).double()
        return total / self.size

    @torch.no_grad()
    def screen(
        self, vector: Tensor, levels: Sequence[float], *, sigmas: float, precision: float = 0.0,
        examples: int = 128,
    ) -> tuple[float, int]:  # fmt: skip
        """The mean loss over a growing part of C, and its size: all of C, unless it is clear before.

        Clear means that the mean over the first examples is `sigmas` standard errors away from each level,
        or that its standard error is below `precision` of it.
        C must be in random order. The first piece has `examples` inputs, each later one as many as all before
        it together, but at most 512.
        """
        total, squares, count = 0.0, 0.0, 0
        while count < self.size:
            step = min(max(count, examples), 512) if self.splittable else self.size
            part = slice(count, count + step)
            losses = self.loss(self.run(vector, part), self.targets[part]).double()
            total, squares = total + float(losses.sum()), squares + float(losses.square().sum())
            count += len(losses)
            mean = total / count
            error = (max(squares / count - mean * mean, 0.0) / count) ** 0.5
            clear = all(abs(mean - level) > sigmas * error for level in levels)
            if clear or error < precision * mean:
                break
        return mean, count

    def gradients(
        self, vectors: Tensor, examples: slice = slice(None), *, batched: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Mean loss over a part of C and its gradient, for every row of `vectors`."""
        count = len(self.targets[examples])
        if batched:
            leaf = vectors.detach().requires_grad_(True)
            with torch.enable_grad():
                means = self.sums(leaf, examples, batched=True) / count
                (gradient,) = torch.autograd.grad(means.sum(), leaf)
            return means.detach(), gradient
        pairs = [self._gradient(vector, examples, count) for vector in vectors]
        return torch.stack([mean for mean, _ in pairs]), torch.stack([gradient for _, gradient in pairs])

    def _gradient(self, vector: Tensor, examples: slice, count: int) -> tuple[Tensor, Tensor]:
        leaf = vector.detach().requires_grad_(True)
        with torch.enable_grad():
            mean = self.sums(leaf[None], examples)[0] / count
            (gradient,) = torch.autograd.grad(mean, leaf)
        return mean.detach(), gradient

    def bytes_per_example(self) -> int:
        """Bytes that one forward pass of one example writes: an upper bound of its working memory."""
        probe = min(self.size, 8)
        with torch.no_grad(), _CountBytes() as counter:
            self.run(self.theta, slice(0, probe))
        result: int = max(1, counter.bytes // probe)
        return result

    def _check_outputs(self) -> Tensor:
        """phi(x, theta) on C, after the checks that a useful message needs."""
        step = 1024 if self.splittable else self.size
        pieces = []
        for start in range(0, self.size, step):
            with torch.no_grad():
                try:
                    output = self.run(self.theta, slice(start, start + step))
                except IntertwineError:
                    raise
                except Exception as error:
                    reason = first_line(error)
                    raise ModelError(f"the model does not run on these inputs: {reason}") from error
            if (
                not output.is_floating_point()
                or output.dim() == 0
                or len(output) != min(step, self.size - start)
            ):
                raise ModelError(
                    f"the model's output has dtype {output.dtype} and shape {tuple(output.shape)}",
                    so="it needs one floating-point row for every input",
                )
            pieces.append(output)
        outputs = torch.cat(pieces)
        if not torch.isfinite(outputs).all():
            raise ModelError("the model's outputs are not finite", so="J is undefined at theta itself")
        return outputs


def function_distance(model: nn.Module, inputs: Inputs, *, batch_norm: str = "stored") -> Objective:
    """J(t) = mean over C of |phi(x, theta) - phi(x, t)|^2, with theta the model's parameters now.

    >>> _ = torch.manual_seed(0)
    >>> objective = function_distance(nn.Linear(3, 2), torch.randn(16, 3))
    >>> float(objective.values(objective.theta[None])[0])
    0.0
    """
    return Objective(model, inputs, batch_norm=batch_norm)


def data_loss(
    model: nn.Module,
    inputs: Inputs,
    targets: Tensor,
    *,
    loss: str | PerExample = "cross_entropy",
    batch_norm: str = "stored",
) -> Objective:
    """mean over (x, y) of loss(phi(x, t), y): the usual loss landscape from the same machinery."""
    known: dict[str, PerExample] = {
        "cross_entropy": lambda output, y: nn.functional.cross_entropy(output, y, reduction="none"),
        "mse": squared_distance,
    }
    if isinstance(loss, str) and loss not in known:
        raise InputError(f"no loss named {loss!r}", do="use 'cross_entropy', 'mse' or a function")
    chosen = known[loss] if isinstance(loss, str) else loss
    return Objective(model, inputs, targets=targets, loss=chosen, name="loss", batch_norm=batch_norm)


def _check_inputs(inputs: Inputs) -> tuple[Tensor, ...]:
    held = inputs.values() if isinstance(inputs, Mapping) else inputs
    tensors = (held,) if isinstance(held, Tensor) else tuple(held)
    if not tensors or any(not isinstance(x, Tensor) or x.dim() == 0 for x in tensors):
        raise InputError("inputs must be a tensor, or tensors, with one row for every example")
    if len({len(x) for x in tensors}) != 1 or len(tensors[0]) == 0:
        raise InputError(
            f"inputs have {[len(x) for x in tensors]} rows", do="give the same number, at least one"
        )
    return tuple(x.detach() for x in tensors)


class _CountBytes(TorchDispatchMode):
    """Adds up the bytes of every tensor that an op returns."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, Tensor):
                self.bytes += value.numel() * value.element_size()
        return result

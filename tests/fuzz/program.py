"""A program is text: steps `h2 = self.l0(h1)`, the parts that they use, and what is returned.

The text is what runs, what is printed, and what the shrinker cuts. A part's constructor may refer to the
values that are known when it is first used, `nn.Linear({h1.shape[-1]}, 6)`, so that it still fits after a
step before it was taken out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NAMESPACE: dict[str, Any] = {"torch": torch, "nn": nn, "F": F}
_VALUE = re.compile(r"\b[hx]\d*\b")
_PART = re.compile(r"\bself\.(\w+)")
_HOLE = re.compile(r"\{([^{}]+)\}")

# kind of input -> (features last?, the example's shape without the batch)
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """`name = text`."""

    name: str
    text: str

    @property
    def uses(self) -> tuple[str, ...]:
        """The values that the step reads."""
        return tuple(dict.fromkeys(_VALUE.findall(self.text)))

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that the step reads."""
        return tuple(dict.fromkeys(_PART.findall(self.text)))


@dataclass(frozen=True)
class Program:
    """steps over the input `x`; parts: name -> constructor; shapes: those of x, the traced one first.

    vocabulary: x holds indices below this number (0: x holds numbers).
    """

    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    parts: dict[str, str] = field(default_factory=dict)
    shapes: tuple[Shape, ...] = ((3, 5), (1, 5), (4, 5))
    vocabulary: int = 0

    def pruned(self) -> Program:
        """Without the steps and parts that no output needs. In-place steps are kept."""
        needed, kept = set(self.outputs), []
        for step in reversed(self.steps):
            if step.name in needed or (re.search(r"_\(", step.text) and set(step.uses) & needed):
                kept.append(step)
                needed |= set(step.uses)
        steps = tuple(reversed(kept))
        used = {part for step in steps for part in step.parts}
        return replace(self, steps=steps, parts={k: v for k, v in self.parts.items() if k in used})

    def inputs(self, shape: Shape, seed: int = 0) -> Tensor:
        """A random input of that shape."""
        generator = torch.Generator().manual_seed(1000 + seed)
        if self.vocabulary:
            return torch.randint(0, self.vocabulary, shape, generator=generator)
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def body(self) -> str:
        """The forward pass as source."""
        lines = [f"{s.name} = {s.text}" for s in self.steps]
        lines.append("return " + ", ".join(self.outputs))
        return "\n".join(lines)

    def source(self, constructors: dict[str, str]) -> str:
        """A class that can be pasted, with the constructors that `build` has resolved."""
        init = [f"self.{name} = {text}" for name, text in constructors.items()]
        buffers = [
            re.sub(r"self\.(\w+) = torch\.(.*)", r'self.register_buffer("\1", torch.\2)', i) for i in init
        ]
        body = "\n        ".join(self.body().splitlines())
        return (
            "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            + "".join(f"        {line}\n" for line in buffers)
            + f"\n    def forward(self, x):\n        {body}\n"
        )

    def short(self) -> str:
        """One line: the steps without `self.`."""
        return self.body().replace("self.", "").replace("\n", "; ")


class Model(nn.Module):
    """The program as a module. `constructors`: its parts, sizes filled in."""

    def __init__(self, program: Program, seed: int = 0) -> None:
        super().__init__()
        self.constructors: dict[str, str] = {}
        self._generator = torch.Generator().manual_seed(seed)
        values = {"x": program.inputs(program.shapes[0])}
        with torch.no_grad():
            for step in program.steps:
                values[step.name] = self.run(step.text, program.parts, values)
        self._forward = compile_forward(program.body())
        del self._generator  # cannot be copied

    def run(self, text: str, parts: dict[str, str], values: dict[str, Any]) -> Any:
        """Evaluate one step, after making the parts that it is the first to use."""
        self.make(text, parts, values)
        torch.default_generator.manual_seed(0)  # the stack that `torch.manual_seed` formats is dear
        return evaluate(text, self, values)

    def make(self, text: str, parts: dict[str, str], values: dict[str, Any]) -> None:
        """The parts that a text mentions, those before that a constructor needs to know its sizes."""
        for name in _PART.findall(text):
            if name not in self.constructors:
                self.make(parts[name], parts, values)
                filled = _HOLE.sub(lambda m: str(evaluate(m.group(1), self, values)), parts[name])
                self.add(name, filled)

    def add(self, name: str, constructor: str) -> None:
        """Make a part: a module, a parameter, or (a plain tensor) a buffer; its entries are generic."""
        part = evaluate(constructor, self, {})
        if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
            self.register_buffer(name, part)
        else:
            setattr(self, name, part)
        self.constructors[name] = constructor
        self.double().eval()
        with torch.no_grad():
            for key, tensor in [*self.named_parameters(), *self.named_buffers()]:
                if key.split(".")[0] == name and tensor.is_floating_point():
                    make_generic(key, tensor, self._generator)

    def forward(self, x: Tensor) -> Any:
        """The program."""
        return self._forward(self, x)


def make_generic(name: str, tensor: Tensor, generator: torch.Generator) -> None:
    """No weight keeps a value under which a wrong action would look right (unit gains, zero biases)."""
    if name.endswith("running_var"):
        tensor.uniform_(0.5, 2, generator=generator)
    else:
        tensor.normal_(0.1, 0.7, generator=generator)


def evaluate(text: str, model: nn.Module, values: dict[str, Any]) -> Any:
    """The value of an expression over `self` and the values so far."""
    return eval(_compiled(text), {**NAMESPACE, "self": model, **values})


_CODE: dict[str, Any] = {}


def _compiled(text: str) -> Any:
    if len(_CODE) > 20000:
        _CODE.clear()
    if text not in _CODE:
        _CODE[text] = compile(text, "<step>", "eval")
    return _CODE[text]


def compile_forward(body: str) -> Any:
    """`def forward(self, x)` with this body."""
    scope = dict(NAMESPACE)
    exec("def forward(self, x):\n    " + body.replace("\n", "\n    "), scope)
    return scope["forward"]


def program(
    body: str, shapes: tuple[Shape, ...] = ((3, 5), (1, 5), (4, 5)), vocabulary: int = 0, **parts: str
) -> Program:
    """A program from its text: `program("h = self.l(x); return self.o(h)", l="nn.Linear(5, 6)", ...)`."""
    lines = [line.strip() for line in re.split(r";\s*|\n", body) if line.strip()]
    steps = [Step(*line.split(" = ", 1)) for line in lines[:-1]]
    returned = lines[-1].removeprefix("return ")
    if not re.fullmatch(r"[hx]\d*(, [hx]\d*)*", returned):
        steps.append(Step("h99", returned))
        returned = "h99"
    outputs = tuple(returned.split(", "))
    return Program(tuple(steps), outputs, parts, shapes, vocabulary)

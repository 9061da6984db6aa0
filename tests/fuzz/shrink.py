"""Cut a failing program down while it still fails in the same way: fewer outputs, steps, calls, channels."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from .check import Result, check
from .program import Model, Program, Step
from .table import POINTWISE


def judge(program: Program, elements: int = 2) -> Result:
    """Build and check a program."""
    model = Model(program)
    inputs = [program.inputs(shape, k) for k, shape in enumerate(program.shapes)]
    return check(model, inputs, elements)


def shrink(program: Program, result: Result, most: int = 200) -> tuple[Program, Result]:
    """The smallest program found with at most so many checks, and its result."""
    if result.size and result.size != program.shapes[0]:
        program = replace(program, shapes=(program.shapes[0], result.size))
    elif result.verdict == "wrong":
        program = replace(program, shapes=program.shapes[:1])
    seen: set[str] = set()
    checks, progress = 0, True
    while progress and checks < most:
        progress = False
        for candidate in _smaller(program):
            candidate = candidate.pruned()
            key = repr(candidate)
            if key in seen or len(key) >= len(repr(program)):
                continue
            seen.add(key)
            try:
                found = judge(candidate)
            except Exception:  # it does not run: no candidate
                continue
            finally:
                checks += 1
            if _same(found, result):
                program, result, progress = candidate, found, True
                break
            if checks >= most:
                break
    return renamed(program), result


def _same(found: Result, wanted: Result) -> bool:
    """The same verdict, and for an error the same place."""
    if found.verdict != wanted.verdict:
        return False
    return found.verdict == "wrong" or found.detail.split(":")[0] == wanted.detail.split(":")[0]


def _smaller(program: Program) -> Iterator[Program]:
    if len(program.outputs) > 1:
        for name in program.outputs:
            yield replace(program, outputs=(name,))
    for k in reversed(range(len(program.steps))):
        step = program.steps[k]
        for name in step.uses:
            yield _without(program, k, name)
    for k, step in enumerate(program.steps):
        for text in _simpler(step.text):
            steps = (*program.steps[:k], Step(step.name, text), *program.steps[k + 1 :])
            yield replace(program, steps=steps)
    for name, text in program.parts.items():
        for match in re.finditer(r"(?<![\w.\[{-])\d+(?![\w\]}])", text):
            for smaller in sorted({1, 2, 3, 4, int(match.group()) // 2} & set(range(1, int(match.group())))):
                new = text[: match.start()] + str(smaller) + text[match.end() :]
                yield replace(program, parts={**program.parts, name: new})


def _without(program: Program, k: int, name: str) -> Program:
    """Without step k, whose readers read `name` in its place."""
    gone = re.compile(rf"\b{program.steps[k].name}\b")
    steps = [*program.steps[:k], *(Step(s.name, gone.sub(name, s.text)) for s in program.steps[k + 1 :])]
    return replace(
        program,
        steps=tuple(steps),
        outputs=tuple(dict.fromkeys(gone.sub(name, o) for o in program.outputs)),
        parts={key: gone.sub(name, text) for key, text in program.parts.items()},
    )


def _simpler(text: str) -> Iterator[str]:
    """The expression with one inner node replaced by one of its own operands."""
    tree = ast.parse(text, mode="eval")
    count = sum(isinstance(node, ast.expr) for node in ast.walk(tree))
    for k in range(count):
        node = [n for n in ast.walk(tree) if isinstance(n, ast.expr)][k]
        for child in _operands(node):
            yield ast.unparse(_Replace(node, child).visit(ast.parse(text, mode="eval")))
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in POINTWISE
            and ast.unparse(node.func) != "F.relu"
        ):
            yield ast.unparse(
                _Replace(node.func, ast.parse("F.relu", mode="eval").body).visit(ast.parse(text, mode="eval"))
            )


def _operands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Subscript):
        return [node.value]
    if isinstance(node, (ast.List, ast.Tuple)):
        return []
    if isinstance(node, ast.Call):
        nested = [e for a in node.args for e in (a.elts if isinstance(a, (ast.List, ast.Tuple)) else [a])]
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [e for e in owner + nested if not isinstance(e, ast.Constant)]
    return []


class _Replace(ast.NodeTransformer):
    """Replace the node at the same place as `old` by `new`."""

    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.place = (type(old), old.col_offset, old.end_col_offset)
        self.new = new

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and (type(node), node.col_offset, node.end_col_offset) == self.place:
            return self.new
        return super().generic_visit(node)


def renamed(program: Program) -> Program:
    """Steps h0, h1, ... and parts in the order of their use."""
    names = {step.name: f"h{k}" for k, step in enumerate(program.steps)}
    order = dict.fromkeys(part for step in program.steps for part in step.parts)
    parts = {old: re.sub(r"\d+", "", old) + str(k) for k, old in enumerate(order)}

    def translate(text: str) -> str:
        text = re.sub(r"\bh\d+\b", lambda m: names.get(m.group(), m.group()), text)
        return re.sub(r"\bself\.(\w+)", lambda m: "self." + parts.get(m.group(1), m.group(1)), text)

    return replace(
        program,
        steps=tuple(Step(names[s.name], translate(s.text)) for s in program.steps),
        outputs=tuple(names.get(o, o) for o in program.outputs),
        parts={parts[old]: translate(program.parts[old]) for old in order},
    )


def signature(program: Program, result: Result) -> str:
    """What makes two shrunk failures the same: the ops, not the sizes or the activation functions."""
    if result.verdict != "wrong":
        return f"{result.verdict} {result.detail.split(':')[0]}"
    text = program.body()
    for function in sorted(POINTWISE, key=len, reverse=True):
        text = text.replace(function + "(", "f(")
    for name, constructor in program.parts.items():
        kind = re.match(r"[\w.]+", constructor)
        text = re.sub(rf"\bself\.{name}\b", kind.group() if kind else name, text)
    return re.sub(r"(?<![\w])-?\d+", "#", text)

"""Every rule against its oracle: the real op, between two linear maps, acted on with what the rule claims."""

from __future__ import annotations

import pytest
from oracle import judge

from intertwine.rules import RULES
from intertwine.rules.examples import EXAMPLES, REWRITTEN

# Checks on sizes that data decides: written only where such sizes occur, and they carry no channels.
NO_EXAMPLE = {"_assert_scalar.default", "sym_constrain_range_for_size.default"}
NO_EXAMPLE |= {"sym_size.int", "sym_numel.default", "sym_stride.int"}
# Kernels without float64: tests/unit/test_experts.py holds them in float32.
NO_EXAMPLE |= {"_grouped_mm.default", "transformers.grouped_mm_fallback.default"}

# Symmetries that hold in the example and that no axis has: sound to leave out, but a new one is worth a look.
KNOWN_MISSING: dict[tuple[str, ...], str] = {
    ("scale",): """
        __and__.Tensor _assert_async.msg adaptive_max_pool1d.default adaptive_max_pool2d.default
        adaptive_max_pool3d.default argmax.default argmin.default bitwise_and.Scalar bitwise_and.Tensor
        clamp_max.Tensor clamp_min.Tensor eq.Scalar eq.Tensor logical_and.default max.default max.dim
        max_pool2d_with_indices.default max_pool3d_with_indices.default median.dim relu6.default
        one_hot.default std_mean.correction where.Scalar where.self xlogy.Tensor
    """,
    ("scale", "sign"): """
        __or__.Tensor __xor__.Tensor all.default all.dim all.dims any.default any.dim any.dims
        atan2.default bitwise_not.default bitwise_or.Scalar bitwise_or.Tensor bitwise_xor.Tensor
        div.Tensor_mode floor_divide.default fmod.Tensor hypot.default logical_or.default
        logical_xor.default logit.default min.dim prod.dim_int remainder.Tensor scatter.value_reduce
        std.correction std.dim var.correction var.dim
    """,
    ("sign",): """
        amin.default div.Scalar_mode fmod.Scalar linalg_norm.default linalg_vector_norm.default
        norm.ScalarOpt_dim
    """,
}


def test_every_rule_has_an_example() -> None:
    without = set(RULES) - set(EXAMPLES) - NO_EXAMPLE
    assert not without, f"write an example in rules/examples.py for {sorted(without)}"


def test_every_example_belongs_to_a_rule() -> None:
    stale = set(EXAMPLES) - set(RULES) - REWRITTEN
    assert not stale, f"remove the examples of {sorted(stale)}"


@pytest.mark.parametrize("op", sorted(EXAMPLES))
def test_the_rule_holds_on_the_real_op(op: str) -> None:
    verdict = judge(op)
    assert (op in verdict.ops) == (op not in REWRITTEN), (
        f"{op} is not what the graph holds: {sorted(verdict.ops)}"
    )
    assert verdict.error <= 1e-10, f"a symmetry claimed across {op} does not hold"
    assert verdict.moved > 0.3, f"nothing moves across {op}: {verdict.frozen}"
    assert verdict.control >= 1e-4, "the control should have failed"


@pytest.mark.slow  # the verdicts of the test above, paid for where that does not run
@pytest.mark.parametrize("op", sorted(EXAMPLES))
def test_no_other_symmetry_goes_missing(op: str) -> None:
    """What holds in the example and is not claimed is on the list above: not wrong, but worth knowing."""
    missing = set(judge(op).missing)
    print(f"{op}: {', '.join(sorted(missing)) or 'nothing'} missing")
    known = {kind for kinds, ops in KNOWN_MISSING.items() if op in ops.split() for kind in kinds}
    assert missing <= known

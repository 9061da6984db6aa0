"""Merge channels of any model: Iterative Feature Merging and better, with a real smaller model at the end."""

import intertwine.merging.methods  # noqa: F401  registers them
from intertwine.merging._widen import widen
from intertwine.merging.decide import PAPER_BETAS, Options, Planner, plan_merge
from intertwine.merging.equivalence import feature_complexity
from intertwine.merging.factoring import factor
from intertwine.merging.folding import fold
from intertwine.merging.merged import MergeCurve, Merged
from intertwine.merging.plan import AxisPlan, Merge, MergePlan
from intertwine.merging.registry import METHODS, MergeMethod, Parameter, merge_method
from intertwine.merging.repair import reestimate_norms
from intertwine.merging.shrink import apply_merge
from intertwine.merging.smaller import merge, merge_betas
from intertwine.merging.storage import flops_of, load_merged, save_merged

__all__ = [
    "METHODS",
    "PAPER_BETAS",
    "AxisPlan",
    "Merge",
    "MergeCurve",
    "MergeMethod",
    "MergePlan",
    "Merged",
    "Options",
    "Parameter",
    "Planner",
    "apply_merge",
    "factor",
    "feature_complexity",
    "flops_of",
    "fold",
    "load_merged",
    "merge",
    "merge_betas",
    "merge_method",
    "plan_merge",
    "reestimate_norms",
    "save_merged",
    "widen",
]

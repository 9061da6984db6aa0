"""Merge channels of any model: Iterative Feature Merging and better, with a real smaller model at the end."""

from intertwine.merge.decide import PAPER_BETAS, Options, Planner, plan_merge
from intertwine.merge.equivalence import feature_complexity
from intertwine.merge.plan import AxisPlan, Merge, MergePlan
from intertwine.merge.repair import reestimate_norms
from intertwine.merge.shrink import apply_merge
from intertwine.merge.storage import flops_of, load_merged, save_merged
from intertwine.merge.widen import widen

__all__ = [
    "PAPER_BETAS",
    "AxisPlan",
    "Merge",
    "MergePlan",
    "Options",
    "Planner",
    "apply_merge",
    "feature_complexity",
    "flops_of",
    "load_merged",
    "plan_merge",
    "reestimate_norms",
    "save_merged",
    "widen",
]

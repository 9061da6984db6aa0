"""Merge channels of any model: Iterative Feature Merging and better, with a real smaller model at the end."""

from intertwine.merge.decide import plan_merge
from intertwine.merge.plan import AxisPlan, Merge, MergePlan
from intertwine.merge.shrink import apply_merge

__all__ = ["AxisPlan", "Merge", "MergePlan", "apply_merge", "plan_merge"]

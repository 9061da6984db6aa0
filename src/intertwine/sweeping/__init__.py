"""Many runs, many pairs, many layers: tasks that are functions of their inputs, with results named by them.

read_sweep("sweep.yml")               what to train, compare and merge
run_sweep(sweep, "out", jobs=2)       -> SweepReport; a finished task never runs again
read_table("out")                     one tidy pyarrow table
"""

from __future__ import annotations

from intertwine.sweeping.run import SweepReport, run_sweep, sweep
from intertwine.sweeping.spec import Sweep, parse_seeds, parse_sweep, read_sweep
from intertwine.sweeping.table import read_table
from intertwine.sweeping.task import Task, task_kind

__all__ = [
    "Sweep",
    "SweepReport",
    "Task",
    "parse_seeds",
    "parse_sweep",
    "read_sweep",
    "read_table",
    "run_sweep",
    "sweep",
    "task_kind",
]

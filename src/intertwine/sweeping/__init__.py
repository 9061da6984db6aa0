"""Many runs, many pairs, many layers: tasks that are functions of their inputs, with results named by them.

read_sweep("sweep.yml")               what to train, compare and merge
run_sweep(sweep, "out", jobs=2)       -> Report; a finished task never runs again
read_table("out")                     one tidy pyarrow table
"""

from __future__ import annotations

from intertwine.sweeping.run import Report, run_sweep
from intertwine.sweeping.spec import Sweep, parse_seeds, parse_sweep, read_sweep
from intertwine.sweeping.table import read_table
from intertwine.sweeping.task import Task, task_kind

__all__ = [
    "Report",
    "Sweep",
    "Task",
    "parse_seeds",
    "parse_sweep",
    "read_sweep",
    "read_table",
    "run_sweep",
    "task_kind",
]

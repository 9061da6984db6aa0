"""How layers are solved for, networks zipped, and what the combined one learns, of `intertwine combine`."""

from __future__ import annotations

from intertwine.terminal import types
from intertwine.terminal.declare import Options, choice, flag, value


def add_solving(parser: Options) -> None:
    """Least squares, layer by layer."""
    value(parser, "--ridge", types.positive_float, "X",
        "pull of least squares towards the average (default: what inputs left out say)")  # fmt: skip
    value(parser, "--sweeps", types.most(100), "N", "solve for all layers N times (default: 1)", default=1)
    value(parser, "--follow", types.fraction, "X",
        "channels that correlate less follow one network each, not the mean (default: 0)",
        default=0.0)  # fmt: skip
    value(parser, "--together", types.most(1000, 0), "N",
        "then solve for all layers of a residual branch together, in N steps (default: 0; 12 is plenty)",
        default=0)  # fmt: skip


def add_zip(parser: Options) -> None:
    """Networks side by side."""
    choice(parser, "--heads", ("one", "each"),
        "of zip: one output for all, or each keeps its own (default: one if alike)")  # fmt: skip
    value(parser, "--head-data", types.data_spec, "DATA",
        "what the second, third ... network's outputs are measured on, with --heads each", default=[],
        action="append")  # fmt: skip
    value(parser, "--target-params", types.fraction, "P",
        "of zip: share of all networks' parameters together (default: widths of the first)")  # fmt: skip
    value(parser, "--trunk", types.any_text, "AXIS",
        "of zip with --heads each: the last axis that is shared, or a pattern (default: all)")  # fmt: skip


def add_learning(parser: Options) -> None:
    """Passes over unlabelled inputs, after all that is solved for."""
    value(parser, "--epochs", types.most(10_000, 0), "N",
        "passes in which the mean outputs are learned, without labels (default: 0)", default=0)  # fmt: skip
    value(parser, "--learning-rate", types.positive_float, "X",
        "of --epochs, times each tensor's size (default: 0.01)", default=1e-2)  # fmt: skip
    value(parser, "--hidden", types.nonnegative_float, "X",
        "of --epochs: how much hidden values count beside the outputs (default: 0)", default=0.0)  # fmt: skip
    flag(parser, "--augment", "of --epochs: images are mirrored, shifted and mixed at random in every pass")

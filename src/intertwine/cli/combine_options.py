"""The options of `intertwine combine`: ways, how layers are solved for, networks zipped, what is learned."""

from __future__ import annotations

from intertwine import numbers
from intertwine.terminal import types
from intertwine.terminal.declare import Options, choice, flag, value

HOW = ("layerwise", "zip", "average", "slerp", "task", "ties", "fisher", "soup")
shares = types.Checked(numbers.Several(numbers.nonnegative))


def add_ways(parser: Options) -> None:
    """How networks become one, after what matching, of what."""
    choice(parser, "--how", HOW, "see below (default: layerwise)", default="layerwise")
    choice(parser, "--align", ("activations", "weights", "loss", "none"),
        "what channels are matched by (default: activations; none with a common start)")  # fmt: skip
    choice(parser, "--repair", ("none", "reset", "rescale", "least-squares"),
        "what is done about statistics (default: least-squares for layerwise, else reset)")  # fmt: skip
    value(parser, "--shares", shares, "S,S", "how much of each model (default: equal)")
    value(parser, "--base", types.input_path, "FILE", "weights that the models were trained from")
    value(parser, "--scale", types.nonnegative_float, "X", "of task and ties (default: 1)", default=1.0)
    value(parser, "--density", types.fraction, "P", "that ties keeps (default: 0.2)", default=0.2)
    value(parser, "--train-data", types.data_spec, "DATA",
        "unlabelled inputs for alignment and least squares, of several as many each (default: --data)",
        default=[], action="append")  # fmt: skip
    value(parser, "--train-limit", types.positive_int, "N", "inputs used (default: 2000)", default=2000)


def add_solving(parser: Options) -> None:
    """Least squares, layer by layer."""
    value(parser, "--ridge", types.positive_float, "X",
        "pull of least squares towards the average (default: what inputs left out say)")  # fmt: skip
    value(parser, "--sweeps", types.most(100), "N", "solve for all layers N times (default: 1)", default=1)
    value(parser, "--follow", types.fraction, "X",
        "channels that correlate less follow one network each, not the mean (default: 0)",
        default=0.0)  # fmt: skip
    value(
        parser,
        "--together",
        types.most(1000, 0),
        "N",
        "then solve for layers of a residual branch together, in N steps (default: 12, of zip 0)",
    )


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

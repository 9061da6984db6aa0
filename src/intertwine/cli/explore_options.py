"""The options of `intertwine explore`."""

from __future__ import annotations

from intertwine import numbers
from intertwine.terminal import types
from intertwine.terminal.declare import Options, choice, flag, json, out, value


def add_search(search: Options) -> None:
    """How parameters that compute the same function are looked for."""
    choice(search, "--optimizer", ("sgd", "adam", "lbfgs"), "default: adam", default="adam")
    rates = "(default: sgd 0.015, adam 0.01, lbfgs 1)"
    value(search, "--learning-rate", types.positive_float, "RATE", rates)
    value(search, "--momentum", types.momentum, "M", "of sgd (default: 0)", default=0.0)
    value(search, "--steps", types.positive_int, "N", "most steps (default: by cost)")
    long = "about how long searching, and evaluating, may take by default (default: 60 each)"
    value(search, "--seconds", types.seconds, "S", long, default=60.0)
    value(search, "--population", types.positive_int, "N", "starts that run together")
    found = "J of a found point (default: variance of outputs / 1000)"
    value(search, "--tolerance", types.positive_float, "J", found)
    auto = "auto (default): random where affordable, then nearer and nearer to theta"
    choice(search, "--starts", ("auto", "random", "perturbed"), auto, default="auto")
    value(search, "--spread", types.positive_float, "S", "of perturbed starts (default: 0.5)")
    stored = "statistics of batch norm: those of the model, or of C (default: stored)"
    choice(search, "--batch-norm", ("stored", "batch"), stored, default="stored")


def add_picture(picture: Options) -> None:
    """What is drawn of them, and what is written."""
    one_to_four = types.Checked(numbers.Whole(1, 4))
    value(picture, "--dim", one_to_four, "N", "of the plane, 1 to 4 (default: 2)", default=2)
    value(picture, "--points", types.positive_int, "N", "grid points along an axis (default: by cost)")
    bound = "the grid goes from -BOUND to BOUND (default: shows the points and the level)"
    value(picture, "--bound", types.positive_float, "B", bound)
    value(picture, "--epsilon", types.positive_float, "J", "level of the set (default: 10 x tolerance)")
    flag(picture, "--full", "evaluate every grid point, not only near the level")
    value(picture, "--memory", types.memory, "BYTES", "such as 2GB (default: 512MB)", default=2**29)
    what = "equivalents (default), random (filter-normalised), or 2 to 5 weights files"
    value(picture, "--plane", types.input_path, "WHAT", what, nargs="+", default=["equivalents"])
    choice(picture, "--loss", ("J", "cross_entropy"), "what is drawn (default: J)", default="J")
    flag(picture, "--quotient", "divide the known symmetries out of the points first")
    flag(picture, "--no-orbit", "do not infer symmetries and draw the orbit")
    flag(picture, "--png", "also write each figure as PNG beside the page")
    value(picture, "--save", types.output_path, "DIR", "also keep sample, plane and landscape as files")
    out(picture, "FILE", "default: explore.html", default="explore.html")
    json(picture, "print the result as JSON")

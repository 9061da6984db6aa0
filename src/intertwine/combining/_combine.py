"""combine(models, data): align, average, repair; or solve for the layers that make all of them; or zip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import nn

from intertwine.checks import checked
from intertwine.combining._by_loss import STEPS
from intertwine.combining._distil import RATE
from intertwine.combining._join import Heads
from intertwine.combining._layerwise import TOGETHER
from intertwine.combining._methods import Settings
from intertwine.combining._result import Combination
from intertwine.combining._run import Align, Combining
from intertwine.combining._statistics import Repair
from intertwine.errors import InputError
from intertwine.progress import Progress
from intertwine.symmetry import Symmetry


@checked
def combine(
    models: Sequence[nn.Module],
    data: Any = None,
    *,
    train_data: Any = None,
    how: str = "layerwise",
    align: Align | None = None,
    repair: Repair | None = None,
    shares: Sequence[float] | None = None,
    base: nn.Module | None = None,
    scale: float = 1.0,
    density: float = 0.2,
    train_limit: int = 2000,
    ridge: float | None = None,
    sweeps: int = 1,
    follow: float = 0.0,
    together: int | None = None,
    steps: int = STEPS,
    permute: bool = False,
    epochs: int = 0,
    learning_rate: float = RATE,
    augment: bool = False,
    hidden: float = 0.0,
    flip: bool = False,
    fold: bool | None = None,
    heads: Heads | None = None,
    target_params: float | None = None,
    trunk: str | None = None,
    calibrate: bool = False,
    symmetry: Symmetry | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Combination:
    """One network that does what all of `models` do.

    data: labelled inputs on which every stage is measured; nothing is fitted to them unless there is no
    train_data. train_data: inputs for alignment, statistics and least squares, of which train_limit are
    used; their labels are read by how="soup" only. how: "layerwise", "zip" or one of `METHODS`. align: what
    channels are matched by (default: activations; models that share their start, for task, ties and soup,
    are not moved); "loss" goes on from there with `steps` steps on the outputs of the average, and with
    permute channels may change places on the way. repair: what is done about the average's statistics
    (default: least-squares for layerwise, else reset). shares: how much of each, normalised to sum 1.
    ridge: pull towards the average (default: for each layer what errs least on inputs that are left out).
    sweeps: how often all layers are solved for; each sweep is pulled towards what the last one made.
    follow: channels that one layer reads, and whose correlation between the networks is less, are not
    averaged: each follows one network. together: steps in which all layers of a residual branch are then
    solved for together, towards what the sum should be (default: 12, of zip 0; 0: not at all).
    epochs: passes over the inputs in which the combined network learns the models' mean outputs, in steps of
    learning_rate times the size of each tensor; augment: on mirrored, shifted and mixed images; hidden: how
    much the mean of the aligned models' hidden values counts beside their outputs (images are not mixed).
    flip: the inputs are images, and their mirror images serve as inputs too; the labels of neither are
    read. fold: of pre-norm networks, move the gains of norms into the weights that read them first, so
    that the stream can be rotated (default: where channels are matched by activations or loss, and the
    networks allow it). base, scale, density: for task and ties. calibrate: one factor for the outputs, so
    that the network is as sure as it may be. calibrate, epochs and align="loss" take outputs for class
    scores. Networks of unequal widths are widened first, and those of fewer residual blocks deepened.

    how="zip": networks of any widths, or of several tasks. heads: "one" output for all, or "each" keeps its
    own, side by side (default where their numbers differ; data is then a list, one for each network).
    target_params: how large the result may be, as a share of all networks' parameters (default: the widths
    of the first). trunk: the name, or a pattern, of the last axis that networks with heads of their own
    share; what comes after it stays apart (default: all are shared).

    >>> import torch
    >>> from intertwine import act, trace
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> x = torch.randn(64, 3)
    >>> other = act(net, trace(net, x[:2]).sample(0, parts=("permutation",)))
    >>> result = combine([net, other], train_data=x)
    >>> bool((result.model(x) - net(x)).abs().max() < 1e-4)
    True
    """
    if target_params is not None and how != "zip":
        raise InputError(f"target_params is not of how={how!r}", do="use how='zip'")
    if trunk is not None and (how != "zip" or target_params is None):
        raise InputError("a trunk is of networks that are zipped to a size", do="give target_params")
    if sweeps < 1:
        raise InputError(f"{sweeps} sweeps solve for nothing", do="give at least 1")
    if not 0 <= follow <= 1:
        raise InputError(f"no correlation is {follow}", do="give a follow from 0 to 1")
    solves = (repair or how) in ("least-squares", "layerwise")
    if together and not (solves or how == "zip"):
        raise InputError("layers are solved for together where they are solved for", do="use how='layerwise'")
    if follow and not solves:
        raise InputError("channels follow one network where layers are solved for", do="use how='layerwise'")
    if not 0 <= hidden < math.inf:
        raise InputError(f"hidden values cannot count {hidden}", do="give a number of at least 0")
    run = Combining(models, data, train_data, how, align, repair, shares, names, train_limit, heads, progress)
    if flip:
        run.flip()
    settings = Settings(run.shares, base, None, scale, density, seed=seed)
    if run.finished():
        return run.result()
    run.fold(fold, symmetry)
    if how == "zip":
        run.zip(symmetry, target_params, trunk, ridge, sweeps, together or 0, seed)
    else:
        run.move(symmetry, seed)
        if run.one_orbit():
            return run.result()
        run.move_by_loss(steps, permute, seed)
        run.average(settings)
        run.mend(ridge, sweeps, follow, TOGETHER if together is None else together, seed)
    run.unfold()
    if calibrate:
        run.calibrate()
    if epochs:
        run.learn(epochs, learning_rate, augment, hidden, seed)
    return run.result()

"""Figures 1, 2, 4 to 11, 13, 15 to 17 and Tables 1 to 4 of source 002 (intertwiner groups).

paper: Myrtle CNN, ResNet20 and ResNet18 on CIFAR-10, Adam for 50 epochs as in its appendix D. quick: the same
drawings for narrow nets on scikit-learn's digits, trained in seconds: five convolutions in place of Myrtle
CNNs, and ResNets with eight channels in their first stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.recipes import Claim, Outcome, Progress, Reproduction
from intertwine.recipes.nets import Net, load_net_data, train_net
from intertwine.recipes.pages import write_outcome

if TYPE_CHECKING:
    from torch import nn

    from intertwine.training import Splits

_DIGITS = Net("digits-vgg", "digits", "digits", {"width": 8}, 10)
_SMALL = {
    "myrtle": _DIGITS,
    "myrtle-plain": _DIGITS,
    "myrtle-constant": Net("digits-vgg", "digits", "digits", {"width": 16}, 10),
    "resnet20": Net("resnet20", "digits", "digits", {"width": 8}, 10),
    "resnet18": Net("resnet18", "digits", "digits", {"width": 8}, 10),
}


def _net(model: str, quick: bool) -> Net:
    return _SMALL[model] if quick else Net(model, "cifar10", "godfrey")


def load_seeds(
    model: str, count: int, folder: Path, quick: bool, progress: Progress
) -> tuple[list[nn.Module], Splits]:
    """Networks of several seeds and the data they were trained on."""
    net = _net(model, quick)
    splits = load_net_data(net)
    return [train_net(net, splits, folder, seed, progress)[0] for seed in range(count)], splits


def _activations(model: nn.Module, splits: Splits) -> list[str]:
    """The values after activations, which the source cuts at."""
    from intertwine import trace

    values = trace(model, splits.test.images[:2]).values.by_input
    return [v.name for v in values if v.is_layer and v.family == "pointwise"]


def stitching(
    name: str, title: str, model: str, pairs: int, alpha: str | None,
    folder: Path, quick: bool, progress: Progress,
) -> Outcome:  # fmt: skip
    """Fig. 1, 6, 7 and 13: penalties of full, low-rank and group stitches at every layer."""
    from intertwine.report.similarity_figures import curves
    from intertwine.stitching import Training, stitch

    nets, splits = load_seeds(model, 2 if quick else 2 * pairs, folder, quick, progress)
    kinds = ("full", "rank:4", "group") if quick else ("full", "rank:1", "rank:2", "rank:4", "group")
    train = splits.train.take(1000 if quick else 10_000)
    training = Training(alpha="cv" if alpha else 0.1)
    cuts = _activations(nets[0], splits)
    reports = []
    for done in range(len(nets) // 2):
        progress(done, len(nets) // 2, f"stitching pairs of {model}")
        pair = nets[2 * done : 2 * done + 2]
        reports.append(stitch(pair[0], pair[1], train, splits.test, at=cuts, kinds=kinds, training=training))
    series = {
        kind: [float(np.mean([r[layer, kind].trained for r in reports])) for layer in cuts] for kind in kinds
    }
    starts = {
        kind: [float(np.mean([r[layer, kind].start for r in reports])) for layer in cuts] for kind in kinds
    }
    rows = [
        {"layer": c, **{k: v[i] for k, v in series.items()}, "group, start": starts["group"][i]}
        for i, c in enumerate(cuts)
    ]
    reported = {
        "myrtle": "group about 7.5, 7.5, 16.5, 5.5 at the four layers; full below it",
        "resnet20": "group about 5 to 63 over the layers; full below it",
        "resnet18": "group above full at every layer",
    }[model]
    here = ", ".join(f"{v:.1f}" for v in series["group"])
    full = ", ".join(f"{v:.1f}" for v in series["full"])
    claims = (Claim("stitching penalties in points", reported, f"group {here}; full {full}"),)
    figure = curves(series, cuts, x_title="cut after", y_title="penalty, points")
    return write_outcome(
        folder, name, title, {"Penalty after training, mean over pairs": figure},
        tables={"Penalties": rows}, facts={"pairs": len(reports), "accuracy": reports[0].accuracy_a},
        claims=claims, differs=_differs(quick, model, 2, pairs),
    )  # fmt: skip


def _differs(quick: bool, model: str, count: int, pairs: int) -> str:
    if not quick:
        return ""
    net = _SMALL[model]
    small = f"{net.model} of width {net.options['width']} on digits of 8x8 pixels"
    return f"{small} instead of {model} on CIFAR-10, and {count} networks instead of {pairs} pairs."


def sparse_stitching(name: str, title: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Fig. 15: penalty against sparsity of lasso stitches, with the group stitch for comparison."""
    from intertwine.report.similarity_figures import scatter
    from intertwine.stitching import stitch

    nets, splits = load_seeds("myrtle", 2 if quick else 64, folder, quick, progress)
    weights = ("0.1", "0.01", "0.001") if quick else ("1", "0.3", "0.1", "0.03", "0.01", "0.003", "0.001")
    kinds = ["group", *(f"lasso:{w}" for w in weights)]
    train = splits.train.take(1000 if quick else 10_000)
    cuts = _activations(nets[0], splits)
    groups: dict[str, list[tuple[float, float, str]]] = {}
    for first, second in zip(nets[::2], nets[1::2], strict=True):
        for found in stitch(first, second, train, splits.test, at=cuts, kinds=kinds).stitchings:
            label = "group" if found.kind == "group" else "lasso"
            groups.setdefault(label, []).append(
                (found.sparsity, found.trained, f"{found.layer}, {found.kind}")
            )
    middle = {k: float(np.mean([p[1] for p in v])) for k, v in groups.items()}
    claims = (
        Claim("penalty against sparsity", "lasso stitches do better than group ones at equal sparsity",
              f"mean penalty: lasso {middle['lasso']:.1f}, group {middle['group']:.1f}"),
    )  # fmt: skip
    figure = scatter(groups, x_title="sparsity", y_title="penalty, points")
    return write_outcome(
        folder, name, title, {"One point a layer and a kind": figure}, claims=claims, facts=middle,
        differs=_differs(quick, "myrtle", 2, 32),
    )  # fmt: skip


def similarities(
    name: str, title: str, model: str, measures: Sequence[str], pairs: int, reported: str,
    folder: Path, quick: bool, progress: Progress,
) -> Outcome:  # fmt: skip
    """Fig. 2, 5, 9, 10, 11, 16, Tables 2 and 4: G_ReLU and orthogonal similarities between seeds."""
    from intertwine.comparing.seeds import compare_seeds
    from intertwine.report.experiment_figures import seed_figures

    nets, splits = load_seeds(model, 3 if quick else pairs + 1, folder, quick, progress)
    cuts = _activations(nets[0], splits)
    images = splits.test.images[: 200 if quick else 2000]

    def tell(done: int, total: int) -> None:
        progress(done, total, "pairs of networks")

    found = compare_seeds(nets, images, measures, at=cuts, progress=tell)
    here = "; ".join(
        f"{m}: " + ", ".join(f"{v[layer].value:.2f}" for layer in found.layers)
        for m, v in found.matched.items()
    )
    claims = (Claim("similarity of matched layers", reported, here),)
    return write_outcome(
        folder, name, title, dict(seed_figures(found)), tables={"Matched layers": found.table()},
        facts={"networks": found.networks}, claims=claims, differs=_differs(quick, model, 3, pairs),
    )  # fmt: skip


def rotations(name: str, title: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Fig. 4: what later layers lose when a layer is acted on by the group, or by a rotation."""
    from intertwine import trace
    from intertwine.report.similarity_figures import curves
    from intertwine.stitching import rotate

    trials = 1 if quick else 10
    nets, splits = load_seeds("myrtle-plain", trials, folder, quick, progress)
    train = splits.train.take(1000 if quick else 50_000)
    values = trace(nets[0], splits.test.images[:2]).values
    layers = [v.name for v in values.by_input if any(values[r].family == "pointwise" for r in v.readers)]
    series: dict[str, list[float]] = {}
    for by in ("group", "orthogonal", "identity"):
        for layer in layers:
            progress(len(series), 3, f"{by} at {layer}")
            found = [
                rotate(net, train, splits.test, at=layer, by=by, epochs=50, seed=seed).penalty
                for seed, net in enumerate(nets)
            ]
            series.setdefault(by, []).append(float(np.mean(found)))
    claims = (
        Claim("rotation penalty, mean over layers", "larger for rotations than for group elements",
              ", ".join(f"{by} {np.mean(v):.1f}" for by, v in series.items())),
    )  # fmt: skip
    rows = [{"layer": c, **{k: v[i] for k, v in series.items()}} for i, c in enumerate(layers)]
    figure = curves(series, layers, x_title="acted on", y_title="penalty, points")
    return write_outcome(
        folder, name, title, {"Accuracy lost after fine-tuning the later layers": figure}, claims=claims,
        tables={"Penalties": rows},
        differs=_differs(quick, "myrtle-plain", trials, 10) + " The small one has batch norms." * quick,
    )  # fmt: skip


def _is_linear(slope: float) -> bool:
    """Whether all of GL(n) passes through a LeakyReLU, decided by evaluating it."""
    from torch.nn import functional

    from intertwine.activations import intertwiner

    return intertwiner(partial(functional.leaky_relu, negative_slope=slope)).linear


def slopes(name: str, title: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Fig. 8 and Table 3: LeakyReLU nets from slope 1e-4 to 1, where the group becomes GL(n)."""
    from intertwine.report.similarity_figures import curves
    from intertwine.stitching import stitch_slopes

    net = _net("resnet20", quick)
    splits = load_net_data(net)
    count = 1000 if quick else 10_000
    at = "layer2.2.leaky_relu_1"

    def trained(slope: float, seed: int) -> nn.Module:
        leaky = replace(net, options={**net.options, "slope": slope})
        return train_net(leaky, splits, folder, seed, progress)[0]

    found = stitch_slopes(
        trained, (splits.train.images[:count], splits.train.labels[:count]),
        (splits.test.images, splits.test.labels), at=at,
    )  # fmt: skip
    rows = [
        {"slope": f.slope, "its group": f.group, "accuracy": f.accuracy}
        | {s.kind: s.trained for s in f.report.stitchings}
        for f in found
    ]
    reported = "89.3, 89.4, 89.2, 89.4, 86.6, 73.0, 41.8 %"
    claims = (
        Claim("accuracy from slope 1e-4 to 1", reported, ", ".join(f"{100 * f.accuracy:.1f}" for f in found)),
        Claim("where the group is GL(n)", "at slope 1 only",
              ", ".join(f"{f.slope:g}" for f in found if _is_linear(f.slope)) or "nowhere"),
    )  # fmt: skip
    series = {kind: [f.report[at, kind].trained for f in found] for kind in found[0].report.kinds}
    figure = curves(series, [f"{f.slope:g}" for f in found], x_title="slope", y_title="penalty, points")
    return write_outcome(
        folder, name, title, {f"Stitching after {at}": figure}, tables={"Slopes": rows}, claims=claims,
        differs=_differs(quick, "resnet20", 2, 16) + " One layer is stitched.",
    )  # fmt: skip


def homogeneity(name: str, title: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Fig. 17: how far GELU is from homogeneous, by exact integrals where the source samples."""
    from scipy.special import ndtr

    from intertwine.activations import xi, xi_slope
    from intertwine.report.similarity_figures import curves

    at = np.linspace(-3, 3, 61)
    functions = curves(
        {"ReLU": np.maximum(at, 0).tolist(), "GELU": (at * ndtr(at)).tolist()},
        [f"{x:.1f}" for x in at], x_title="x", y_title="",
    )  # fmt: skip
    scales = np.geomspace(0.01, 100, 41)
    lack = curves(
        {"xi(lambda)": xi(scales).tolist()}, [f"{x:.2g}" for x in scales], x_title="lambda", y_title="xi"
    )
    claims = (Claim("slope of xi for large lambda", "about 0.127", f"{xi_slope():.6f}"),)
    figures = {"ReLU and GELU": functions, "Root-mean-square lack of homogeneity of GELU": lack}
    return write_outcome(folder, name, title, figures, claims=claims, facts={"xi(2)": xi(2.0)})


def group_table(name: str, title: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Table 1: the intertwiner group of an activation, decided by evaluating it."""
    from intertwine import intertwiner

    reported = {
        "identity": "GL(n)", "sigmoid": "permutations", "relu": "P D, D positive",
        "leaky_relu": "P D, D positive", "rbf": "P D, D = +-1", "x**3": "P D, D nonzero",
    }  # fmt: skip
    found = {activation: intertwiner(activation) for activation in reported}
    claims = tuple(Claim(a, reported[a], f"{g.group_text}, {g.phi_text}") for a, g in found.items())
    rows = [{"activation": a, "group": g.group_text, "phi": g.phi_text} for a, g in found.items()]
    return write_outcome(folder, name, title, {}, tables={"Groups": rows}, claims=claims)


_CKA, _PROCRUSTES = ("cka-grelu", "cka"), ("procrustes-grelu", "procrustes")
_MYRTLE2 = "G_ReLU 0.62, 0.51, 0.44, 0.49; orthogonal 0.77, 0.57, 0.51, 0.58"
_DIAGONAL, _ALIKE = "high near the diagonal", "qualitatively alike"
_SIMILARITIES: tuple[tuple[str, str, str, str, Sequence[str], int, str], ...] = (
    ("fig2", "figure 2", "CKA between seeds of ResNet20", "resnet20", _CKA, 16, _DIAGONAL),
    ("fig5", "figure 5", "CKA between seeds of Myrtle CNNs", "myrtle", _CKA, 16, _DIAGONAL),
    ("fig9", "figure 9", "Procrustes between seeds of ResNet20", "resnet20", _PROCRUSTES, 32, _ALIKE),
    ("fig10", "figure 10", "Procrustes between seeds of ResNet18", "resnet18", _PROCRUSTES, 32, _ALIKE),
    ("fig11", "figure 11", "CKA between seeds of ResNet18", "resnet18", _CKA, 16, _DIAGONAL),
    ("fig16", "figure 16", "CKA between wide Myrtle CNNs", "myrtle-constant", _CKA, 4, _DIAGONAL),
    ("table2", "table 2", "Procrustes between seeds of Myrtle CNNs", "myrtle", _PROCRUSTES, 32, _MYRTLE2),
    ("table4", "table 4", "Procrustes between wide Myrtle CNNs", "myrtle-constant", _PROCRUSTES, 4,
     "layer 10: G_ReLU 0.57, orthogonal 0.54"),
)  # fmt: skip
_STITCHINGS: tuple[tuple[str, str, str, int, str | None], ...] = (
    ("fig1", "figure 1", "myrtle", 32, None),
    ("fig6", "figure 6", "resnet20", 16, None),
    ("fig7", "figure 7", "resnet18", 16, None),
    ("fig13", "figure 13", "myrtle", 32, "cv"),
)
_OTHERS: tuple[tuple[str, str, str, Any], ...] = (
    ("fig4", "figure 4", "rotation penalties", rotations),
    ("fig8", "figure 8 and table 3", "stitching from ReLU to the identity", slopes),
    ("fig15", "figure 15", "penalty against sparsity of a stitch", sparse_stitching),
    ("fig17", "figure 17", "how far GELU is from homogeneous", homogeneity),
    ("table1", "table 1", "intertwiner groups of activations", group_table),
)


def _recipe(short: str, where: str, title: str, make: Any, *fixed: Any) -> Reproduction:
    name = f"symmetry-{short}"
    return Reproduction(name, title, f"source 002, {where}", partial(make, name, title, *fixed))


RECIPES = (
    *(_recipe(s, w, f"stitching penalties of {m}{', alpha chosen' if a else ''}", stitching, m, n, a)
      for s, w, m, n, a in _STITCHINGS),
    *(_recipe(s, w, t, similarities, *rest) for s, w, t, *rest in _SIMILARITIES),
    *(_recipe(s, w, t, make) for s, w, t, make in _OTHERS),
)  # fmt: skip

"""Figures 2, 5, 9 to 11, 16, 17 and Tables 1, 2, 4 of source 002: similarities between seeds, and groups.

Both kinds of CKA get the treatment of D.7.2: maps are flattened, not averaged over pixels, and HSIC is the
unbiased one, so that a difference between them is one of kernels and not of preparation.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from intertwine.recipes import Claim, Outcome, Progress, Reproduction, Setting
from intertwine.recipes.claims import above, holds, number
from intertwine.recipes.godfrey import Pairs, load_seeds, star
from intertwine.recipes.pages import write_outcome

# kind -> (the measure for G_ReLU, the orthogonal one, what becomes of pixels)
MEASURES = {
    "cka": ("cka-grelu", "cka-debiased", "flatten"),
    "procrustes": ("procrustes-grelu", "procrustes", None),
}
INPUTS = {"quick": 200, "cifar": 200, "paper": 10_000}
TABLE2 = {"G_ReLU": (0.6208, 0.5106, 0.4432, 0.4899), "orthogonal": (0.7724, 0.5743, 0.5087, 0.5825)}
SMALL_NETS = (
    "A guess: where the data are easy, as digits are, late layers of all seeds tell the classes apart in the "
    "same way, and nothing makes one of them as peculiar as layer 70 of the source's nets."
)
LAYERS2 = ("layer 3", "layer 6", "layer 10", "layer 14")


def similarities(
    name: str,
    title: str,
    model: str,
    kind: str,
    pairs: int,
    folder: Path,
    setting: Setting,
    progress: Progress,
) -> Outcome:
    """G_ReLU and orthogonal similarities between seeds, a heat map a measure and matched layers."""
    from intertwine.comparing.seeds import compare_seeds
    from intertwine.pages.similarity_figures import heat_map

    seeds = load_seeds(model, pairs + 1, folder, setting, progress)
    group, rotation, pixels = MEASURES[kind]
    images = seeds.test.images[: INPUTS[setting.preset]]

    found = compare_seeds(
        seeds.nets, images, (group, rotation), at=seeds.layers, progress=progress, intervals=False,
        kernel_inputs=len(images), **({"pixels": pixels} if pixels else {}),
    )  # fmt: skip
    known = {"G_ReLU": group, "orthogonal": rotation}
    matched = Pairs(seeds.layers, seeds.inside, {k: found.same_depth(m) for k, m in known.items()})
    others = {k: _off_diagonal(found.between[m]) for k, m in known.items()}
    claims = (_cka_claims if kind == "cka" else _procrustes_claims)(matched, others, model, setting)
    names = star(matched.layers, matched.inside)
    what = "CKA" if kind == "cka" else "Procrustes similarity"
    figures: dict[str, Any] = {
        f"{k} {what} of layers, mean over {len(seeds.nets) * (len(seeds.nets) - 1) // 2} pairs": heat_map(
            found.mean[m],
            names,
            names,
            row_title="layer of one net",
            column_title="layer of the other",
            value_title=what,
        )
        for k, m in known.items()
    }
    marks = "; *: inside a residual block" if any(matched.inside.values()) else ""
    figures[f"The same layer in both; 95 % intervals over {len(seeds.nets)} networks{marks}"] = (
        matched.figure("layer", what)
    )
    return write_outcome(
        folder, name, f"{what} between {seeds.what}", figures, setting=setting, claims=claims,
        tables={"Matched layers": matched.rows()},
        facts={"networks": len(seeds.nets), "inputs": len(images), "measures": [group, rotation]},
        differs=f"{seeds.what}; {len(images):,} inputs (the source: {model} and 10,000); every pair of "
                f"these nets "
        f"and an interval over nets, where the source draws {pairs} pairs of 100 nets.",
    )  # fmt: skip


def _off_diagonal(grids: np.ndarray) -> np.ndarray:
    """Networks x networks: the mean over pairs of different layers."""
    different = ~np.eye(grids.shape[2], dtype=bool)
    return np.asarray(grids[:, :, different].mean(2))


def _cka_claims(matched: Pairs, others: dict[str, np.ndarray], model: str, setting: Setting) -> list[Claim]:
    group, rotation = matched.values["G_ReLU"], matched.values["orthogonal"]
    own = [matched.interval(matched.mean(k) - others[k]) for k in matched.values]
    decay = {k: v[:, :, 0] - v[:, :, -1] for k, v in matched.values.items()}
    claims = [
        above("the same layer minus other layers, mean", "model layers at the same depth are more similar",
              own, names=matched.values),
        above("G_ReLU-CKA of the first layer minus that of the last", "early layers are highly similar, "
              "... later "
              "layers are found to be less similar between runs", [matched.interval(decay["G_ReLU"])]),
        above("the same drop, G_ReLU minus orthogonal", "G_ReLU-CKA exhibits a much more significant "
              "decay with "
              "network depth than its orthogonal counterpart",
              [matched.interval(decay["G_ReLU"] - decay["orthogonal"])], why=SMALL_NETS),
        above("orthogonal minus G_ReLU at each layer", "orthogonal above at every layer (read off the "
              "pictures)",
              [matched.interval(rotation[:, :, k] - group[:, :, k]) for k in range(group.shape[2])],
              names=matched.layers, why=SMALL_NETS),
    ]  # fmt: skip
    if any(matched.inside.values()):
        gaps = [
            matched.interval(matched.mean(k, "outside") - matched.mean(k, "inside")) for k in matched.values
        ]
        claims.append(
            above("outside minus inside of residual blocks, mean", "layers inside residual blocks are less "
                  "similar than those at residual connections", gaps, names=matched.values)
        )  # fmt: skip
    if model == "resnet18":
        claims += [
            _lowest_inside(matched, kind, "note also the extreme dissimilarity in layer 70")
            for kind in matched.values
        ]
    return claims


def _lowest_inside(matched: Pairs, kind: str, sentence: str) -> Claim:
    """Layer 70 is the last but one of the layers inside blocks."""
    means = [i.value for i in matched.by_layer(kind)]
    inner = [k for k, layer in enumerate(matched.layers) if matched.inside[layer]]
    lowest, expected = matched.layers[int(np.argmin(means))], matched.layers[inner[-2]]
    return holds(
        f"{kind}: the least similar layer", sentence, lowest, f"it is {expected}", lowest == expected,
        why=SMALL_NETS,
    )  # fmt: skip


def _procrustes_claims(
    matched: Pairs, others: dict[str, np.ndarray], model: str, setting: Setting
) -> list[Claim]:
    group, rotation = matched.values["G_ReLU"], matched.values["orthogonal"]
    means = [[i.value for i in matched.by_layer(k)] for k in matched.values]
    alike = float(np.corrcoef(means[0], means[1])[0, 1])
    claims = []
    if model == "myrtle":
        claims = [
            above("orthogonal minus G_ReLU at each layer", "distinct representations register less "
                  "similarity in "
                  "terms of G_ReLU-Procrustes than ... orthogonal Procrustes",
                  [matched.interval(rotation[:, :, k] - group[:, :, k]) for k in range(group.shape[2])],
                  names=matched.layers),
            above("G_ReLU, the first layer minus the last but one", "similarity ... decreasing as one "
                  "progresses "
                  "through the network", [matched.interval(group[:, :, 0] - group[:, :, -2])]),
            above("G_ReLU, the last layer minus the one before", "... only to increase again in the last "
                  "layer",
                  [matched.interval(group[:, :, -1] - group[:, :, -2])]),
        ]  # fmt: skip
        if setting.own:
            claims += [
                number(f"{kind}, {layer}", said, matched.by_layer(kind)[k], factor=1.25)
                for kind, row in TABLE2.items() for k, (layer, said) in enumerate(zip(LAYERS2, row,
                strict=True))
            ]  # fmt: skip
    elif model == "myrtle-constant":
        claims = [
            above("G_ReLU, the first layer minus the third", "constant width CNNs exhibit qualitatively "
                  "very similar "
                  "dissimilarity measures as their non-constant width counterparts",
                  [matched.interval(group[:, :, 0] - group[:, :, 2])]),
            *(number(f"{kind}, layer 10", said, matched.by_layer(kind)[2], factor=1.25)
              for kind, said in (("G_ReLU", 0.5691), ("orthogonal", 0.5409)) if setting.own),
        ]  # fmt: skip
    claims.append(
        holds("correlation of the two measures over layers", "the 2 measures seem qualitatively quite similar"
              if model.startswith("resnet") else "patterns in G_ReLU-Procrustes largely follow those of "
                  "orthogonal",
              f"{alike:.2f}", "above 0.7", alike > 0.7)
    )  # fmt: skip
    if model == "resnet18":
        inner = [k for k, layer in enumerate(matched.layers) if matched.inside[layer]]
        rest = float(np.mean([means[0][k] for k in inner[:-2]]))
        claims.append(
            holds("G_ReLU at the last but one layer inside a block", "the exception of layer 70, where we "
                  "see high "
                  "G_ReLU similarity", f"{means[0][inner[-2]]:.2f}, earlier ones {rest:.2f}",
                  "above the mean of the earlier ones inside", means[0][inner[-2]] > rest, why=SMALL_NETS)
        )  # fmt: skip
    return claims


def homogeneity(name: str, title: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Fig. 17: how far GELU is from homogeneous, by exact integrals where the source samples."""
    from scipy.special import ndtr

    from intertwine.activations import xi, xi_slope
    from intertwine.pages.similarity_figures import lines

    at = np.linspace(-3, 3, 61)
    functions = lines(
        {"ReLU": (at, np.maximum(at, 0)), "GELU": (at, at * ndtr(at))}, x_title="x", y_title="value"
    )
    scales = np.geomspace(0.01, 100, 41)
    lack = lines({"xi(lambda)": (scales, xi(scales))}, x_title="lambda", y_title="xi(lambda)", log=True)
    far = xi(np.array([50.0, 100.0]))
    slope = float(far[1] - far[0]) / 50
    claims = [
        number("asymptotic slope of xi, by its integral", 0.127, xi_slope(), within=5e-4, factor=1.1,
               anywhere=True),
        number("slope of xi between lambda 50 and 100", xi_slope(), slope, within=2e-3, factor=1.1,
               anywhere=True, source="as lambda goes to infinity the function becomes linear"),
    ]  # fmt: skip
    figures = {"ReLU and GELU": functions, "Root-mean-square lack of homogeneity of GELU": lack}
    return write_outcome(
        folder, name, title, figures, setting=setting, claims=claims, facts={"xi(2)": xi(2.0)},
        differs="Integrals instead of averages over 100,000 samples.",
    )  # fmt: skip


TABLE1: dict[str, tuple[str, str]] = {
    "identity": ("GL(n)", "GL(n)"), "sigmoid": ("permutations", "permutation"),
    "relu": ("P D, D positive", "permutation x positive diagonal"),
    "leaky_relu": ("P D, D positive", "permutation x positive diagonal"),
    "rbf": ("P D, D = +-1", "permutation x sign"), "x**3": ("P D, D nonzero", "permutation x nonzero "
        "diagonal"),
}  # fmt: skip


def group_table(name: str, title: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Table 1: the intertwiner group of an activation, decided by evaluating it."""
    from intertwine import intertwiner

    found = {activation: intertwiner(activation) for activation in TABLE1}
    claims = [
        holds(a, TABLE1[a][0], f"{g.group_text}, {g.phi_text}", "the group found is that of the table",
              g.group_text == TABLE1[a][1], anywhere=True)
        for a, g in found.items()
    ]  # fmt: skip
    rows = [{"activation": a, "group": g.group_text, "phi": g.phi_text} for a, g in found.items()]
    return write_outcome(
        folder, name, title, {}, setting=setting, tables={"Groups": rows}, claims=claims,
        differs="The source derives the groups; here each is decided by evaluating the activation. x^d "
                "for d = 3.",
    )  # fmt: skip


_SIMILARITIES: tuple[tuple[str, str, str, str, str, int], ...] = (
    ("fig2", "figure 2", "CKA between seeds of ResNet20", "resnet20-pad", "cka", 16),
    ("fig5", "figure 5", "CKA between seeds of Myrtle CNNs", "myrtle", "cka", 16),
    ("fig9", "figure 9", "Procrustes between seeds of ResNet20", "resnet20-pad", "procrustes", 32),
    ("fig10", "figure 10", "Procrustes between seeds of ResNet18", "resnet18", "procrustes", 32),
    ("fig11", "figure 11", "CKA between seeds of ResNet18", "resnet18", "cka", 16),
    ("fig16", "figure 16", "CKA between wide Myrtle CNNs", "myrtle-constant", "cka", 4),
    ("table2", "table 2", "Procrustes between seeds of Myrtle CNNs", "myrtle", "procrustes", 32),
    ("table4", "table 4", "Procrustes between wide Myrtle CNNs", "myrtle-constant", "procrustes", 4),
)
_OTHERS: tuple[tuple[str, str, str, Any], ...] = (
    ("fig17", "figure 17", "how far GELU is from homogeneous", homogeneity),
    ("table1", "table 1", "intertwiner groups of activations", group_table),
)


def recipe(short: str, where: str, title: str, make: Any, *fixed: Any, cifar: bool = False) -> Reproduction:
    """A recipe of source 002."""
    name = f"symmetry-{short}"
    presets = ("quick", "cifar", "paper") if cifar else ("quick", "paper")
    run = partial(make, name, title, *fixed)
    return Reproduction(name, title, f"source 002, {where}", run, presets=presets)


RECIPES = (
    *(
        recipe(s, w, t, similarities, m, *rest, cifar=m in ("myrtle", "resnet20-pad"))
        for s, w, t, m, *rest in _SIMILARITIES
    ),
    *(recipe(s, w, t, make) for s, w, t, make in _OTHERS),
)

"""Table 4.1 of source 003: two networks with one representation and opposite functions.

The source takes CIFAR-10 and a deep net; here the base is the net that ships with the package and the task is
to tell two digits apart, so the numbers are of another scale. What must come out is the same: CKA and CCA of
the features near 1, and outputs as far apart as they can be (JSD near ln 2 = 0.69 with nothing masked).
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from intertwine.recipes import Outcome, Progress, Reproduction

DIGITS = (3, 8)


def existence_proof_page(folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Write the table as a page."""
    from intertwine import collect, zoo
    from intertwine.comparing.experiments import existence_proof
    from intertwine.data import load_data
    from intertwine.report.page import Page

    model = zoo.load_weights(zoo.build("digits-vgg"), zoo.checkpoint("digits-vgg", 0))
    parts = []
    for split in ("train", "test"):
        data = load_data("digits", split=split)
        chosen = (data.labels == DIGITS[0]) | (data.labels == DIGITS[1])
        features = collect(model, data.images[chosen], at="features.17")["features.17"].flatten(1)
        parts.append((features, (data.labels[chosen] == DIGITS[1]).long()))
    progress(1, 2, "training the heads")
    rows = existence_proof(parts[0], parts[1], steps=100 if quick else 300)
    page = Page("Same features, opposite functions")
    page.section(
        "Table 4.1 of source 003, on digits",
        f"Two linear heads on one frozen base, {DIGITS[0]} against {DIGITS[1]}; the second is trained on "
        "flipped labels. masked: the share of features that each head does not see.",
    )
    page.table([asdict(row) for row in rows])
    folder.mkdir(parents=True, exist_ok=True)
    path = page.write(folder / "functional-table4.1.html")
    first = rows[0]
    return Outcome(
        (path,), {"cka": first.cka, "cca": first.cca, "jsd": first.jsd, "spearman": first.rank_coefficient}
    )


RECIPES = (
    Reproduction(
        "functional-table4.1",
        "two networks with one representation and opposite functions",
        "source 003, table 4.1",
        existence_proof_page,
    ),
)

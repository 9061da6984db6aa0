"""docs/images and docs/gallery.md: the page of every verb as chromium shows it, light, dark and narrow.

    python scripts/make_screenshots.py [NAME ...]     (apt-get install chromium; extras vision, rl, train)
    python scripts/make_screenshots.py --in DIR ...   work there, and go on with what is there already
    python scripts/make_screenshots.py --gallery      only write docs/gallery.md

Every picture is made by commands of the package on data and weights that are in it. A page that says
something on the console, asks for anything, is larger than 2 MB or wider than a telephone is refused.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from contextlib import chdir
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from browser import look, shoot  # noqa: E402

_NET = "zoo:digits-vgg --weights shipped:0"
_PAIR = "zoo:digits-vgg zoo:digits-vgg --weights-a shipped:0 --weights-b shipped:1 --data digits"
_BOTH = "zoo:digits-vgg zoo:digits-vgg --weights shipped:0 --weights shipped:1 --data digits"
_RECIPE = "epochs: 6\nbatch: 64\noptimizer: {name: sgd, learning_rate: 0.05, momentum: 0.9}\n"
_SWEEP = """data: digits
train: {models: [mlp], seeds: 0-3, recipe: r.yml}
compare: {measures: [cka], inputs: 200}
"""
_GRIDS = "MiniGrid-Empty-5x5-v0 MiniGrid-Empty-6x6-v0"
_FOUR = """import torch
from torch import nn

def make():
    torch.manual_seed(10)
    net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    return net, torch.randn(2, 1)
"""


@dataclass(frozen=True)
class Shown:
    """title and alt: for the gallery. command: writes PAGE.html. before: commands, files: what they need."""

    title: str
    alt: str
    command: str
    page: str = ""
    before: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    height: int = 900


PAGES = {
    "inspect": Shown("the network as a map", "coloured bands run through the weights of a network",
                     f"inspect {_NET} -o inspect.html"),
    "demo": Shown("a story of the verbs", "the first screen of the demo's report", "demo -o demo.html"),
    "verify": Shown("the proof", "the change of the output under the symmetry and under a wrong action",
                    f"verify {_NET} -o verify.html"),
    "merge": Shown("what is left of every axis", "bars of kept and merged channels",
                   f"merge {_NET} --target-params 0.5 --data digits -o small --page merge.html"),
    "compare": Shown("layers of two networks", "curves over layers, and how often the two disagree",
                     f"compare {_PAIR} -o compare.html"),
    "align": Shown("one network brought onto another", "cosines of channels before and after",
                   f"align {_PAIR} -o b.safetensors --page align.html"),
    "interpolate": Shown("the line between two networks", "loss along the line, before and after aligning",
                         f"interpolate {_BOTH} --limit 200 --align --repair -o interpolate.html"),
    "combine": Shown("several networks into one", "accuracy of the networks and of what is made of them",
                     f"combine {_BOTH} -o both.safetensors --page combine.html"),
    "stitch": Shown("half of one, half of the other", "points that are lost by a cut after each layer",
                    f"stitch {_PAIR} --kinds group,full --epochs 0 -o stitch.html"),
    "rotate": Shown("a change of basis", "accuracy before, right after and fine-tuned",
                    f"rotate {_NET} --data digits --at features.4 --by orthogonal -o rotate.html"),
    "explore": Shown("all parameters of one function", "a valley of equal functions as a surface",
                     "explore four.py:make --seconds 10 -o explore.html", files={"four.py": _FOUR}),
    "dimension": Shown("was a symmetry missed?", "singular values of the Jacobian",
                       f"dimension {_NET} --data digits --limit 400 --at features.3 -o dimension.html"),
    "attribute": Shown("what equal features see", "digits with heat where a class of features looks",
                       f"attribute {_NET} --data digits --axis features.3 --by ward --beta 0.3 "
                       "-o attribute.html"),
    "dissect": Shown("units that detect a concept", "share of interpretable units against rotation",
                     "dissect zoo:resnet20 --at layer3.2.relu_1 --concepts shapes:100:32 "
                     "--rotate orthogonal -o dissect.html"),
    "train": Shown("a training run", "loss and accuracy by epoch",
                   "train mlp --data digits --recipe r.yml -o run --page train.html",
                   files={"r.yml": _RECIPE}),
    "sweep": Shown("many runs and pairs", "the spread of every quantity over seeds",
                   "sweep sweep.yml -o out --jobs 1 --page sweep.html",
                   files={"r.yml": _RECIPE, "sweep.yml": _SWEEP}),
    "coverage": Shown("a whole library verified", "how much of each model a symmetry moves",
                      "coverage --library zoo --filter 'm*' -o coverage.json --page coverage.html"),
    "reproduce": Shown("a figure of a source", "the verdict, and the figure made again",
                       "reproduce genni-fig1 -o figures", page="figures/genni-fig1.html"),
    "agents": Shown("policies in a grid world", "representation against function of policies, in four panels",
                    f"agents compare zoo --env {_GRIDS} --jobs 1 -o agents.html", height=1000,
                    before=tuple(f"agents train --env {grid} --seeds 0-2 --steps 16384 --stages 4 --jobs 1 "
                                 "-o zoo" for grid in _GRIDS.split())),
    "report": Shown("any pages as one file", "a table of contents, then every page",
                    "report verify.html dimension.html -o report.html",
                    before=(f"verify {_NET} -o verify.html",
                            f"dimension {_NET} --data digits --limit 400 --at features.3 -o dimension.html")),
}  # fmt: skip
VIEWS = {"light": (False, 1180), "dark": (True, 1180), "narrow": (False, 390)}
_MOST_BYTES = 2_000_000
_COLOURS = 256  # fewer, and what is rare in a picture (links, dots) turns grey


def make(name: str, folder: Path) -> None:
    """Run the commands of one page in a folder and write NAME-VIEW.png for every view."""
    from PIL import Image

    from intertwine.cli import main

    shown = PAGES[name]
    with chdir(folder):  # the footer names the command as typed
        for path, text in shown.files.items():
            Path(path).write_text(text)
        for command in (*shown.before, shown.command):
            assert main(shlex.split(command)) == 0, command
        page = (folder / (shown.page or f"{name}.html")).resolve()
        check(page, folder)
        for view, (dark, width) in VIEWS.items():
            target = ROOT / "docs/images" / f"{name}-{view}.png"
            shoot(page, target, folder, dark=dark, width=width, height=shown.height)
            picture = Image.open(target).convert("RGB").crop((0, 0, width, shown.height))
            picture.quantize(_COLOURS).save(target, optimize=True)
            print(target.relative_to(ROOT), f"{target.stat().st_size:,} bytes", flush=True)


def check(page: Path, folder: Path) -> None:
    """At 390 pixels: no error, no request, every figure drawn, nothing to scroll sideways; below 2 MB."""
    seen = look(page, folder, width=390)
    # a browser without a graphics card may say that its WebGL is slow
    replace(seen, errors=[said for said in seen.errors if "WebGL" not in said]).assert_sound()
    assert seen.wide <= 0, f"{page.name} is {seen.wide} pixels too wide"
    assert page.stat().st_size < _MOST_BYTES, f"{page.name} has {page.stat().st_size:,} bytes"


def gallery() -> str:
    """docs/gallery.md: those pages of which there are pictures."""
    parts = [
        "# Gallery\n\nEvery picture is a page that a command writes: one offline file, for light and dark "
        "screens and for a telephone.\n`python scripts/make_screenshots.py` makes them and this page again.\n"
    ]
    for name, shown in PAGES.items():
        if not (ROOT / "docs/images" / f"{name}-narrow.png").exists():
            continue
        commands = "\n".join(f"intertwine {command}" for command in (*shown.before, shown.command))
        parts.append(
            f"## {name}: {shown.title}\n\n![{shown.alt}](images/{name}-light.png)\n\n```\n{commands}\n```\n\n"
            f"| dark | narrow |\n|---|---|\n| ![{shown.alt}, on a dark screen](images/{name}-dark.png) "
            f"| ![{shown.alt}, at 390 pixels](images/{name}-narrow.png) |\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*PAGES, []])
    parser.add_argument("--in", type=Path, dest="folder")
    parser.add_argument("--gallery", action="store_true")
    args = parser.parse_args()
    for each in () if args.gallery else args.names or PAGES:
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(temporary) if args.folder is None else args.folder.resolve() / each
            place.mkdir(parents=True, exist_ok=True)
            make(each, place)
    (ROOT / "docs/gallery.md").write_text(gallery(), encoding="utf-8")

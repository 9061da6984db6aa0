"""docs/images: the main pages as chromium shows them, light, dark and narrow.

    python scripts/make_screenshots.py          (apt-get install chromium)

Every picture is made by a command of the package on data and weights that are in it.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import chdir
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from browser import shoot  # noqa: E402
from intertwine.cli import main  # noqa: E402

_NET = ["zoo:digits-vgg", "--weights", "shipped:0"]
_PAIR = ["zoo:digits-vgg", "zoo:digits-vgg", "--weights-a", "shipped:0", "--weights-b", "shipped:1"]
PAGES = {
    "inspect": ["inspect", *_NET, "-o", "PAGE"],
    "compare": ["compare", *_PAIR, "--data", "digits", "-o", "PAGE"],
    "stitch": ["stitch", *_PAIR, "--data", "digits", "--kind", "group,full", "--epochs", "0", "-o", "PAGE"],
    "merge": ["merge", *_NET, "--target-params", "0.5", "--data", "digits", "--page", "PAGE"],
    "demo": ["demo", "-o", "PAGE"],
}
VIEWS = {"light": (False, 1180), "dark": (True, 1180), "narrow": (False, 390)}


def make_all(names: list[str]) -> None:
    """Write NAME-VIEW.png for every page and view."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):  # the footer names the command as typed
        for name in names or PAGES:
            page = Path(folder) / f"{name}.html"
            assert main([page.name if word == "PAGE" else word for word in PAGES[name]]) == 0
            for view, (dark, width) in VIEWS.items():
                target = ROOT / "docs/images" / f"{name}-{view}.png"
                shoot(page, target, Path(folder), dark=dark, width=width, height=900)
                print(target.relative_to(ROOT), f"{target.stat().st_size:,} bytes")


if __name__ == "__main__":
    make_all(sys.argv[1:])

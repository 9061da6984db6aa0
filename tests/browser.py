"""Pages in Debian's chromium, headless: what they draw, what they say on the console, what they ask for."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed: apt-get install chromium"
)
# Figures in three dimensions draw every frame of a page's virtual time anew, in software: keep it short.
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
    "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
# What the page does is noted from before its first script; what would leave the machine is refused.
_WATCH = """<meta http-equiv="Content-Security-Policy"
  content="default-src 'unsafe-inline' data: blob:; script-src 'unsafe-inline'">
<script>
window.seen = {errors: [], refused: [], alerts: 0};
window.alert = () => { seen.alerts += 1; };
addEventListener("error", event => seen.errors.push(String(event.message)), true);
addEventListener("unhandledrejection", event => seen.errors.push(String(event.reason)));
addEventListener("securitypolicyviolation", event => seen.refused.push(event.blockedURI));
for (const kind of ["error", "warn"]) console[kind] = (...said) => seen.errors.push(said.join(" "));
</script>"""
_REPORT = """<script>
addEventListener("load", () => setTimeout(async () => {
  await window.drawn;
  document.querySelectorAll("details").forEach(each => { each.open = true; });
  const plots = [...document.querySelectorAll(".js-plotly-plot")];
  seen.figures = plots.map(plot => (plot.calcdata || []).reduce((sum, trace) => sum + trace.length, 0));
  seen.asked = performance.getEntriesByType("resource").map(entry => entry.name);
  seen.dangling = [...document.querySelectorAll('a[href^="#"]')].map(link => link.hash.slice(1))
    .filter(name => !document.getElementById(name));
  seen.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  seen.ink = getComputedStyle(document.body).color;
  seen.ground = getComputedStyle(document.body).backgroundColor;
  seen.unlabelled = document.querySelectorAll('[role="img"]:not([aria-label]), img:not([alt])').length;
  STEP
  document.body.dataset.seen = JSON.stringify(seen);
}, 300));
</script>"""


@dataclass(frozen=True)
class Seen:
    """What the browser saw; figures: points drawn in each."""

    errors: list[str]
    refused: list[str]
    alerts: int
    figures: list[int]
    asked: list[str]
    dangling: list[str]
    wide: int
    ink: str
    ground: str
    unlabelled: int
    step: object = None

    def assert_sound(self) -> None:
        """No error, no request, every figure has points, anchors lead somewhere, nothing hostile ran."""
        assert not self.errors and not self.refused and not self.asked and not self.alerts, self
        assert all(self.figures) and not self.dangling and not self.unlabelled, self


def look(page: Path, folder: Path, *, dark: bool = False, width: int = 1280, step: str = "") -> Seen:
    """Load a page and report; step: a statement that runs at the end and may set seen.step."""
    text = page.read_text(encoding="utf-8")
    watched = text.replace("<head>", f"<head>{_WATCH}", 1)
    head, _, tail = watched.rpartition("</body>")
    copy = folder / f"{page.stem}-watched.html"
    copy.write_text(f"{head}{_REPORT.replace('STEP', step)}</body>{tail}", encoding="utf-8")
    frame = folder / f"{page.stem}-frame.html"  # a window of chromium is 500 pixels wide at least
    frame.write_text(_frame(copy, width, 3000))
    flags = ["--virtual-time-budget=2500", "--dump-dom", "--allow-file-access-from-files"]
    dumped = _run([*_flags(folder, dark), *flags, f"--window-size={max(width, 800)},3000", frame.as_uri()])
    found = re.search(r'data-seen="([^"]*)"', dumped)
    assert found, dumped[-2000:]
    return Seen(**json.loads(html.unescape(found[1])))


def shoot(page: Path, png: Path, folder: Path, *, dark: bool = False, width: int = 1180, height: int = 900
          ) -> None:  # fmt: skip
    """A picture of the top of a page."""
    frame = folder / "shot.html"
    frame.write_text(_frame(page, width, height))
    _run([*_flags(folder, dark), "--virtual-time-budget=2500", f"--screenshot={png}",
          f"--window-size={max(width, 500)},{height}", frame.as_uri()])  # fmt: skip


def _frame(page: Path, width: int, height: int) -> str:
    return (
        "<!doctype html><style>body{margin:0}iframe{border:0;display:block}</style>"
        f'<iframe id="page" src="{page.as_uri()}" width="{width}" height="{height}"></iframe><script>'
        'const page = document.getElementById("page");'
        "setInterval(() => { try { const seen = page.contentDocument.body.dataset.seen;"
        "if (seen) document.body.dataset.seen = seen; } catch (error) {} }, 100);</script>"
    )


def _flags(folder: Path, dark: bool) -> list[str]:
    scheme = f"--blink-settings=preferredColorScheme={int(not dark)}"
    return [*_FLAGS, f"--user-data-dir={folder / 'profile'}", scheme]


def _run(flags: list[str]) -> str:
    assert CHROMIUM is not None
    done = subprocess.run([CHROMIUM, *flags], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout

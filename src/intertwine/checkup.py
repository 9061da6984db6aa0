"""`intertwine doctor`: what is installed here, what is missing, and how to get it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from intertwine.results import Result, Table

_CORE = "core"
_GIVES = {
    _CORE: "everything that is not named below",
    "vision": "torchvision:NAME, timm:NAME, image files, parquet",
    "text": "hf:FAMILY, text data",
    "diffusion": "diffusers:NAME",
    "rl": "intertwine agents",
    "onnx": "path/to/file.onnx, merge --export onnx",
    "umap": "UMAP in explore (principal components without it)",
    "images": "PNG files of figures",
    "train": "intertwine train, sweep",
    "tensorboard": "TensorBoard events of train",
    "distributed": "sweeps on Ray (joblib without it)",
    "docs": "make docs",
    "dev": "make test, make lint",
}
_REQUIREMENT = re.compile(  # name>=version; extra == "name"
    r"([A-Za-z0-9._-]+)\s*(?:>=\s*([0-9.]+))?[^;]*(?:;.*extra\s*==\s*['\"]([^'\"]+)['\"])?"
)


@dataclass(frozen=True)
class Dependency:
    """One package that an extra asks for: `found` is "" where it is missing."""

    extra: str
    package: str
    wanted: str
    found: str

    @property
    def fine(self) -> bool:
        """Whether it is there and new enough."""
        return bool(self.found) and _numbers(self.found) >= _numbers(self.wanted)


@dataclass(frozen=True)
class Checkup(Result):
    """What `doctor` found."""

    version: str
    python: str
    system: str
    processors: int
    torch: str
    devices: tuple[str, ...]
    dependencies: tuple[Dependency, ...]

    @property
    def healthy(self) -> bool:
        """Whether all that the core asks for is there."""
        return all(each.fine for each in self.dependencies if each.extra == _CORE)

    def extras(self) -> list[tuple[str, str, str, str]]:
        """(extra, what it gives, "yes" or what is missing, how to get it)."""
        rows = []
        for extra in dict.fromkeys(each.extra for each in self.dependencies):
            lacks = [d for d in self.dependencies if d.extra == extra and not d.fine]
            says = ", ".join(f"{d.package} {d.found} < {d.wanted}" if d.found else d.package for d in lacks)
            name = "intertwine" if extra == _CORE else f"intertwine[{extra}]"
            how = f"pip install '{name}'" if lacks else ""
            rows.append((extra, _GIVES.get(extra, ""), f"missing: {says}" if lacks else "yes", how))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        rows = [{**asdict(each), "fine": each.fine} for each in self.dependencies]
        return {**asdict(self), "dependencies": rows, "healthy": self.healthy}

    def tables(self) -> Sequence[Table]:
        """A row an extra."""
        return [Table("extras", ["extra", "gives", "here", "how to get it"], self.extras())]

    def remarks(self) -> Sequence[str]:
        """Versions and devices."""
        devices = ", ".join(self.devices) or "none"
        return [
            f"intertwine {self.version}, Python {self.python}, torch {self.torch or 'missing'}",
            f"{self.system}, {self.processors} processors, devices: {devices}",
        ]

    def __repr__(self) -> str:
        missing = [extra for extra, _, state, _ in self.extras() if state != "yes"]
        lacks = ", ".join(missing) or "nothing"
        return f"Checkup(intertwine {self.version}, torch {self.torch}, missing: {lacks})"


def doctor() -> Checkup:
    """Versions, devices and extras of this installation; nothing is changed and nothing is downloaded.

    >>> doctor().healthy
    True
    """
    return Checkup(
        version=metadata.version("intertwine"),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        processors=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        torch=_version("torch"),
        devices=_devices(),
        dependencies=tuple(_dependency(line) for line in metadata.requires("intertwine") or ()),
    )


def _dependency(line: str) -> Dependency:
    """
    >>> found = _dependency('timm>=1.0.30; extra == "vision"')
    >>> found.extra, found.package, found.wanted
    ('vision', 'timm', '1.0.30')
    """
    match = _REQUIREMENT.match(line)
    assert match is not None, line
    package, wanted, extra = match.groups(default="")
    return Dependency(extra or _CORE, package, wanted, _version(package))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _devices() -> tuple[str, ...]:
    try:
        import torch
    except ImportError:
        return ()
    numbers = range(torch.cuda.device_count())
    found = ["cpu", *(f"cuda:{number} ({torch.cuda.get_device_name(number)})" for number in numbers)]
    if torch.backends.mps.is_available():
        found.append("mps")
    return tuple(found)


def _numbers(version: str) -> tuple[int, ...]:
    """
    >>> _numbers("2.13.0+cpu") >= _numbers("2.13"), _numbers("2.9") >= _numbers("2.13")
    (True, False)
    """
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))

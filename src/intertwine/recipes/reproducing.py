"""reproduce: a figure of a source, made again."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from intertwine.checks import checked
from intertwine.errors import InputError
from intertwine.files import write_bytes
from intertwine.plain import to_json
from intertwine.progress import Progress
from intertwine.reading import user_path
from intertwine.recipes import Outcome, Reproduction, Setting, find_recipe
from intertwine.recipes.pages import summary
from intertwine.results import Result, Table


@dataclass(frozen=True, repr=False)
class Reproduced(Result):
    """What a recipe measured, what the source says, and the files it wrote."""

    recipe: Reproduction
    outcome: Outcome
    preset: str
    seconds: float
    files: tuple[Path, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """Every number by its name."""
        return {**self.outcome.facts, "preset": self.preset, "seconds": self.seconds}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine reproduce --json` prints it."""
        about = {"recipe": self.recipe.name, "source": self.recipe.source}
        about["verdict"] = str(self.outcome.verdict)
        claims = [claim.to_dict() for claim in self.outcome.claims]
        files = [str(file) for file in self.files]
        return {**about, "claims": claims, **self.facts, "differs": self.outcome.differs, "files": files}

    def tables(self) -> Sequence[Table]:
        """The verdict with the claims of the source, then the numbers."""
        shown = [[key, value] for key, value in self.facts.items() if not isinstance(value, list | dict)]
        rows = [[str(c.verdict), c.what, c.source, c.here] for c in self.outcome.claims]
        columns = ["verdict", "quantity", "source", "here"]
        numbers = Table(f"{self.recipe.name}: {self.recipe.title}", ["", ""], shown)
        return [Table(f"verdict: {summary(self.outcome.claims)}", columns, rows), numbers]

    def remarks(self) -> list[str]:
        """What differs from the source, and what was written."""
        differs = [f"What differs: {self.outcome.differs}"] if self.outcome.differs else []
        return [*differs, f"wrote {', '.join(map(str, self.files))}"]


@checked
def reproduce(
    name: str,
    out: str | Path = "reproduced",
    *,
    preset: Literal["quick", "cifar", "paper"] | None = None,
    data: str | Path | None = None,
    weights: str | Path | None = None,
    progress: Progress | None = None,
) -> Reproduced:
    """Run the recipe of a figure, in the source's setting or in a smaller one, and write the folder `out`.

    data, weights: for the preset cifar, the folders of CIFAR and of the checkpoints.
    """
    recipe, folder = find_recipe(name), Path(out)
    began, chosen = time.perf_counter(), preset or recipe.preset
    if chosen not in recipe.presets:
        raise InputError(f"{name} has no preset {chosen}", do=f"choose {' or '.join(recipe.presets)}")
    places = [None if given is None else user_path(given) for given in (data, weights)]
    for place in places:
        if place is not None and not os.path.isdir(place):
            raise InputError(
                f"no such folder: {place}", do="give the folder of the data or of the checkpoints"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {out}: {error.strerror}") from error
    try:
        outcome = recipe.run(folder, Setting(chosen, *places), progress or (lambda *_: None))
    except InputError:  # what was asked for is not here: an empty folder would say otherwise
        with suppress(OSError):
            folder.rmdir()
        raise
    files = (*outcome.files, folder / f"{recipe.name}.json")
    found = Reproduced(recipe, outcome, chosen, round(time.perf_counter() - began, 1), files)
    numbers = {key: value for key, value in found.to_dict().items() if key != "files"}
    write_bytes(files[-1], to_json(numbers).encode())
    return found

"""reproduce: a figure of a source, made again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from intertwine.errors import InputError
from intertwine.files import write_bytes
from intertwine.plain import to_json
from intertwine.progress import Progress
from intertwine.recipes import Outcome, Reproduction, find_recipe
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
        claims = [asdict(claim) for claim in self.outcome.claims]
        files = [str(file) for file in self.files]
        return {**about, **self.facts, "claims": claims, "differs": self.outcome.differs, "files": files}

    def tables(self) -> Sequence[Table]:
        """The numbers, and the claims of the source beside them."""
        shown = [[key, value] for key, value in self.facts.items() if not isinstance(value, list | dict)]
        tables = [Table(f"{self.recipe.name}: {self.recipe.title}", ["", ""], shown)]
        if self.outcome.claims:
            rows = [list(asdict(claim).values()) for claim in self.outcome.claims]
            tables.append(Table("against the source", ["", "source", "here"], rows))
        return tables

    def remarks(self) -> list[str]:
        """What differs from the source, and what was written."""
        differs = [f"What differs: {self.outcome.differs}"] if self.outcome.differs else []
        return [*differs, f"wrote {', '.join(map(str, self.files))}"]


def reproduce(
    name: str,
    out: str | Path = "reproduced",
    *,
    preset: Literal["quick", "paper"] | None = None,
    progress: Progress | None = None,
) -> Reproduced:
    """Run the recipe of a figure, in the source's setting or in a small one, and write the folder `out`."""
    recipe, folder = find_recipe(name), Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {out}: {error.strerror}") from error
    began, chosen = time.perf_counter(), preset or recipe.preset
    outcome = recipe.run(folder, chosen == "quick", progress or (lambda done, total, message: None))
    files = (*outcome.files, folder / f"{recipe.name}.json")
    found = Reproduced(recipe, outcome, chosen, round(time.perf_counter() - began, 1), files)
    numbers = {key: value for key, value in found.to_dict().items() if key != "files"}
    write_bytes(files[-1], to_json(numbers).encode())
    return found

"""Load what `intertwine merge` wrote: the original factory, the smaller shapes, the new weights."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from intertwine.checks import checked
from intertwine.errors import InputError, ModelError, WeightsError
from intertwine.foreign import is_signal, kept_process
from intertwine.merging.branches import Branches, tie
from intertwine.merging.storage import MergedRecipe, hash_of, hugging_face_files, load_merged
from intertwine.text import first_line
from intertwine.zoo.sources import MERGED, Source, file_named, find_source, resolve, runs_code


@checked
def load(path: str | Path, *, run_code: bool = False, source: str | None = None) -> nn.Module:
    """The merged model in a folder, in eval mode.

    A model that was made by `file.py:factory` is rebuilt by running that file, from wherever it was at the
    merge; that must be allowed with `run_code`. `source` names the factory anew: "new/place.py:factory".
    """
    return load_source(path, run_code=run_code, source=source).model


def load_source(path: str | Path, *, run_code: bool = False, source: str | None = None) -> Source:
    """The same with the example of its factory, as MODEL on the command line."""
    if hugging_face_files(path):
        return resolve(f"hf:{Path(path).absolute()}", run_code=run_code)
    built: list[Source] = []

    def build(recipe: MergedRecipe) -> nn.Module:
        built.append(_rebuild(recipe, source, run_code, str(path)))
        return built[0].model

    model = load_merged(path, build).eval()
    try:
        with kept_process(), torch.no_grad():
            model(*built[0].example, **built[0].kwargs)
    except BaseException as error:  # whatever a forward does with shapes that do not fit
        if is_signal(error):
            raise
        raise WeightsError(
            f"the merged model in {path} does not run on its example: {first_line(error)}",
            so="nothing was loaded",
            do="the recipe was edited, or the factory has changed since the merge",
        ) from error
    return replace(built[0], name=str(path), model=model, family=MERGED)


def _rebuild(recipe: MergedRecipe, source: str | None, run_code: bool, where: str) -> Source:
    chosen = source if source is not None else _original(recipe)
    first = _rebuilt(recipe, chosen, run_code, where)
    if not recipe.networks:
        return first
    others = [
        _rebuilt(recipe, chosen if source or name == recipe.source else name, run_code, where).model
        for name in recipe.networks[1:]
    ]
    both = Branches([first.model, *others])
    try:
        tie(both, recipe.tied)
    except (AttributeError, KeyError) as error:
        raise WeightsError(f"{where} does not fit its factories: {error}", so="nothing was loaded") from error
    return replace(first, model=both)


def _rebuilt(recipe: MergedRecipe, chosen: str, run_code: bool, where: str) -> Source:
    if find_source(chosen).prefix == MERGED:  # which may name itself
        raise WeightsError(f"{where} is made of a merged model, {chosen}", so="nothing was loaded")
    if runs_code(chosen) and not run_code:
        raise InputError(
            f"this model is rebuilt by running the Python code in {chosen}",
            where=where,
            do="if you trust that file, pass run_code=True (--run-code)",
        )
    file = file_named(chosen)
    if file is not None:
        _look_at_file(recipe, Path(file), chosen, where)
    return replace(resolve(chosen, input=recipe.input, run_code=run_code), name=chosen)


def _original(recipe: MergedRecipe) -> str:
    """The factory's string, with the file where it was at the merge: the working directory may be another."""
    named = file_named(recipe.source)
    if recipe.file is None or named is None:
        return recipe.source
    return recipe.file + recipe.source.removeprefix(named)


def _look_at_file(recipe: MergedRecipe, file: Path, chosen: str, where: str) -> None:
    """Say that the file is gone, or that it is not the one that was merged."""
    if not file.is_file():
        raise ModelError(
            f"the file that defines this model is not at {file}",
            where=where,
            do=f'put it back, or say where it is: load(..., source="new/place/{Path(chosen).name}")',
        )
    if recipe.sha256 is not None and hash_of(file) != recipe.sha256:
        warnings.warn(f"{file} has changed since the model in {where} was merged", stacklevel=4)

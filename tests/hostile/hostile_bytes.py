"""Good files with a few bytes changed, for every reader: each is read, or refused with an error of ours."""

from __future__ import annotations

import gzip
import io
import json
import random
import signal
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hostile_onnx
import hostile_ours as ours
import numpy as np
import torch
from hostile_run import run_forked

from intertwine.errors import IntertwineError

_SECONDS = 20  # for one file
_BATCH = 50  # files for one fork
_TOKENS = (
    b"nan",
    b".inf",
    b"1e400",
    b"-1",
    b"9" * 5000,
    b"[]",
    b"{}",
    b"null",
    b"!!int x",
    b"&a [*a]",
    b"*a",
    b"2024-13-45",
    b"0b_",
    b'"\\u001b"',
    b"\xff\xfe",
    b"[" * 3000,
    b"true",
    b"''",
    b"~",
    b"1:60",
    b"\x00",
    b"NaN",
    b"-Infinity",
)


@dataclass(frozen=True)
class Reader:
    """What reads a file, the end of its name, and the bytes of a good one."""

    read: Callable[[Path], Any]
    name: str
    seed: Callable[[], bytes]
    text: bool = False


def _state() -> dict[str, torch.Tensor]:
    return {"0.weight": torch.arange(12.0).view(4, 3), "0.bias": torch.zeros(4)}


def _torch_file(modern: bool) -> bytes:
    out = io.BytesIO()
    torch.save({"state_dict": _state(), "epoch": 3}, out, _use_new_zipfile_serialization=modern)
    return out.getvalue()


def _safetensors() -> bytes:
    from safetensors.torch import save

    return save(_state())


def _npz(save: Callable[..., None]) -> bytes:
    out = io.BytesIO()
    save(out, images=np.zeros((3, 1, 4, 4), np.float32), labels=np.arange(3))
    return out.getvalue()


def _image(kind: str) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    pixels = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def _parquet() -> bytes:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    out = io.BytesIO()
    rows = [{"bytes": _image("PNG"), "path": "a"}] * 3
    parquet.write_table(arrow.table({"image": rows, "label": [0, 1, 2]}), out)
    return out.getvalue()


def _idx() -> bytes:
    return struct.pack(">HBB3I", 0, 8, 3, 2, 8, 8) + bytes(128)


def _recipe() -> bytes:
    from intertwine.training.recipe import recipe_folder

    return (recipe_folder() / "fast.yml").read_bytes()


def _sweep() -> bytes:
    return (
        b"data: digits\ntrain: {models: [digits-vgg, mlp], seeds: 0-3, recipe: digits}\n"
        b"compare: {measures: [cka], pairs: same, inputs: 500, shards: 2}\nmerge: {betas: [0.1, 0.2]}\n"
        b"stitch: {kinds: [full, group], epochs: 2}\nalign: {by: activations, points: 7}\n"
    )


def _coverage() -> bytes:
    from dataclasses import asdict

    from intertwine.surveying.surveys import Row

    return json.dumps([asdict(Row("zoo:mlp", "exact", 7, 0.0, 1.0, 1.0, 2, {"a": "b"}))]).encode()


def _read_weights(path: Path) -> None:
    from intertwine import zoo

    zoo.load_weights(torch.nn.Sequential(torch.nn.Linear(3, 4)), path)


def _read_npz(path: Path) -> None:
    from intertwine.data import load_data

    load_data(f"npz:{path}")


def _read_parquet(path: Path) -> None:
    from intertwine.data import load_data

    load_data(f"parquet:{path}")


def _read_idx(path: Path) -> None:
    from intertwine.data.files import read_idx

    read_idx(path)


def _read_image(path: Path) -> None:
    from intertwine.data.decode import decode

    decode([("it", path)], size=8)


def _read_recipe(path: Path) -> None:
    from intertwine.training import read_recipe

    read_recipe(path)


def _read_sweep(path: Path) -> None:
    from intertwine.sweeping import read_sweep

    read_sweep(path)


def _read_onnx(path: Path) -> None:
    from intertwine.zoo import resolve

    resolve(str(path))


def _program() -> bytes:
    out = io.BytesIO()
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    torch.export.save(torch.export.export(net, (torch.zeros(2, 3),)), out)
    return out.getvalue()


def _read_program(path: Path) -> None:
    from intertwine.zoo import resolve

    resolve(str(path), run_code=True)


def _read_coverage(path: Path) -> None:
    from intertwine.surveying import survey

    survey([], path)


READERS: dict[str, Reader] = {
    "safetensors": Reader(_read_weights, "m.safetensors", _safetensors),
    "pt": Reader(_read_weights, "m.pt", lambda: _torch_file(True)),
    "legacy pt": Reader(_read_weights, "m.pt", lambda: _torch_file(False)),
    "npz": Reader(_read_npz, "m.npz", lambda: _npz(np.savez)),
    "compressed npz": Reader(_read_npz, "m.npz", lambda: _npz(np.savez_compressed)),
    "parquet": Reader(_read_parquet, "m.parquet", _parquet),
    "idx": Reader(_read_idx, "m", _idx),
    "gzipped idx": Reader(_read_idx, "m.gz", lambda: gzip.compress(_idx(), mtime=0)),
    **{
        kind: Reader(_read_image, "m.png", lambda kind=kind: _image(kind))
        for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
    },
    "recipe": Reader(_read_recipe, "m.yml", _recipe, text=True),
    "sweep": Reader(_read_sweep, "m.yml", _sweep, text=True),
    "coverage": Reader(_read_coverage, "m.json", _coverage, text=True),
    "element": Reader(ours.read_element, "m.safetensors", ours.element),
    "agent": Reader(ours.read_agent, "seed0-step8.safetensors", ours.agent),
    "state": Reader(ours.read_state, "state.safetensors", ours.state),
    "plane": Reader(ours.read_plane, "m.safetensors", ours.plane),
    "merged": Reader(ours.read_merged, "recipe.json", ours.merged, text=True),
    "page": Reader(ours.read_page, "m.html", ours.page, text=True),
    "result": Reader(ours.read_swept, "m.json", ours.result, text=True),
    "onnx": Reader(_read_onnx, "m.onnx", hostile_onnx.good),
    "pt2": Reader(_read_program, "m.pt2", _program),
    "tokenizer": Reader(ours.read_tokenizer, "m.json", ours.tokenizer, text=True),
}


def mutate(blob: bytes, chance: random.Random, text: bool) -> bytes:
    """A few changes: bits, bytes, numbers at the edge, pieces left out, doubled, cut off; words, in text."""
    changed = bytearray(blob)
    for _ in range(chance.choice((1, 1, 2, 4))):
        size = len(changed)
        if not size:
            break
        at, length = chance.randrange(size), chance.choice((1, 2, 4, 8, 40))
        kind = chance.randrange(9 if text else 7)
        if kind == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at] = chance.randrange(256)
        elif kind == 2:
            edge = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            changed[at : at + length] = bytes([edge]) * length
        elif kind == 3:
            del changed[at : at + length]
        elif kind == 4:
            changed[at:at] = changed[at : at + length]
        elif kind == 5:
            del changed[at:]
        elif kind == 6:
            other = chance.randrange(size)
            changed[at : at + length] = changed[other : other + length]
        else:  # a word becomes another
            start = at
            while start > 0 and chr(changed[start - 1]).isalnum():
                start -= 1
            end = at
            while end < size and chr(changed[end]).isalnum():
                end += 1
            changed[start:end] = chance.choice(_TOKENS)
    return bytes(changed)


def fuzz(name: str, count: int, seed: int, folder: Path) -> list[str]:
    """Read `count` mutations of a good file; what was wrong, with the number of the mutation."""
    reader = READERS[name]
    good = reader.seed()
    (folder / "fuzz").mkdir(exist_ok=True)
    path, place = folder / "fuzz" / reader.name, folder / "fuzz" / "number"
    path.write_bytes(good)
    reader.read(path)  # the good one is read
    found: list[str] = []
    first = 0
    while first < count:
        last = min(first + _BATCH, count)
        work = partial(_read_all, reader, good, range(first, last), seed, path, place)
        outcome = run_forked(work, folder, seconds=_SECONDS * _BATCH)
        if outcome.code == 0:
            found += [
                line.partition(" ")[2] for line in outcome.out.splitlines() if line.startswith("wrong ")
            ]
            first = last
        else:  # this one ended the process
            number = int(place.read_text())
            found.append(f"{name} {seed}/{number}: ended by {outcome.code} {outcome.err[-300:]}")
            first = number + 1
    return found


def _read_all(reader: Reader, good: bytes, numbers: range, seed: int, path: Path, place: Path) -> int:
    for number in numbers:
        place.write_text(str(number))
        path.write_bytes(mutate(good, random.Random(f"{seed}/{number}"), reader.text))
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)  # ends the process: what hangs may swallow exceptions
        try:
            reader.read(path)
        except IntertwineError:
            pass
        except BaseException as error:
            print(f"wrong {path.name} {seed}/{number}: {type(error).__name__}: {error!s:.200}")
        signal.setitimer(signal.ITIMER_PROF, 0)
    return 0

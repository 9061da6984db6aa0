"""Data that something is wrong with, as DATA strings; their files are made once in a folder."""

from __future__ import annotations

import gzip
import io
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np


def data_specs(folder: Path) -> list[str]:
    """DATA strings of malformed data; makes their files."""
    return [*_npz(folder), *_parquet(folder), *_idx(folder), *_images(folder)]


def _npz(folder: Path) -> list[str]:
    x, y = np.zeros((4, 1, 8, 8), np.float32), np.arange(4)
    arrays: dict[str, tuple[Any, Any]] = {
        "labels-huge": (x, np.array([0, 1, 2, 10**12])),
        "labels-uint64": (x, np.full(4, 2**64 - 1, np.uint64)),
        "labels-text": (x, np.array(list("abcd"))),
        "labels-struct": (x, np.zeros(4, [("a", int)])),
        "labels-negative": (x, -y),
        "labels-float": (x, y / 2),
        "labels-short": (x, y[:2]),
        "labels-2d": (x, y[None]),
        "labels-dates": (x, y.astype("datetime64[s]")),
        "labels-none": (x, np.array(5)),
        "labels-bool": (x, y > 1),
        "overflow": (np.full((4, 1, 8, 8), 1e300), y),
        "nan": (np.full_like(x, np.nan), y),
        "inf": (np.full_like(x, np.inf), y),
        "complex": (x.astype(complex), y),
        "int": (x.astype(int), y),
        "text": (x.astype(str), y),
        "empty": (x[:0], y[:0]),
        "flat": (np.zeros(4), y),
        "five": (np.zeros((4, 1, 2, 2, 2)), y),
        "no-pixels": (np.zeros((4, 1, 0, 8)), y),
        "scalar": (np.array(3.0), y),
        "longdouble-inf": (np.full((4, 1, 8, 8), np.longdouble("1e4000")), y),
    }
    for name, (images, labels) in arrays.items():
        np.savez(folder / f"{name}.npz", images=images, labels=labels)
    np.savez(folder / "names.npz", a=x, b=y)
    np.savez(folder / "objects.npz", images=np.array([{}], dtype=object), labels=y)
    np.save(folder / "renamed.npy", x)
    (folder / "renamed.npz").write_bytes((folder / "renamed.npy").read_bytes())
    for name, change in {"encrypted": _encrypted, "method": _unknown_method}.items():
        (folder / f"{name}.npz").write_bytes(change((folder / "int.npz").read_bytes()))
    member = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
    for name, header in {
        "huge-shape": "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000), }",
        "negative-shape": "{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 2), }",
        "long-shape": f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'9' * 40},), }}",
        "bad-header": "{'descr': 'nope', 'shape': 3}",
        "deep-header": "(" * 110,
        "code-header": "__import__('os')",
    }.items():
        with zipfile.ZipFile(folder / f"{name}.npz", "w") as archive:
            archive.writestr("images.npy", member + header.ljust(118).encode()[:118] + bytes(64))
            archive.writestr("labels.npy", member + b" " * 118)
    with zipfile.ZipFile(folder / "not-npy.npz", "w") as archive:
        archive.writestr("images", b"hello")
        archive.writestr("labels", b"hello")
    (folder / "zlib.npz").write_bytes(_bad_zlib(x, y))
    (folder / "text-file.npz").write_text("hello")
    extra = [
        "names",
        "objects",
        "renamed",
        "encrypted",
        "method",
        "huge-shape",
        "negative-shape",
        "long-shape",
        "bad-header",
        "deep-header",
        "code-header",
        "not-npy",
        "zlib",
        "text-file",
    ]
    return [f"npz:{folder / name}.npz" for name in [*arrays, *extra]]


def _encrypted(blob: bytes) -> bytes:
    return _patch_flags(blob, 6, 8, 1)


def _unknown_method(blob: bytes) -> bytes:
    return _patch_flags(blob, 8, 10, 77)


def _patch_flags(blob: bytes, local: int, central: int, value: int) -> bytes:
    """Every header of the archive with one field changed, in both places where it stands."""
    changed = bytearray(blob)
    for magic, offset in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        at = blob.find(magic)
        while at >= 0:
            changed[at + offset] = value
            at = blob.find(magic, at + 4)
    return bytes(changed)


def _bad_zlib(x: np.ndarray, y: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, images=x, labels=y)
    blob = bytearray(out.getvalue())
    blob[60:80] = bytes([255]) * 20
    return bytes(blob)


def _parquet(folder: Path) -> list[str]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    png = _png(np.zeros((8, 8), np.uint8))
    rows = [{"bytes": png, "path": "a"}] * 3
    tables: dict[str, dict[str, Any]] = {
        "strings": {"image": rows, "label": ["a", "b", "c"]},
        "ragged": {"image": rows, "label": [[1], [1, 2], []]},
        "no-bytes": {"image": [{"path": "a"}] * 3, "label": [0, 1, 2]},
        "floats": {"image": rows, "label": [0.5] * 3},
        "missing": {"image": rows, "label": [0, None, 1]},
        "null-bytes": {"image": [{"bytes": None}] * 3, "label": [0, 1, 2]},
        "junk": {"image": [{"bytes": b"junk"}] * 3, "label": [0, 1, 2]},
        "numbers": {"image": [1, 2, 3], "label": [0, 1, 2]},
        "columns": {"a": [1], "b": [2]},
        "none": {"image": [], "label": []},
        "texts": {"image": ["a"] * 3, "label": [0, 1, 2]},
        "negative": {"image": rows, "label": [-1, 0, 1]},
        "large": {"image": rows, "label": [0, 1, 10**12]},
    }
    for name, columns in tables.items():
        parquet.write_table(arrow.table(columns), folder / f"{name}.parquet")
    (folder / "text-file.parquet").write_text("hello")
    (folder / "magic.parquet").write_bytes(b"PAR1" + bytes(20) + b"PAR1")
    return [f"parquet:{folder / name}.parquet" for name in (*tables, "text-file", "magic")]


def _idx(folder: Path) -> list[str]:
    good = struct.pack(">HBB3I", 0, 8, 3, 2, 8, 8) + bytes(128)
    images = {
        "idx-huge": struct.pack(">HBB3I", 0, 8, 3, *([2**32 - 1] * 3)),
        "idx-cut": good[:-5],
        "idx-empty": b"",
        "idx-floats": struct.pack(">HBB3I", 0, 13, 3, 2, 8, 8) + bytes(512),
        "idx-flat": struct.pack(">HBBI", 0, 8, 1, 2) + bytes(2),
        "idx-zero": struct.pack(">HBB3I", 0, 8, 3, 0, 8, 8),
        "idx-no-gzip": good,
        "idx-bomb": struct.pack(">HBB3I", 0, 8, 3, 2**20, 2**15, 8) + bytes(2**20),
    }
    for name, content in images.items():
        (folder / name).mkdir()
        packed = content if name == "idx-no-gzip" else gzip.compress(content)
        (folder / name / "t10k-images-idx3-ubyte.gz").write_bytes(packed)
        labels = gzip.compress(struct.pack(">HBBI", 0, 8, 1, 2) + b"\0\1")
        (folder / name / "t10k-labels-idx1-ubyte.gz").write_bytes(labels)
    return [f"fashion-mnist:{folder / name}" for name in images]


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def grey_png(side: int) -> bytes:
    """A black picture."""
    return _png(np.zeros((side, side), np.uint8))


def _images(folder: Path) -> list[str]:
    good = _png(np.zeros((8, 8), np.uint8))
    wide = bytearray(good)
    wide[16:24] = struct.pack(">II", 2**31 - 1, 2**31 - 1)
    large = bytearray(good)
    large[16:24] = struct.pack(">II", 60000, 60000)
    files: dict[str, bytes] = {
        "png-cut": good[:40],
        "png-text": b"hello",
        "png-void": b"",
        "png-wide": bytes(wide),
        "png-large": bytes(large),
        "png-postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n",
        "png-signature": good[:8],
    }
    for name, content in files.items():
        (folder / name / "cat").mkdir(parents=True)
        (folder / name / "cat" / "1.png").write_bytes(content)
    (folder / "png-pipe" / "cat").mkdir(parents=True)
    os.mkfifo(folder / "png-pipe" / "cat" / "1.png")
    (folder / "png-none" / "cat").mkdir(parents=True)
    (folder / "png-sizes" / "cat").mkdir(parents=True)
    for side in (8, 9):
        (folder / "png-sizes" / "cat" / f"{side}.png").write_bytes(_png(np.zeros((side, side), np.uint8)))
    return [f"imagefolder:{folder / name}" for name in (*files, "png-pipe", "png-none", "png-sizes")]

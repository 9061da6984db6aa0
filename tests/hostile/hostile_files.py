"""Files that something is wrong with, by what they pretend to be; made once in a folder."""

from __future__ import annotations

import gzip
import io
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

FACTORIES = """
import sys, torch
from torch import nn
def good(): return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(2, 3)
def leaves(): sys.exit(0)
def leaves_quietly(): raise SystemExit
def fails(): raise RuntimeError("\\x1b[2J no")
class Odd(BaseException): pass
def odd(): raise Odd("odd")
def deep(): return deep()
def nothing(): return None
def empty(): return ()
def number(): return good()[0], 5
def many(): return good()[0], 1, 2, 3
def text(): return good()[0], "abc"
def bad_kwargs(): return good()[0], torch.randn(2, 3), {1: 2}
def meta():
    with torch.device("meta"): return good()
def meta_example(): return good()[0], torch.randn(2, 3, device="meta")
def lazy(): return nn.LazyLinear(3), torch.randn(2, 3)
def nan():
    net, x = good()
    net[0].weight.data[0, 0] = float("nan")
    return net, x
def no_input(): return good()[0]
def wrong_input(): return good()[0], torch.randn(2, 7)
def needs(x): return good()
class Exits(nn.Module):
    def forward(self, x): sys.exit(0)
def exits_later(): return Exits(), torch.randn(2, 3)
class Raises(nn.Module):
    def forward(self, x): raise KeyError("\\x1b[31m")
def raises_later(): return Raises(), torch.randn(2, 3)
class Sums(nn.Module):
    def forward(self, x): return x.sum().item()
def no_tensor(): return Sums(), torch.randn(2, 3)
class Empty(nn.Module):
    def forward(self, x): return x
def no_weights(): return Empty(), torch.randn(2, 3)
value = 3
"""
PYTHON = {
    "exits.py": "import sys; sys.exit(0)",
    "broken.py": "def f(:\n",
    "raises.py": "raise ValueError('\x1b[2J')",
    "binary.py": "\x7fELF\x00\x00",
    "imports.py": "import no_such_module_anywhere",
    "endless.py": "def f(): return f()\nf()",
}
YAML = {
    "empty.yml": "", "date.yml": "epochs: 2024-13-45\nbatch: 1", "binary.yml": "epochs: 0b_\nbatch: 1",
    "tag.yml": "epochs: !!int abc\nbatch: 1", "float-tag.yml": "epochs: 1\nbatch: !!float x",
    "deep.yml": "epochs: " + "[" * 20000, "deep-flow.yml": "epochs: " + "{a: " * 3000 + "1" + "}" * 3000,
    "laughs.yml": "a: &a [1,1]\n" + "".join(f"b{i}: &b{i} [*a,*a]\n" for i in range(50)),
    "itself.yml": "&a epochs: *a", "list.yml": "[1, 2]", "scalar.yml": "7", "tab.yml": "epochs:\t1\n\tbatch: 2",
    "code.yml": "epochs: !!python/object/apply:os.system ['true']\nbatch: 1",
    "digits.yml": f"epochs: {'9' * 5000}\nbatch: 1", "huge.yml": "epochs: 1e400\nbatch: 1",
    "nan.yml": "epochs: 1\nbatch: 8\noptimizer: {learning_rate: .nan}",
    "text-nan.yml": "epochs: 1\nbatch: 8\noptimizer: {learning_rate: 'nan'}",
    "inf.yml": "epochs: 1\nbatch: 8\noptimizer: {weight_decay: .inf}",
    "momentum.yml": "epochs: 1\nbatch: 8\noptimizer: {momentum: 5}",
    "drops.yml": "epochs: 9\nbatch: 8\nschedule: {kind: steps, drops: [-5]}",
    "factor.yml": "epochs: 9\nbatch: 8\nschedule: {kind: steps, drops: [5], factor: -1}",
    "normalize.yml": "epochs: 1\nbatch: 8\nnormalize: nope", "epochs.yml": "epochs: -3\nbatch: 8",
    "batch.yml": "epochs: 1\nbatch: 99999999999999999999", "keys.yml": "epochs: 1\nepochs: 2\nbatch: 1",
    "null.yml": "epochs: null\nbatch: ~", "bool.yml": "epochs: yes\nbatch: on", "word.yml": "epochs: 1\nbatch: many",
    "unknown.yml": "epochs: 1\nbatch: 1\n\"\\e[31m\": 2", "translate.yml": "epochs: 1\nbatch: 8\naugment: {translate: 99999999}",
    "smooth.yml": "epochs: 1\nbatch: 8\nlabel_smoothing: 2", "checkpoints.yml": "epochs: 1\nbatch: 8\ncheckpoints: [-1]",
    "utf16.yml": "\ufeffepochs: 1\x00batch: 2", "anchor.yml": "epochs: *nobody\nbatch: 1", "stream.yml": "a: 1\n---\nb: 2",
}  # fmt: skip
_NETS = "train: {models: [mlp], seeds: 0}"
SWEEPS = {
    "betas-nan.yml": f"data: digits\n{_NETS}\nmerge: {{betas: [.nan]}}",
    "betas-two.yml": f"data: digits\n{_NETS}\nmerge: {{betas: [2]}}",
    "betas-none.yml": f"data: digits\n{_NETS}\nmerge: {{betas: []}}",
    "method.yml": f"data: digits\n{_NETS}\nmerge: {{method: nope}}",
    "normalize-sweep.yml": f"data: digits\nnormalize: nope\n{_NETS}",
    "kinds.yml": f"data: digits\n{_NETS}\nstitch: {{kinds: [rank:nan]}}",
    "seeds.yml": "data: digits\ntrain: {models: [mlp], seeds: 0-99999999999999}",
    "seeds-digits.yml": f"data: digits\ntrain: {{models: [mlp], seeds: '{'9' * 5000}'}}",
    "seeds-negative.yml": "data: digits\ntrain: {models: [mlp], seeds: -1}",
    "models.yml": "data: digits\ntrain: {models: []}",
    "inputs.yml": f"data: digits\n{_NETS}\ncompare: {{inputs: -1}}",
    "measures.yml": f"data: digits\n{_NETS}\ncompare: {{measures: [nope]}}",
    "points.yml": f"data: digits\n{_NETS}\nalign: {{points: 99999999999}}",
    "stitch-epochs.yml": f"data: digits\n{_NETS}\nstitch: {{epochs: -2}}",
    "classes.yml": "data: digits\ntrain: {models: [mlp], classes: -1}",
    "limit.yml": "data: digits\ntrain: {models: [mlp], limit: 0}",
    "recipe.yml": "data: digits\ntrain: {models: [mlp], recipe: nan.yml}",
    "recipe-folder.yml": "data: digits\ntrain: {models: [mlp], recipe: .}",
    "recipe-nul.yml": 'data: digits\ntrain: {models: [mlp], recipe: "a\\0.yml"}',
}


def make_files(folder: Path) -> dict[str, list[Path]]:
    """Everything, by kind: python, weights, data (with its prefix in `data_specs`), recipe, sweep, path."""
    folder.mkdir(exist_ok=True)
    for name, text in {**PYTHON, **YAML, **SWEEPS}.items():
        (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    (folder / "net.py").write_text(FACTORIES)
    os.mkfifo(folder / "pipe")
    (folder / "a folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    paths = ["pipe", "a folder", "loop", "dangling", "missing", "~nobody-here/x", "n" * 300, "a\0b", "\udcff"]
    return {
        "python": [folder / name for name in PYTHON],
        "recipe": [folder / name for name in YAML],
        "sweep": [folder / name for name in (*SWEEPS, *YAML)],
        "weights": _weights(folder),
        "path": [folder / name if not name.startswith("~") else Path(name) for name in paths],
    }


def _weights(folder: Path) -> list[Path]:
    from safetensors.torch import save

    state = {"0.weight": torch.randn(4, 3), "0.bias": torch.zeros(4)}
    itself: dict[str, Any] = {}
    itself["state_dict"] = itself
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    pickles: dict[str, Any] = {
        "meta": {"0.weight": torch.empty(4, 3, device="meta")},
        "nested": {"0.weight": nested},
        "sparse": {"0.weight": torch.eye(4).to_sparse()},
        "csr": {"0.weight": torch.eye(4).to_sparse_csr()},
        "quantized": {"0.weight": torch.quantize_per_tensor(torch.zeros(4, 3), 0.1, 0, torch.qint8)},
        "complex": {"0.weight": torch.zeros(4, 3, dtype=torch.complex64)},
        "stretched": {"0.weight": torch.zeros(1).expand(10**6, 10**6)},
        "itself": itself, "list": [1, 2], "number": 3, "digits": {10**5000: torch.zeros(1)},
        "keys": {(1, 2): torch.zeros(1)}, "none": None, "empty": {},
    }  # fmt: skip
    found = []
    for name, content in pickles.items():
        found.append(folder / f"{name}.pt")
        torch.save(content, found[-1])
    found.append(folder / "legacy.pt")
    torch.save(state, found[-1], _use_new_zipfile_serialization=False)
    raw = {
        "zeros.pt": bytes(4096), "text.pt": b"hello", "void.pt": b"", "void.safetensors": b"",
        "pickle.pt": b"\x80\x04cos\nsystem\n(S'true'\ntR.", "protocol.pt": b"\x80\xff.", "stop.pt": b"\x80\x02.",
        "header.safetensors": struct.pack("<Q", 2**63) + b"{}", "short.safetensors": struct.pack("<Q", 900) + b"{}",
        "json.safetensors": struct.pack("<Q", 2) + b"[]", "deep.safetensors": struct.pack("<Q", 9000) + b"[" * 9000,
        "cut.safetensors": save(state)[:-7], "more.safetensors": save(state) + b"x",
        "names.safetensors": save({"\x1b[31m": torch.zeros(1)}), "nan.safetensors": save({"0.weight": torch.full((4, 3), float("nan"))}),
        "legacy-cut.pt": (folder / "legacy.pt").read_bytes()[:-9], "w.onnx": b"x",
    }  # fmt: skip
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", bytes(64 * 2**20))
    raw["bomb.pt"] = bomb.getvalue()
    for name, content in raw.items():
        found.append(folder / name)
        found[-1].write_bytes(content)
    return found


def data_specs(folder: Path) -> list[str]:
    """DATA strings of malformed data; makes their files."""
    return [*_npz(folder), *_parquet(folder), *_idx(folder), *_images(folder)]


def _npz(folder: Path) -> list[str]:
    x, y = np.zeros((4, 1, 8, 8), np.float32), np.arange(4)
    arrays: dict[str, tuple[Any, Any]] = {
        "labels-huge": (x, np.array([0, 1, 2, 10**12])), "labels-uint64": (x, np.full(4, 2**64 - 1, np.uint64)),
        "labels-text": (x, np.array(list("abcd"))), "labels-struct": (x, np.zeros(4, [("a", int)])),
        "labels-negative": (x, -y), "labels-float": (x, y / 2), "labels-short": (x, y[:2]), "labels-2d": (x, y[None]),
        "labels-dates": (x, y.astype("datetime64[s]")), "labels-none": (x, np.array(5)), "labels-bool": (x, y > 1),
        "overflow": (np.full((4, 1, 8, 8), 1e300), y), "nan": (np.full_like(x, np.nan), y), "inf": (np.full_like(x, np.inf), y),
        "complex": (x.astype(complex), y), "int": (x.astype(int), y), "text": (x.astype(str), y), "empty": (x[:0], y[:0]),
        "flat": (np.zeros(4), y), "five": (np.zeros((4, 1, 2, 2, 2)), y), "no-pixels": (np.zeros((4, 1, 0, 8)), y),
        "scalar": (np.array(3.0), y), "longdouble-inf": (np.full((4, 1, 8, 8), np.longdouble("1e4000")), y),
    }  # fmt: skip
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
        "bad-header": "{'descr': 'nope', 'shape': 3}", "deep-header": "(" * 110, "code-header": "__import__('os')",
    }.items():  # fmt: skip
        with zipfile.ZipFile(folder / f"{name}.npz", "w") as archive:
            archive.writestr("images.npy", member + header.ljust(118).encode()[:118] + bytes(64))
            archive.writestr("labels.npy", member + b" " * 118)
    with zipfile.ZipFile(folder / "not-npy.npz", "w") as archive:
        archive.writestr("images", b"hello")
        archive.writestr("labels", b"hello")
    (folder / "zlib.npz").write_bytes(_bad_zlib(x, y))
    (folder / "text-file.npz").write_text("hello")
    extra = [
        "names", "objects", "renamed", "encrypted", "method", "huge-shape", "negative-shape", "long-shape",
        "bad-header", "deep-header", "code-header", "not-npy", "zlib", "text-file",
    ]  # fmt: skip
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
        "strings": {"image": rows, "label": ["a", "b", "c"]}, "ragged": {"image": rows, "label": [[1], [1, 2], []]},
        "no-bytes": {"image": [{"path": "a"}] * 3, "label": [0, 1, 2]}, "floats": {"image": rows, "label": [0.5] * 3},
        "missing": {"image": rows, "label": [0, None, 1]}, "null-bytes": {"image": [{"bytes": None}] * 3, "label": [0, 1, 2]},
        "junk": {"image": [{"bytes": b"junk"}] * 3, "label": [0, 1, 2]}, "numbers": {"image": [1, 2, 3], "label": [0, 1, 2]},
        "columns": {"a": [1], "b": [2]}, "none": {"image": [], "label": []}, "texts": {"image": ["a"] * 3, "label": [0, 1, 2]},
        "negative": {"image": rows, "label": [-1, 0, 1]}, "large": {"image": rows, "label": [0, 1, 10**12]},
    }  # fmt: skip
    for name, columns in tables.items():
        parquet.write_table(arrow.table(columns), folder / f"{name}.parquet")
    (folder / "text-file.parquet").write_text("hello")
    (folder / "magic.parquet").write_bytes(b"PAR1" + bytes(20) + b"PAR1")
    return [f"parquet:{folder / name}.parquet" for name in (*tables, "text-file", "magic")]


def _idx(folder: Path) -> list[str]:
    good = struct.pack(">HBB3I", 0, 8, 3, 2, 8, 8) + bytes(128)
    images = {
        "idx-huge": struct.pack(">HBB3I", 0, 8, 3, *([2**32 - 1] * 3)), "idx-cut": good[:-5], "idx-empty": b"",
        "idx-floats": struct.pack(">HBB3I", 0, 13, 3, 2, 8, 8) + bytes(512), "idx-flat": struct.pack(">HBBI", 0, 8, 1, 2) + bytes(2),
        "idx-zero": struct.pack(">HBB3I", 0, 8, 3, 0, 8, 8), "idx-no-gzip": good,
        "idx-bomb": struct.pack(">HBB3I", 0, 8, 3, 2**20, 2**15, 8) + bytes(2**20),
    }  # fmt: skip
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


def _images(folder: Path) -> list[str]:
    good = _png(np.zeros((8, 8), np.uint8))
    wide = bytearray(good)
    wide[16:24] = struct.pack(">II", 2**31 - 1, 2**31 - 1)
    large = bytearray(good)
    large[16:24] = struct.pack(">II", 60000, 60000)
    files: dict[str, bytes] = {
        "png-cut": good[:40], "png-text": b"hello", "png-void": b"", "png-wide": bytes(wide), "png-large": bytes(large),
        "png-postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", "png-signature": good[:8],
    }  # fmt: skip
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

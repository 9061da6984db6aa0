"""Files that something is wrong with, by what they pretend to be; made once in a folder."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

FACTORIES = """
import sys, torch
from torch import nn
def good(): return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(2, 3)
def pictures(): return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten()), torch.randn(2, 3, 8, 8)
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
class Untrained(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 4, 3), nn.Linear(4, 10)
    def forward(self, x):
        if self.training: raise ValueError("\\x1b[31m")
        return self.b(torch.relu(self.a(x)).mean((2, 3)))
def untrained(): return Untrained(), torch.randn(2, 1, 8, 8)
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
    "empty.yml": "",
    "date.yml": "epochs: 2024-13-45\nbatch: 1",
    "binary.yml": "epochs: 0b_\nbatch: 1",
    "tag.yml": "epochs: !!int abc\nbatch: 1",
    "float-tag.yml": "epochs: 1\nbatch: !!float x",
    "deep.yml": "epochs: " + "[" * 20000,
    "deep-flow.yml": "epochs: " + "{a: " * 3000 + "1" + "}" * 3000,
    "laughs.yml": "a: &a [1,1]\n" + "".join(f"b{i}: &b{i} [*a,*a]\n" for i in range(50)),
    "itself.yml": "&a epochs: *a",
    "list.yml": "[1, 2]",
    "scalar.yml": "7",
    "tab.yml": "epochs:\t1\n\tbatch: 2",
    "code.yml": "epochs: !!python/object/apply:os.system ['true']\nbatch: 1",
    "digits.yml": f"epochs: {'9' * 5000}\nbatch: 1",
    "huge.yml": "epochs: 1e400\nbatch: 1",
    "nan.yml": "epochs: 1\nbatch: 8\noptimizer: {learning_rate: .nan}",
    "text-nan.yml": "epochs: 1\nbatch: 8\noptimizer: {learning_rate: 'nan'}",
    "inf.yml": "epochs: 1\nbatch: 8\noptimizer: {weight_decay: .inf}",
    "momentum.yml": "epochs: 1\nbatch: 8\noptimizer: {momentum: 5}",
    "drops.yml": "epochs: 9\nbatch: 8\nschedule: {kind: steps, drops: [-5]}",
    "factor.yml": "epochs: 9\nbatch: 8\nschedule: {kind: steps, drops: [5], factor: -1}",
    "normalize.yml": "epochs: 1\nbatch: 8\nnormalize: nope",
    "epochs.yml": "epochs: -3\nbatch: 8",
    "batch.yml": "epochs: 1\nbatch: 99999999999999999999",
    "keys.yml": "epochs: 1\nepochs: 2\nbatch: 1",
    "null.yml": "epochs: null\nbatch: ~",
    "bool.yml": "epochs: yes\nbatch: on",
    "word.yml": "epochs: 1\nbatch: many",
    "unknown.yml": 'epochs: 1\nbatch: 1\n"\\e[31m": 2',
    "translate.yml": "epochs: 1\nbatch: 8\naugment: {translate: 99999999}",
    "smooth.yml": "epochs: 1\nbatch: 8\nlabel_smoothing: 2",
    "checkpoints.yml": "epochs: 1\nbatch: 8\ncheckpoints: [-1]",
    "utf16.yml": "\ufeffepochs: 1\x00batch: 2",
    "anchor.yml": "epochs: *nobody\nbatch: 1",
    "stream.yml": "a: 1\n---\nb: 2",
}
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


def ignoring_warnings(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch warns of some kinds of tensors when they are made."""

    def quiet(*args: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*args)

    return quiet


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


@ignoring_warnings
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
        "itself": itself,
        "list": [1, 2],
        "number": 3,
        "digits": {10**5000: torch.zeros(1)},
        "keys": {(1, 2): torch.zeros(1)},
        "none": None,
        "empty": {},
    }
    found = []
    for name, content in pickles.items():
        found.append(folder / f"{name}.pt")
        torch.save(content, found[-1])
    found.append(folder / "legacy.pt")
    torch.save(state, found[-1], _use_new_zipfile_serialization=False)
    raw = {
        "zeros.pt": bytes(4096),
        "text.pt": b"hello",
        "void.pt": b"",
        "void.safetensors": b"",
        "pickle.pt": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
        "protocol.pt": b"\x80\xff.",
        "stop.pt": b"\x80\x02.",
        "header.safetensors": struct.pack("<Q", 2**63) + b"{}",
        "short.safetensors": struct.pack("<Q", 900) + b"{}",
        "json.safetensors": struct.pack("<Q", 2) + b"[]",
        "deep.safetensors": struct.pack("<Q", 9000) + b"[" * 9000,
        "cut.safetensors": save(state)[:-7],
        "more.safetensors": save(state) + b"x",
        "names.safetensors": save({"\x1b[31m": torch.zeros(1)}),
        "nan.safetensors": save({"0.weight": torch.full((4, 3), float("nan"))}),
        "legacy-cut.pt": (folder / "legacy.pt").read_bytes()[:-9],
        "w.onnx": b"x",
    }
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", bytes(64 * 2**20))
    raw["bomb.pt"] = bomb.getvalue()
    for name, content in raw.items():
        found.append(folder / name)
        found[-1].write_bytes(content)
    return found

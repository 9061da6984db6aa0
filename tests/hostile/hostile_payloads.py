"""Files, folders and names that would run code if anything trusted them; each leaves a mark if it does.

A payload is a command line, or a call of a public function, that is given such a file. All of them run one
after the other in a fork; how each ends is the business of the other tables.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hostile_run import run_forked

Payload = tuple[str, list[str] | Callable[[], object]]
NET = """
import torch
from torch import nn
def good(): return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(2, 3)
"""
CONFIG = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 8,
    "n_embd": 4,
    "n_layer": 1,
}
LATE = ("joblib", "onnx", "timm", "diffusers", "peft", "sentencepiece")  # what a verb may import late


class Mark:
    """Unpickled, it makes a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.place),)


class Table:
    """Every payload; `ran` is where they leave their marks."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ran = folder, folder / "ran"
        self.ran.mkdir(parents=True)
        (folder / "net.py").write_text(NET)
        self.net, self.text = f"{folder}/net.py:good", folder / "a.txt"
        self.text.write_text("abc " * 200)

    def mark(self, name: str) -> Mark:
        return Mark(self.ran / name)

    def code(self, name: str) -> str:
        """Python that leaves the mark, wherever it is imported."""
        return f"import os\nos.path.isdir({str(self.ran / name)!r}) or os.mkdir({str(self.ran / name)!r})\n"

    def payloads(self) -> Iterator[Payload]:
        """A name and a command line or a call, for each."""
        yield from self._weights()
        yield from self._data()
        yield from self._texts()
        yield from self._ours()
        yield from self._pretrained()
        yield from self._programs()
        yield from self._names()

    def _weights(self) -> Iterator[Payload]:
        place = self.folder / "weights"
        place.mkdir()

        def read(name: str) -> Payload:
            return f"weights {name}", ["inspect", self.net, "--weights", str(place / name)]

        for suffix in (".pt", ".pth", ".bin", ".th", ".ckpt", ".pkl", ".joblib", ".safetensors", ""):
            name = f"raw{suffix}"
            (place / name).write_bytes(pickle.dumps(self.mark(name)))
            yield read(name)
        for protocol in range(5):
            name = f"protocol{protocol}.pt"
            torch.save({"a": self.mark(name)}, place / name, pickle_protocol=protocol)
            yield read(name)
        torch.save([self.mark("old.pt")], place / "old.pt", _use_new_zipfile_serialization=False)
        yield read("old.pt")
        with tarfile.open(place / "tar.pt", "w") as archive:
            for part in ("sys_info", "pickle", "storages", "tensors"):
                content = pickle.dumps(self.mark("tar.pt"))
                header = tarfile.TarInfo(part)
                header.size = len(content)
                archive.addfile(header, io.BytesIO(content))
        yield read("tar.pt")
        with zipfile.ZipFile(place / "zip.pt", "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(self.mark("zip.pt"), 2))
            archive.writestr("archive/version", "3\n")
        yield read("zip.pt")
        np.save(place / "object.npy", np.array([self.mark("object.npy")], dtype=object))
        yield read("object.npy")
        yield "plane", ["explore", self.net, "--plane", *[str(place / "raw.pt")] * 2, "--points", "2"]
        yield "base", ["combine", self.net, self.net, "--how", "ties", "--base", str(place / "raw.pt")]
        yield "aligned", ["align", self.net, self.net, "--weights-a", str(place / "raw.bin")]

    def _data(self) -> Iterator[Payload]:
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        place = self.folder / "data"
        place.mkdir()

        def read(spec: str, name: str) -> Payload:
            return f"data {name}", ["compare", self.net, self.net, "--data", spec]

        x, y = np.zeros((4, 3), np.float32), np.arange(4) % 2
        for name in ("images", "labels"):
            bad = np.array([self.mark(f"npz-{name}")] * 4, dtype=object)
            np.savez(place / f"{name}.npz", **{"images": x, "labels": y, name: bad})
            yield read(f"npz:{place / name}.npz", f"npz {name}")
        header = f"__import__('os').mkdir({str(self.ran / 'npy-header')!r})".ljust(250).encode()
        with zipfile.ZipFile(place / "header.npz", "w") as archive:
            archive.writestr("images.npy", b"\x93NUMPY\x01\x00\xfa\x00" + header)
            archive.writestr("labels.npy", b"\x93NUMPY\x01\x00\xfa\x00" + header)
        yield read(f"npz:{place}/header.npz", "npy header")
        (place / "pickle.npz").write_bytes(pickle.dumps(self.mark("pickle.npz")))
        yield read(f"npz:{place}/pickle.npz", "pickle.npz")
        notes = {key: pickle.dumps(self.mark(f"note {key}")) for key in ("pandas", "huggingface", "classes")}
        rows = arrow.table({"image": [b"x"] * 4, "label": [0, 1, 0, 1]})
        parquet.write_table(rows.replace_schema_metadata(notes), place / "notes.parquet")
        yield read(f"parquet:{place}/notes.parquet", "parquet metadata")
        blobs = arrow.table({"image": [pickle.dumps(self.mark("cell"))] * 4, "label": [0, 1, 0, 1]})
        parquet.write_table(blobs, place / "cells.parquet")
        yield read(f"parquet:{place}/cells.parquet", "parquet cells")
        (place / "images" / "a").mkdir(parents=True)
        script = f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n({self.ran}/eps) (w) file\n"
        (place / "images" / "a" / "1.png").write_text(script)
        yield read(f"imagefolder:{place}/images", "PostScript")
        for data, files in {
            "CIFAR10": ("cifar-10-batches-py/batches.meta", "cifar-10-batches-py/test_batch"),
            "SVHN": ("test_32x32.mat",), "DatasetFolder": ("a/1.pkl",), "FakeData": (),
        }.items():  # fmt: skip
            for file in files:
                (place / data / file).parent.mkdir(parents=True, exist_ok=True)
                (place / data / file).write_bytes(pickle.dumps(self.mark(data)))
            yield read(f"torchvision:{data}:{place / data}", data)

    def _texts(self) -> Iterator[Payload]:
        place = self.folder / "texts"
        place.mkdir()
        mark = str(self.ran / "yaml")
        for number, text in enumerate((
            f"epochs: !!python/object/apply:os.mkdir ['{mark}0']",
            f"!!python/object/new:os.mkdir ['{mark}1']",
            f"epochs: !!python/object/apply:builtins.exec [\"import os; os.mkdir('{mark}2')\"]",
            f"%TAG ! tag:yaml.org,2002:python/\n---\nepochs: !object/apply:os.mkdir ['{mark}3']",
            "optimizer: {name: os.system}\nepochs: 1\nbatch: 1",
        )):  # fmt: skip
            path = place / f"{number}.yml"
            path.write_text(text + "\n")
            recipe = [
                "--data",
                "digits",
                "--train-limit",
                "9",
                "-o",
                str(place / "run"),
                "--recipe",
                str(path),
            ]
            yield f"recipe {number}", ["train", "mlp", *recipe]
            yield f"sweep {number}", ["sweep", str(path), "-o", str(place / "out")]
        (place / "hubconf.py").write_text(self.code("sweep-hub"))
        (place / "hub.yml").write_text(
            f"data: digits\ntrain: {{models: ['hub:{place}:f'], seeds: 0, recipe: digits, limit: 9}}\n"
        )
        yield "sweep hub", ["sweep", str(place / "hub.yml"), "-o", str(place / "out"), "--jobs", "1"]
        (place / "page.html").write_bytes(pickle.dumps(self.mark("page")))
        yield "page", ["report", str(place / "page.html"), "-o", str(place / "r.html")]
        (place / "note.ipynb").write_text(json.dumps({"cells": [{"source": self.code("notebook")}]}))
        yield "notebook", ["report", str(place / "note.ipynb"), "-o", str(place / "r.html")]

    def _ours(self) -> Iterator[Payload]:
        import intertwine
        from intertwine import zoo
        from intertwine.merging import save_merged

        small = self.folder / "small"
        save_merged(zoo.build("mlp"), small, "zoo:mlp", {})
        recipe = json.loads((small / "recipe.json").read_text())
        (self.folder / "evil.py").write_text(self.code("evil.py") + NET)
        (self.folder / "hubconf.py").write_text(self.code("hubconf.py") + NET)
        for number, source in enumerate((
            f"{self.folder}/evil.py:good", f"hub:{self.folder}:good", f"{self.folder}/evil.pt2",
            "timm:hf-hub:evil/model", f"timm:local-dir:{self.folder}", f"hf:{self.folder}",
        )):  # fmt: skip
            place = self.folder / f"small{number}"
            save_merged(zoo.build("mlp"), place, "zoo:mlp", {})
            changed = recipe | {"source": source, "file": str(self.folder / "evil.py")}
            (place / "recipe.json").write_text(json.dumps(changed))
            yield f"load {source}", lambda place=place: intertwine.load(place)
        for name in ("recipe.json", "weights.safetensors"):
            place = self.folder / f"pickled-{name}"
            save_merged(zoo.build("mlp"), place, "zoo:mlp", {})
            (place / name).write_bytes(pickle.dumps(self.mark(f"small {name}")))
            yield f"load pickled {name}", lambda place=place: intertwine.load(place)
        run = self.folder / "run"
        run.mkdir()
        for name in ("state.safetensors", "state.pt", "model.safetensors", "metrics.jsonl", "run.json"):
            (run / name).write_bytes(pickle.dumps(self.mark(f"run {name}")))
        yield (
            "run",
            ["train", "mlp", "--data", "digits", "--train-limit", "9", "--recipe", "digits", "-o", str(run)],
        )
        rows = self.folder / "rows.json"
        rows.write_text(json.dumps([{"model": f"{self.folder}/evil.py:good", "status": "failed"}]))
        yield "coverage", ["coverage", "--library", "zoo", "--filter", "no-such-net", "-o", str(rows)]
        out = self.folder / "out"
        (out / "results" / ("0" * 20)).mkdir(parents=True)
        result = {"kind": "train", "params": {"model": f"{self.folder}/evil.py:good"}, "rows": []}
        (out / "results" / ("0" * 20) / "result.json").write_text(json.dumps(result))
        (out / "table.parquet").write_bytes(pickle.dumps(self.mark("table")))
        (out / "joblib").mkdir()
        (out / "joblib" / "output.pkl").write_bytes(pickle.dumps(self.mark("joblib")))
        (self.folder / "none.yml").write_text("data: digits\ntrain: {models: [no-such-net], seeds: 0}\n")
        yield "results", ["sweep", str(self.folder / "none.yml"), "-o", str(out), "--jobs", "1"]

    def _pretrained(self) -> Iterator[Payload]:
        place = self.folder / "pretrained"
        place.mkdir()
        configs: dict[str, dict[str, Any]] = {
            "auto_map": {"auto_map": {"AutoConfig": "evil.M", "AutoModelForCausalLM": "evil.M"}},
            "inside": {"text_config": {"auto_map": {"AutoModel": "evil.M"}}},
            "trusted": {"trust_remote_code": True, "auto_map": {"AutoModelForCausalLM": "evil--evil.M"}},
            "kind": {"model_type": "evil", "auto_map": {"AutoConfig": "evil.M"}},
            "kernels": {"_attn_implementation": "evil/kernel"},
            "pipeline": {"custom_pipelines": {"x": {"impl": "evil.M", "pt": ["M"]}}},
            "quantised": {"quantization_config": {"quant_method": "evil.M"}},
            "class": {"architectures": ["evil.M"]},
        }  # fmt: skip
        for name, fields in configs.items():
            self._folder(place / name, {"config.json": CONFIG | fields}, name)
            yield f"hf {name}", ["inspect", f"hf:{place / name}", "--no-proof"]
        files: dict[str, str] = {
            "pickled": "pytorch_model.bin", "adapter": "adapter_model.bin", "training": "training_args.bin",
            "optimizer": "optimizer.pt",
        }  # fmt: skip
        for name, file in files.items():
            self._folder(place / name, {"config.json": CONFIG}, name)
            (place / name / file).write_bytes(pickle.dumps(self.mark(f"hf {name}")))
            (place / name / "adapter_config.json").write_text(
                json.dumps({"auto_mapping": {"parent_library": "evil"}})
            )
            yield f"hf {name}", ["inspect", f"hf:{place / name}", "--no-proof"]
        tokenizers: dict[str, dict[str, Any]] = {
            "tokenizer": {"auto_map": {"AutoTokenizer": ["evil.M", "evil.M"]}, "tokenizer_class": "M"},
            "tokenizer-class": {"tokenizer_class": "evil.M"},
            "template": {"chat_template": "{{ ''.__class__.__mro__[1].__subclasses__() }}"},
        }
        for name, fields in tokenizers.items():
            self._folder(place / name, {"config.json": CONFIG, "tokenizer_config.json": fields}, name)
            (place / name / "tokenizer.model").write_bytes(pickle.dumps(self.mark(f"hf {name}")))
            look = [
                "compare",
                "zoo:nanogpt64",
                "zoo:nanogpt64",
                "--data",
                f"text:{self.text}",
                "--limit",
                "2",
            ]
            yield name, [*look, "--tokenizer", str(place / name)]

    def _folder(self, place: Path, files: dict[str, Any], name: str) -> None:
        place.mkdir()
        for file, content in files.items():
            (place / file).write_text(json.dumps(content))
        for module in ("evil.py", "__init__.py", "generate.py"):
            (place / module).write_text(self.code(f"hf {name}") + "class M: pass\n")

    def _programs(self) -> Iterator[Payload]:
        place = self.folder / "programs"
        place.mkdir()
        archives: dict[str, dict[str, bytes]] = {
            "plain.pt2": {"a/data.pkl": pickle.dumps(self.mark("plain.pt2"), 2), "a/version": b"3"},
            "constants.pt2": {
                "a/archive_format": b"pt2", "a/archive_version": b"0", "a/models/model.json": b"{}",
                "a/data/constants/x.pt": pickle.dumps(self.mark("constants.pt2")),
            },
            "old.pt2": {
                "version": b"1.1", "serialized_exported_program.json": b"{}",
                "serialized_state_dict.pt": pickle.dumps(self.mark("old.pt2")),
            },
        }  # fmt: skip
        for name, files in archives.items():
            with zipfile.ZipFile(place / name, "w") as archive:
                for file, content in files.items():
                    archive.writestr(file, content)
            yield name, ["inspect", str(place / name)]
        (place / "pickle.onnx").write_bytes(pickle.dumps(self.mark("pickle.onnx")))
        yield "pickle.onnx", ["inspect", str(place / "pickle.onnx")]
        with suppress(ModuleNotFoundError):
            from onnx import TensorProto, helper

            ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
            node = helper.make_node("PyOp", ["x"], ["y"], domain="ai.onnx.contrib", code=self.code("onnx"))
            graph = helper.make_graph([node], "g", ends[:1], ends[1:])
            (place / "op.onnx").write_bytes(helper.make_model(graph).SerializeToString())
            yield "op.onnx", ["inspect", str(place / "op.onnx")]
            yield from self.named_weights()

    def named_weights(self) -> Iterator[Payload]:
        """A graph with a weight whose name is code: torch writes names between quotes into what it runs."""
        from onnx import TensorProto, helper, numpy_helper

        numbers, x = np.ones((3, 4), np.float32), np.zeros((8, 3), np.float32)
        np.savez(self.folder / "rows.npz", images=x, labels=np.arange(8) % 2)
        stitch = f"stitch NET NET --at all --epochs 0 --data npz:{self.folder}/rows.npz"
        merge = f"merge NET --beta 0.1 --export torch -o {self.folder}/small"
        for verb, line in (("stitch", stitch), ("export", merge)):
            code = f"exec(bytes({list(self.code(f'weight {verb}').encode())}))"
            name = f'w", 0) or {code} or getattr(self, "w'
            weights = [numpy_helper.from_array(w, n) for n, w in ((name, numbers), ("v", numbers.T.copy()))]
            ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [2, 3]) for end in "xy"]
            steps = [("MatMul", ["x", name], "h"), ("Relu", ["h"], "r"), ("MatMul", ["r", "v"], "y")]
            nodes = [helper.make_node(op, given, [made]) for op, given, made in steps]
            graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
            path = self.folder / f"{verb}.onnx"
            path.write_bytes(model.SerializeToString())
            yield f"weight {verb}", [str(path) if word == "NET" else word for word in line.split()]

    def _names(self) -> Iterator[Payload]:
        for spec in (
            f"hub:{self.folder}:good", f"timm:local-dir:{self.folder}", "timm:hf-hub:evil/model",
            "torchvision:os.system", f"zoo:{self.folder}/evil", "zoo:../evil", "zoo:evil:good",
            f"diffusers:{self.folder}", f"hf:bert?auto_map={self.folder}/evil.M", f"hf:{self.folder}",
            "evil.good", f"{self.folder}/evil.py",
        ):  # fmt: skip
            yield f"name {spec.replace(str(self.folder), 'DIR')}", ["inspect", spec, "--no-proof"]
        for name in ("evil", "evil.good", f"{self.folder}/evil.py"):
            yield f"activation {Path(name).name}", ["activations", name]
            yield f"tokenizer {Path(name).name}", [
                "compare", "zoo:nanogpt64", "zoo:nanogpt64", "--data", f"text:{self.text}",
                "--tokenizer", name,
            ]  # fmt: skip
        # The folder that the commands stand in: what it holds is never imported.
        for module in ("sitecustomize", "usercustomize", *LATE):
            (self.folder / f"{module}.py").write_text(self.code(f"cwd {module}"))
        info = self.folder / "evil-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Name: evil\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            "[intertwine]\nevil = evil:good\n[console_scripts]\nintertwine = evil:good\n"
        )
        yield "entry points", ["doctor", "--json"]


def run_payloads(table: Table, every: int = 1) -> tuple[int, list[str]]:
    """How many payloads were tried, and which of them ran; with `every`, every so many of them."""
    from intertwine.cli import main

    cases = list(table.payloads())[::every]

    def work() -> int:
        for name, case in cases:
            print(f"trying {name}", file=sys.stderr, flush=True)
            with suppress(Exception):
                main(case) if isinstance(case, list) else case()
        return 0

    outcome = run_forked(work, table.folder, 600.0)
    marks = sorted(path.name for path in table.ran.iterdir())
    return len(cases), marks if outcome.code == 0 else [
        *marks,
        f"ended by {outcome.code}: {outcome.err[-300:]}",
    ]

"""Folders of Hugging Face, tokenizers and concepts that something is wrong with; made once in a folder.

A file that is run leaves `ran` behind, which no case may.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 40,
    "n_positions": 32,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_inner": 24,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CODE = "from pathlib import Path\nPath(__file__).parent.joinpath('ran').touch()\nclass M: pass\n"
_SHARD = "model-00001-of-00001.safetensors"
# Changed fields of config.json.
FIELDS: dict[str, dict[str, Any]] = {
    "code": {"auto_map": {"AutoModelForCausalLM": "code.M", "AutoConfig": "code.M"}},
    "code-inside": {"text_config": {"auto_map": {"AutoModel": "code.M"}}},
    "code-list": {"auto_map": ["code.M"]},
    "code-number": {"auto_map": 7},
    "kernels": {"_attn_implementation": "some/kernels"},
    "layers": {"n_layer": 10**9},
    "layers-few": {"n_layer": 9_000},
    "labels": {"num_labels": 10**9},
    "vocabulary": {"vocab_size": 10**13},
    "width": {"n_embd": 10**8},
    "heads": {"n_head": 0},
    "negative": {"n_embd": -4},
    "text": {"n_layer": "2"},
    "none": {"n_layer": None},
    "kind": {"model_type": ["gpt2"]},
    "class": {"architectures": ["pipeline", None, {"a": 1}]},
    "quantised": {"quantization_config": [1]},
}
# Files beside config.json, as text.
FILES: dict[str, dict[str, str]] = {
    "index-up": {"model.safetensors.index.json": json.dumps({"weight_map": {"a": f"../good/{_SHARD}"}})},
    "index-root": {"model.safetensors.index.json": json.dumps({"weight_map": {"a": "/etc/passwd"}})},
    "index-none": {"model.safetensors.index.json": json.dumps({"weight_map": {"a": "gone.safetensors"}})},
    "index-code": {"model.safetensors.index.json": json.dumps({"weight_map": {"a": "code.py"}})},
    "index-numbers": {"model.safetensors.index.json": json.dumps({"weight_map": {"a": 5}})},
    "index-list": {"model.safetensors.index.json": "[]"},
    "index-cut": {"model.safetensors.index.json": "{"},
    "index-deep": {"model.safetensors.index.json": "[" * 9000},
    "config-cut": {"config.json": "{"},
    "config-list": {"config.json": "[]"},
    "config-deep": {"config.json": '{"a":' * 9000},
    "config-void": {"config.json": ""},
    "no-weights": {},
}
BRODEN = {
    "index.csv": "image,split,ih,iw,sh,sw,color\n0.png,train,8,8,8,8,1\n",
    "category.csv": "name\ncolor\n",
    "label.csv": "number,name,category\n1,red,color(4)\n",
}
TABLES: dict[str, dict[str, str | None]] = {
    "no-labels": {"label.csv": None},
    "no-rows": {"index.csv": "image,split\n"},
    "cut": {"index.csv": "image,split,ih,iw,sh,sw,color\n0.png,train\n"},
    "columns": {"label.csv": "a,b\n1,2\n"},
    "numbers": {"label.csv": "number,name,category\nx,red,color\n"},
    "category": {"label.csv": "number,name,category\n1,red,color(x)\n"},
    "up": {"index.csv": BRODEN["index.csv"].replace("0.png", "../../net.py")},
    "root": {"index.csv": BRODEN["index.csv"].replace(",1\n", ",/dev/zero\n")},
    "unknown": {"index.csv": BRODEN["index.csv"].replace(",1\n", ",77\n")},
    "digits": {"index.csv": BRODEN["index.csv"].replace(",1\n", f",{'9' * 5000}\n")},
}


def make_pretrained(folder: Path) -> list[Path]:
    """Folders for `hf:DIR`; each is refused."""
    folder.mkdir()
    made = []
    for name, fields in FIELDS.items():
        made.append(_pretrained(folder / name, {"config.json": json.dumps(CONFIG | fields)}))
    made += [_pretrained(folder / name, files) for name, files in FILES.items()]
    for name in ("model.safetensors", "generation_config.json", "a.bin.index.json", "config.json"):
        made.append(_pretrained(folder / f"pipe-{name}", {}))
        (made[-1] / name).unlink(missing_ok=True)
        os.mkfifo(made[-1] / name)
    return made


def _pretrained(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in {"config.json": json.dumps(CONFIG), "code.py": CODE, **files}.items():
        (folder / name).write_text(text)
    return folder


def make_tokenizers(folder: Path) -> list[Path]:
    """Files and folders for --tokenizer; each is refused."""
    folder.mkdir()
    words = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    grow = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 16}
    many = {"model": words, "normalizer": {"type": "Sequence", "normalizers": [grow] * 8}}
    far = {"model": {"type": "BPE", "vocab": {"a": 2**32 - 1, "b": 2**31}, "merges": ["a b"]}}  # Rust panics
    texts = {
        "void.json": "", "cut.json": "{", "deep.json": "[" * 9000, "kind.json": '{"model": 1}',
        "grows.json": json.dumps(many), "far.json": json.dumps(far),
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text)
    code = {"auto_map": {"AutoTokenizer": [None, "code.M"]}, "tokenizer_class": "M"}
    _pretrained(folder / "code", {"tokenizer_config.json": json.dumps(code)})
    _pretrained(folder / "labels", {"config.json": json.dumps(CONFIG | {"num_labels": 10**9})})
    _pretrained(folder / "pipe", {})
    os.mkfifo(folder / "pipe" / "tokenizer.json")
    return sorted(folder.iterdir())


def make_concepts(folder: Path, png: bytes) -> list[str]:
    """CONCEPTS strings; each is refused."""
    folder.mkdir()
    for name, changed in TABLES.items():
        place = folder / f"broden-{name}"
        (place / "images").mkdir(parents=True)
        (place / "images" / "0.png").write_bytes(png)
        for file, text in {**BRODEN, **changed}.items():
            if text is not None:
                (place / file).write_text(text)
    changes: dict[str, Callable[[Path], Any]] = {
        "mask-pipe": lambda place: _pipe(place / "masks" / "0.png"),
        "image-pipe": lambda place: _pipe(place / "images" / "0.png"),
        "names-pipe": lambda place: _pipe(place / "classes.txt"),
        "names-bytes": lambda place: (place / "classes.txt").write_bytes(b"\xff"),
        "mask-junk": lambda place: (place / "masks" / "0.png").write_bytes(b"junk"),
        "mask-script": lambda place: (place / "masks" / "0.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n"),
        "mask-gone": lambda place: (place / "masks" / "0.png").unlink(),
        "no-images": lambda place: shutil.rmtree(place / "images") or (place / "images").mkdir(),
    }
    for name, change in changes.items():
        place = folder / f"masks-{name}"
        for kind in ("images", "masks"):
            (place / kind).mkdir(parents=True)
            (place / kind / "0.png").write_bytes(png)
        change(place)
    texts = (
        "",
        "+",
        "=",
        "shapes:0",
        "shapes:x",
        "shapes:4:8:2",
        "shapes:" + "9" * 5000,
        "shapes:4:99999",
        "shapes:٣",
        "shapes:2:8+shapes:2:16",
        "~nobody-here/x",
        "/dev/zero",
        str(folder),
        f"{folder}/none.parquet",
    )
    return [*texts, *(str(place) for place in sorted(folder.iterdir()))]


def _pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)

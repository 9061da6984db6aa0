"""hf:ORG/NAME against a hub on loopback: fetched, from the cache, not found, offline; no network."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from intertwine.zoo import resolve

pytest.importorskip("transformers")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# A process of its own: the hub's address is read when huggingface_hub is imported.
CLIENT = """
import json, sys, threading, urllib.request
import torch
from intertwine.errors import ModelError
from intertwine.zoo import resolve

def attempt(spec):
    try:
        source = resolve(spec)
    except ModelError as error:
        return {"error": str(error)}
    total = sum(float(p.detach().double().sum()) for p in source.model.parameters())
    return {"sum": total, "class": type(source.model).__name__, "folder": str(source.folder)}

found = {"fetched": attempt("hf:org/tiny"), "missing": attempt("hf:org/none"), "bare": attempt("hf:org/bare")}
urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/shutdown", method="POST")).close()
found |= {"cached": attempt("hf:org/tiny"), "offline": attempt("hf:org/never")}
print(json.dumps(found))
"""


class Hub(BaseHTTPRequestHandler):
    """What hf_hub_download asks for: HEAD and GET of /ORG/NAME/resolve/REVISION/FILE."""

    folder: Path
    asked: list[str]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
        threading.Thread(target=self._stop).start()

    def _stop(self) -> None:
        """Nobody listens any more: a connection is refused, not kept waiting."""
        self.server.shutdown()
        self.server.server_close()

    def _answer(self, body: bool) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        self.asked.append("/".join(parts))
        known = parts[:2] in (["org", "tiny"], ["org", "bare"]) and parts[2:3] == ["resolve"]
        path = self.folder / "/".join(parts[4:]) if known else None
        if path is None or not path.is_file() or (parts[1] == "bare" and path.suffix == ".safetensors"):
            code = "EntryNotFound" if known else "RepoNotFound"
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", "Repository not found" if not known else "Entry not found")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        """Nothing on stderr."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[str, Path, list[str]]]:
    Hub.folder, Hub.asked = tmp_path / "model", []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", Hub.folder, Hub.asked
    server.shutdown()
    server.server_close()


def test_names_of_the_hub(hub: tuple[str, Path, list[str]], tmp_path: Path) -> None:
    address, folder, asked = hub
    toy = resolve("hf:gpt2?layers=1&width=16&heads=2&vocabulary=20")
    toy.model.save_pretrained(folder)  # type: ignore[operator]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "TRANSFORMERS_"))}
    env |= {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, "-c", CLIENT, address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    total = sum(float(p.detach().double().sum()) for p in toy.model.parameters())
    assert found["fetched"]["sum"] == pytest.approx(total)
    assert found["fetched"]["class"] == "GPT2LMHeadModel"
    assert found["cached"] == found["fetched"]  # the hub is gone by then
    assert COMMIT in found["cached"]["folder"]
    assert "org/tiny/resolve/main/config.json" in asked
    for name, spec in (("missing", "hf:org/none"), ("offline", "hf:org/never")):
        assert f"{spec} is neither a folder nor in the cache" in found[name]["error"]
        assert "nothing was loaded" in found[name]["error"]
        assert "check the name and the network" in found[name]["error"]
    assert "safetensors" in found["bare"]["error"]

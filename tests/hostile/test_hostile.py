"""A sample of the table and of the mutations; `python -m tests.hostile --mutations 10000` runs them all."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest
import torch
from hostile_api import Call, calls, try_all
from hostile_bytes import READERS, fuzz
from hostile_payloads import Table as Payloads
from hostile_payloads import run_payloads
from hostile_run import Outcome, run_command, run_forked, warm
from hostile_surroundings import SURROUNDINGS, limited
from hostile_table import FINE, REFUSED, Table

import intertwine
from intertwine.cli.parser import build_parser, commands
from intertwine.foreign import safe_workers
from intertwine.graph import export
from intertwine.training import processes

SHARE = 29  # every 29th case of the generated ones; nightly all
MUTATIONS = 20  # of each reader
CALLS = 97  # every 97th call of a public function
PUBLIC = {name for name in intertwine.__all__ if isinstance(getattr(intertwine, name), FunctionType)}


@pytest.fixture(scope="module", autouse=True)
def warmed() -> Iterator[None]:
    threads = torch.get_num_threads()
    warm()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return Table(tmp_path_factory.mktemp("hostile") / "bad")


def test_bad_inputs_end_with_a_message(table: Table) -> None:
    cases = list(table.cases())
    assert len(cases) > 1000
    before = sorted(path.name for path in table.folder.iterdir())
    wrong = []
    for case in cases[::SHARE]:
        trouble = case.trouble()
        if trouble:
            wrong.append(f"{case}: {trouble}")
    assert not wrong, "\n".join(wrong)
    assert sorted(path.name for path in table.folder.iterdir()) == before


def test_rare_models_end_with_a_message(table: Table) -> None:
    """Those of them that once did not; nightly all, by every verb."""
    known = {
        ("combine", "half"), ("interpolate", "stored"), ("stitch", "double"), ("compare", "one_number"),
        ("compare", "no_rows"), ("align", "one_row"), ("attribute", "by_name"),
        ("dimension", "complex_scores"),
    }  # fmt: skip
    cases = [c for c in table.odd_cases() if (c.argv[0], c.argv[1].rpartition(":")[2]) in known]
    assert len(cases) >= len(known)
    assert not [f"{case}: {trouble}" for case in cases if (trouble := case.trouble())]


def test_odd_surroundings_end_with_a_message() -> None:
    """Each with one of four commands in turn; nightly with all."""
    lines = (("zoo", "list", "--json"), ("completion", "zsh"), ("merge", "--nope"), ("activations", "relu"))
    wrong = [
        f"{name}: {trouble}"
        for number, (name, change) in enumerate(SURROUNDINGS.items())
        if (trouble := run_command(lines[number % len(lines)], before=change).wrong(FINE))
    ]
    assert not wrong, "\n".join(wrong)


def test_a_full_disk_ends_an_export_with_a_message(table: Table) -> None:
    """The writer of torch ends the process."""
    list(table.cases())  # makes the files
    line = ("merge", f"{table.folder}/net.py:good", "--beta", "0.1", "--export", "torch", "-o", "small")
    for name in ("a full disk", "an almost full disk"):
        assert not run_command(line, before=SURROUNDINGS[name]).wrong(REFUSED)


def test_a_page_that_cannot_be_written_leaves_no_weights_behind(table: Table) -> None:
    """Of several files all are written, or none."""
    list(table.cases())  # makes the files
    net = f"{table.folder}/net.py:good"
    line = ("align", net, net, "-o", "a.safetensors", "--element", "e.safetensors", "--page", "p.html")
    full = run_command(line, before=limited("RLIMIT_FSIZE", 2000))
    assert not full.wrong((2,)) and not full.left and "p.html" in full.err
    pair = ("combine", net, net, "--align", "weights", "-o", "a.safetensors", "--page", "p.html")
    full = run_command(pair, before=limited("RLIMIT_FSIZE", 2000))  # the weights alone would fit
    assert not full.wrong((2,)) and not full.left and "cannot write p.html" in full.err


@pytest.mark.parametrize("name", READERS)
def test_mutated_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    assert fuzz(name, MUTATIONS, 0, tmp_path) == []


def test_bad_arguments_of_public_functions_are_errors_of_ours(tmp_path: Path) -> None:
    cases = list(calls())
    assert {case.name for case in cases} == PUBLIC and len(cases) > 2000
    assert try_all(cases[::CALLS], tmp_path) == []


def test_the_calls_see_what_is_wrong(tmp_path: Path) -> None:
    (found,) = try_all([Call("act", lambda _: {"model": 1 / 0})], tmp_path)
    assert "ZeroDivisionError" in found


def test_nothing_of_others_is_run_or_lost(table: Table, tmp_path: Path) -> None:
    """A folder that brings code, and outputs that are inputs in one way or another."""
    place = table.folder / "pretrained" / "code"
    list(table.cases())  # makes the files
    text, net = tmp_path / "a.txt", f"{table.folder}/net.py:good"
    text.write_text("abc " * 400)
    concepts = table.folder / "concepts" / "broden-unknown"
    before = {path: path.read_bytes() for path in (text, place / "config.json", concepts / "index.csv")}
    for argv in (
        ("inspect", f"hf:{place}"),
        ("inspect", f"hf:{place}", "-o", str(place / "config.json")),
        ("merge", net, "--data", f"text:{text}[50%:]", "--plan", str(text)),
        ("dissect", net, "--at", "1", "--concepts", f"a={concepts}", "-o", str(concepts / "index.csv")),
        ("dissect", net, "--at", "1", "--concepts", f"{concepts}+shapes", "-o", str(concepts / "index.csv")),
        ("attribute", net, "--axis", "0", "--text", str(text), "-o", str(text)),
        ("merge", net, "--tokenizer", str(place), "--plan", str(place / "config.json")),
    ):
        assert run_command(argv).wrong((2,)) == ""
    assert {path: path.read_bytes() for path in before} == before
    assert not list(table.folder.rglob("ran"))


def test_what_inputs_name_is_not_overwritten(table: Table, tmp_path: Path) -> None:
    """The recipe and the models of a sweep, and where a merged model comes from."""
    list(table.cases())  # makes the files
    net, recipe, plan = tmp_path / "net.py", tmp_path / "r.yml", tmp_path / "s.yml"
    shutil.copy(table.folder / "net.py", net)
    recipe.write_text("epochs: 1\nbatch: 8\n")
    plan.write_text(f"data: digits\ntrain: {{models: ['{net}:good'], seeds: 0, recipe: r.yml}}\n")
    small = tmp_path / "small"
    assert run_command(("merge", f"{net}:good", "--beta", "0.1", "-o", str(small))).code == 0
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    for out in (net, recipe):
        assert not run_command(("sweep", str(plan), "-o", "out", "--page", str(out))).wrong((2,))
    for out in (net, small / "recipe.json", small / "weights.safetensors"):
        line = ("combine", "small", "small", "--run-code", "--align", "weights", "--page", str(out))
        assert not run_command(line, before=lambda _: os.chdir(tmp_path)).wrong((2,))
    assert {path: path.read_bytes() for path in before} == before


def test_what_runs_on_after_a_command_neither_keeps_it_nor_prints_behind_its_document(tmp_path: Path) -> None:
    """Threads, functions of atexit and objects that die at the end, in a process of its own."""
    (tmp_path / "late.py").write_text(
        "import atexit, threading, time\nfrom torch import nn, ones\n"
        "class Dies:\n    def __del__(self): print('dies')\n"
        "kept = Dies()\n"
        "def make():\n"
        "    atexit.register(print, 'bye')\n"
        "    threading.Thread(target=time.sleep, args=(3600,)).start()\n"
        "    return nn.Linear(3, 2), ones(2, 3)\n"
    )
    line = [sys.executable, "-m", "intertwine", "inspect", "late.py:make", "--json"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["axes"] and "bye" in done.stderr


def test_payloads_do_not_run(tmp_path: Path) -> None:
    """Every sixth of them; nightly all."""
    payloads = Payloads(tmp_path / "payloads")
    tried, ran = run_payloads(payloads, every=6)
    assert tried > 10 and not ran


def test_names_in_a_graph_are_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    for checked in (True, False):  # without the check they run: they are payloads
        payloads = Payloads(tmp_path / f"payloads{checked}")
        if not checked:
            monkeypatch.setattr(export, "_assert_plain_names", lambda names: None)
        monkeypatch.setattr(payloads, "payloads", payloads.named_weights)
        tried, ran = run_payloads(payloads)
        assert tried == 2 and ran == ([] if checked else ["weight export", "weight stitch"])


def test_the_payloads_would_be_seen(tmp_path: Path) -> None:
    payloads = Payloads(tmp_path / "payloads")
    pickle.loads(pickle.dumps(payloads.mark("pickle")))
    exec(payloads.code("code"))
    assert sorted(path.name for path in payloads.ran.iterdir()) == ["code", "pickle"]


def test_two_threads_that_start_workers_leave_nothing_behind() -> None:
    first, second = safe_workers(), safe_workers()
    first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ["PYTHONSAFEPATH"] == "1"  # the second still starts some
    second.__exit__(None, None, None)
    assert "PYTHONSAFEPATH" not in os.environ


def test_workers_import_nothing_from_the_working_directory(tmp_path: Path) -> None:
    """Python looks there first for -c and -m, which is how pools start their processes."""
    (tmp_path / "json.py").write_text("raise SystemExit(7)")
    line = [sys.executable, "-c", "import json"]
    assert subprocess.run(line, cwd=tmp_path, env=os.environ).returncode == 7
    with safe_workers():
        assert subprocess.run(line, cwd=tmp_path, env=os.environ).returncode == 0
    assert "PYTHONSAFEPATH" not in os.environ


def test_who_waits_for_the_dead_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call into torch hears nothing: the thread that looks after the other processes ends it."""
    dies = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    monkeypatch.setattr(processes, "_command", lambda: dies)
    monkeypatch.setattr(processes, "_LOOK", 0.01)
    monkeypatch.setattr(processes, "_NOTICE", 0.01)

    def wait() -> int:
        with processes.together(3):
            time.sleep(60)
        return 0

    found = run_forked(wait, tmp_path)
    assert found.code == 1 and found.err.startswith("ProcessDied: process 2 of 3 was ended by SIGKILL")


def test_every_option_has_a_checked_type(table: Table) -> None:
    """`bad` refuses to guess: an option without a type of `arguments` fails here."""
    for parser in commands(build_parser()).values():
        for action in parser._actions:
            if action.nargs != 0:
                assert list(table.bad(action))


def test_the_table_sees_what_is_wrong(tmp_path: Path) -> None:
    def leaves() -> int:
        (tmp_path / "left").write_text("x")
        return 2

    def fails() -> int:
        raise KeyError("ours")

    assert "left" in run_forked(leaves, tmp_path).wrong((2,))
    assert "traceback" in run_forked(fails, tmp_path).wrong((2,))
    assert "hangs" in run_forked(lambda: __import__("time").sleep(9) or 2, tmp_path, seconds=0.2).wrong((2,))
    assert "exit code 0" in Outcome(0, "", "", ()).wrong((2,))
    assert "escape" in Outcome(2, "", "\x1b[2J", ()).wrong((2,))

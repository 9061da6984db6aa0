"""The command line as one meets it: help without torch, completion, doctor, tables, progress, -q and -v."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import intertwine
from intertwine.checkup import Checkup, Dependency
from intertwine.cli import main
from intertwine.cli.parser import build_parser, commands
from intertwine.terminal import output
from intertwine.terminal.registered import read_file

HEAVY = ("torch", "numpy", "scipy", "plotly", "sklearn", "rich")


def loaded_after(code: str) -> list[str]:
    """The heavy modules that are loaded when `code` has run."""
    told = f"{code}\nimport sys\nprint([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return list(json.loads(done.stderr.strip().splitlines()[-1].replace("'", '"')))


def test_help_version_and_completion_import_nothing_heavy() -> None:
    assert loaded_after("import rich") == ["rich"]
    every = [[], *([*words] for words in commands(build_parser()))]
    assert len(every) > 20
    code = (
        "from intertwine.cli import main\n"
        f"for words in {every!r}:\n    assert main([*words, '--help']) == 0\n"
        "assert main(['--version']) == 0 and main(['completion', 'bash']) == 0"
    )
    assert loaded_after(code) == []


def test_the_file_of_registered_names_is_that_of_the_registries() -> None:
    code = (
        "import json; from intertwine.terminal.registered import read_registries as r; print(json.dumps(r()))"
    )
    # in a process of its own: other tests add to the registries of this one
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert read_file() == json.loads(done.stdout), "run: python -m intertwine.terminal.registered"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"intertwine {intertwine.__version__}\n"


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers after these words."""
    line = " ".join(f"'{word}'" for word in ("intertwine", *words))
    code = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _intertwine"
    code += '; echo "${COMPREPLY[@]}"'
    return subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "intertwine.bash"
    script.write_text(capsys.readouterr().out)
    assert completed(script, "ins") == ["inspect"]
    assert set(completed(script, "")) >= {"merge", "zoo", "--version"}
    assert completed(script, "merge", "zoo:vgg16", "--targ") == ["--target-params", "--target-flops"]
    assert completed(script, "merge", "zoo:vgg16", "--method", "mag") == ["magnitude"]
    assert completed(script, "zoo", "tr") == ["train"]
    assert "--data" in completed(script, "zoo", "train", "--d")
    assert completed(script, "completion", "z") == ["zsh"]
    assert completed(script, "merge", "") == []  # then bash completes names of files


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_verb(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(words[0] in text for words in commands(build_parser()))
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True)


def test_doctor_says_what_is_missing_and_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["healthy"] and "cpu" in found["devices"]
    assert {"torch", "numpy"} <= {d["package"] for d in found["dependencies"] if d["extra"] == "core"}
    old = Dependency("core", "torch", "2.13", "2.9.1")
    missing = Dependency("rl", "minigrid", "3.0", "")
    ill = Checkup("0", "3.11", "x", 1, "2.9.1", ("cpu",), (old, missing))
    assert not ill.healthy
    rows = {row[0]: row for row in ill.extras()}
    assert "torch 2.9.1 < 2.13" in rows["core"][2] and rows["rl"][3] == "pip install 'intertwine[rl]'"


def fake_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(Console, "is_terminal", property(lambda self: True))
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")


LONG = "model.layers.0.self_attention.query_key_value.weight"


@pytest.mark.parametrize("width", [None, 200, 90, 40])
def test_tables_never_split_a_word(
    width: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if width:
        fake_terminal(monkeypatch, width)
    reason = "these channels are read in a fixed order by a view that cuts them into unequal parts"
    output.print_table("axes", ["axis", "channels", "why"], [[LONG, 12345, reason], ["b", 1, ""]])
    text = re.sub("\x1b[^m]*m", "", capsys.readouterr().out)
    assert LONG in text and "12,345" in text
    assert all(word in text for word in reason.split())
    lines = text.splitlines()
    if width is None:
        assert any(LONG in line and reason in line for line in lines)  # one row a line, for grep
    elif width == 40:
        assert f"axis      {LONG}" in text  # too narrow for a table: a block a row
    else:
        assert max(map(len, lines)) <= width


def test_progress_in_a_log_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    say = output.now_and_then(lambda: now[0])
    for second in range(200):
        now[0] = float(second)
        say(f"step {second}")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["5", "15", "35", "75", "135", "195"]
    with output.volume(output.QUIET):
        say = output.now_and_then(lambda: now[0])
        now[0] += 1000
        say("nothing")
    assert capsys.readouterr().err == ""


def test_quiet_and_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "list", "-v"]) == 0
    assert "exit code 0" in capsys.readouterr().err
    assert main(["-q", "zoo", "list"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["-q", "verify", "zoo:nothing"]) == 2
    assert "no model 'nothing'" in capsys.readouterr().err  # errors are said


def test_a_folder_that_cannot_be_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    assert main(["sweep", "no-such-file.yml", "-o", str(tmp_path / "file" / "runs")]) == 2
    assert "is not a folder" in capsys.readouterr().err

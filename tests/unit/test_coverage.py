"""The survey: rows, resuming, limits, and a table that tells the truth."""

from __future__ import annotations

import json
import sys
import threading

import pytest

from intertwine.cli import main
from intertwine.errors import InputError, NotFound
from intertwine.surveying import Row, catalogue, render, smallest_of_each, survey, targets


def test_survey_verifies_and_goes_on_where_it_was(tmp_path):
    out = tmp_path / "rows.json"
    specs = ["zoo:mlp", "zoo:lenet5"]
    seen: list[str] = []
    rows = survey(specs[:1], out, progress=lambda row: seen.append(row.model))
    assert rows[0].status == "exact" and rows[0].max_error <= 1e-10 and rows[0].parameter_coverage > 0.95
    stored = json.loads(out.read_text())
    stored[0]["axes"] = 12345  # a mark that would be lost if the model were run again
    out.write_text(json.dumps(stored))
    rows = survey(specs, out, progress=lambda row: seen.append(row.model))
    assert seen == specs
    assert rows[0].axes == 12345 and rows[1].status == "exact"


def test_a_bad_model_does_not_stop_the_table(tmp_path):
    rows = survey(["zoo:missing", "zoo:mlp"], tmp_path / "rows.json")
    assert [r.status for r in rows] == ["failed", "exact"]
    assert "missing" in rows[0].error


def test_limits(tmp_path):
    slow = survey(["zoo:mlp"], tmp_path / "slow.json", seconds=0.01)
    assert slow[0].status == "failed" and "took " in slow[0].error


def test_catalogue_tells_architectures_apart_and_is_kept(tmp_path):
    path = tmp_path / "rows.catalogue.json"
    names = ["zoo:vgg13", "zoo:vgg11", "zoo:lenet5"]
    entries = catalogue(names, path)
    assert not any(e.error for e in entries) and entries[0].parameters > entries[1].parameters > 0
    like = smallest_of_each(entries, lambda e: e.architecture)
    assert like == {"zoo:vgg11": "zoo:vgg11", "zoo:vgg13": "zoo:vgg11", "zoo:lenet5": "zoo:lenet5"}
    path.write_text(path.read_text().replace('"zoo:vgg13", "module": "', '"zoo:vgg13", "module": "marked.'))
    assert catalogue(names, path)[0].module.startswith("marked.")


def test_a_model_that_does_not_run_without_numbers_stands_for_itself(tmp_path):
    first, second = catalogue(["zoo:missing", "zoo:other"], tmp_path / "c.json")
    assert first.error and first.architecture != second.architecture


def test_like_names_the_model_that_was_run(tmp_path):
    like = {"zoo:mlp": "zoo:mlp", "zoo:lenet5": "zoo:mlp", "zoo:gone": "zoo:missing"}
    rows = survey(list(like), tmp_path / "rows.json", like=like)
    assert [r.status for r in rows] == ["exact", "same", "failed"]
    assert rows[1].like == "zoo:mlp" and rows[2].error


def test_targets():
    names = ["zoo:resnet20", "zoo:resnet20-cifar100", "zoo:resnet20-open", "zoo:resnet20-pad"]
    assert targets("zoo", "resnet20*") == names
    assert len(targets("hf")) == 28
    with pytest.raises(NotFound, match="no model of zoo matches"):
        targets("zoo", "nothing*")
    with pytest.raises(InputError, match="unknown library"):
        targets("keras")


def test_a_broken_file_is_refused(tmp_path):
    (tmp_path / "rows.json").write_text("{")
    with pytest.raises(InputError, match="not a coverage file"):
        survey(["zoo:mlp"], tmp_path / "rows.json")


def test_table_counts_what_is_wrong():
    rows = [
        Row("a", "exact", 1, 1e-16, 0.5, 1.0, 3, seconds={"export": 1.0, "infer": 0.1, "verify": 1.0}),
        Row("b", "wrong", 1, 1e-2, 0.5, 1.0, 3),
        Row("c", "unproved", 1, 0.0, 0.0, 1.0, 3),
        Row("d", "failed", error="took | too long"),
    ]
    text = render("lib", rows)
    assert "1 of 4 models exact, 1 failed, 1 unproved, 1 WRONG" in text
    assert "took / too long" in text


def test_command_line(capsys, tmp_path):
    out, page = tmp_path / "rows.json", tmp_path / "table.md"
    args = [
        "coverage",
        "--library",
        "zoo",
        "--filter",
        "mlp",
        "-o",
        str(out),
        "--markdown",
        str(page),
        "--json",
    ]
    assert main(args) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["exact"] == 1
    assert "| zoo:mlp | exact |" in page.read_text()
    assert main(["coverage", "--library", "zoo", "--shard", "3/2", "-o", str(out)]) == 2
    assert "cannot read the shard" in capsys.readouterr().err


survey_module = sys.modules["intertwine.surveying.surveys"]


def fast(monkeypatch, status="exact"):
    """A survey that runs no model; the list of what it would have run."""
    ran = []

    def isolated(context, spec, seconds, gigabytes):
        ran.append(spec)
        return Row(spec, status)

    monkeypatch.setattr(survey_module, "_isolated", isolated)
    return ran


def test_two_surveys_lose_no_rows(tmp_path, monkeypatch):
    fast(monkeypatch)
    out, jobs = tmp_path / "rows.json", []
    for part in range(4):
        specs = [f"zoo:{part}-{i}" for i in range(5)]
        jobs.append(threading.Thread(target=survey, args=(specs, out)))
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert len(json.loads(out.read_text())) == 20 and [p.name for p in tmp_path.iterdir()] == ["rows.json"]


def test_what_failed_is_tried_again_under_other_limits(tmp_path, monkeypatch):
    out = tmp_path / "rows.json"
    ran = fast(monkeypatch, "failed")
    survey(["zoo:a"], out, seconds=1)
    survey(["zoo:a"], out, seconds=1)
    assert ran == ["zoo:a"]
    ran = fast(monkeypatch)
    assert survey(["zoo:a"], out, seconds=2)[0].status == "exact" and ran == ["zoo:a"]
    survey(["zoo:a"], out, seconds=3)
    assert ran == ["zoo:a"]


def test_what_failed_for_want_of_a_processor_is_tried_again(tmp_path, monkeypatch):
    """The limit by the clock says something about the machine, not about the model."""
    out, late = tmp_path / "rows.json", Row("zoo:a", "failed", error="by the clock", limits={"clock": 20.0})
    monkeypatch.setattr("intertwine.surveying.surveys._isolated", lambda *args: late)
    assert survey(["zoo:a"], out, seconds=1)[0].limits == {"clock": 20.0}
    ran = fast(monkeypatch)
    assert survey(["zoo:a"], out, seconds=1)[0].status == "exact" and ran == ["zoo:a"]


@pytest.mark.parametrize(
    "text",
    ["", "5", "[5]", "[{}]", '[{"model": 5, "status": "exact"}]',
     '[{"model": "a", "status": "exact", "x": 1}]',
     '[{"model": "a", "status": "exact", "frozen": []}]', "[" * 100_000],
)  # fmt: skip
def test_junk_is_no_coverage_file(tmp_path, text):
    (tmp_path / "rows.json").write_text(text)
    with pytest.raises(InputError, match="not a coverage file"):
        survey(["zoo:mlp"], tmp_path / "rows.json")
    assert (tmp_path / "rows.json").read_text() == text

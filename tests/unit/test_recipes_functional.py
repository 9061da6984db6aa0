"""The existence proof of source 003 from the command line: one representation, opposite functions."""

from __future__ import annotations

import json
import math

from intertwine.cli import main


def test_existence_proof(capsys, tmp_path):
    assert main(["reproduce", "functional-table4.1", "--quick", "-o", str(tmp_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["cka"] > 0.99 and facts["cca"] > 0.99
    assert 0.5 < facts["jsd"] <= math.log(2) and facts["spearman"] < -0.9
    assert "opposite functions" in (tmp_path / "functional-table4.1.html").read_text()

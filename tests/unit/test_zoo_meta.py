"""Shapes are enough to infer: on the device meta no weight is read or drawn."""

import json
from pathlib import Path

import pytest
import torch

from intertwine import trace
from intertwine.cli import main
from intertwine.errors import InputError, ModelError
from intertwine.zoo import resolve

pytest.importorskip("transformers")


def axes(spec: str, **options: bool) -> dict[str, tuple[int, str]]:
    source = resolve(spec, **options)
    found = trace(source.model, source.example, source.kwargs, prove=False)
    return {axis.name: (axis.size, str(axis.group)) for axis in found.axes}


@pytest.mark.parametrize("spec", ["zoo:mlp", "zoo:lenet5", "hf:llama?layers=1"])
def test_the_axes_are_those_of_the_model_with_weights(spec: str) -> None:
    source = resolve(spec, shapes_only=True)
    assert all(p.is_meta for p in source.model.parameters()) and source.example[0].is_meta
    assert axes(spec, shapes_only=True) == axes(spec)


def test_a_folder_without_weights_will_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = resolve("hf:gpt2?layers=1")
    source.model.config.architectures = ["GPT2LMHeadModel"]
    (tmp_path / "config.json").write_text(json.dumps(source.model.config.to_dict()))
    assert main(["inspect", f"hf:{tmp_path}", "--no-proof", "--device", "meta", "--json"]) == 0
    assert "transformer.h.0.mlp.c_fc" in capsys.readouterr().out
    with pytest.raises(ModelError):  # its weights are not there
        resolve(f"hf:{tmp_path}")


def test_what_needs_values_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="no weights are read"):
        resolve("zoo:mlp", shapes_only=True, weights="w.safetensors")
    for command in (["inspect", "zoo:mlp"], ["verify", "zoo:mlp"], ["merge", "zoo:mlp", "--beta", "0.1"]):
        assert main([*command, "--device", "meta"]) == 2
        assert "holds no values" in capsys.readouterr().err
    assert torch.get_default_device().type == "cpu"

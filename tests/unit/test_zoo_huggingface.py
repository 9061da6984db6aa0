"""hf:FAMILY and diffusers:NAME: the right model with the right inputs, and only its predictions come out."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest
import torch

from intertwine import trace, verify
from intertwine.errors import InputError, MissingExtra, NotFound, Unsupported
from intertwine.merging import fold
from intertwine.vision_shim import import_transformers
from intertwine.zoo import example_calls
from intertwine.zoo.diffusion import build_diffusers, names
from intertwine.zoo.huggingface import build_hf, class_of, keep_predictions

needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="needs the extra `text`: transformers is not installed",
)
needs_diffusers = pytest.mark.skipif(
    importlib.util.find_spec("diffusers") is None,
    reason="needs the extra `diffusion`: diffusers is not installed",
)


def run(built: tuple[Any, tuple[torch.Tensor, ...], dict[str, Any]]) -> Any:
    model, example, kwargs = built
    with torch.no_grad():
        return model.eval()(*example, **kwargs)


@needs_transformers
@pytest.mark.parametrize(
    ("family", "model", "inputs", "outputs"),
    [
        ("deit", "DeiTForImageClassification", "", {"logits": (2, 2)}),
        ("wav2vec2", "Wav2Vec2ForCTC", "", {"logits": (2, 15, 101)}),
        ("whisper", "WhisperForConditionalGeneration", "decoder_input_ids", {"logits": (2, 9, 101)}),
        ("bart", "BartForConditionalGeneration", "decoder_input_ids", {"logits": (2, 9, 101)}),
        ("clip", "CLIPModel", "pixel_values", {"logits_per_image": (2, 2), "logits_per_text": (2, 2)}),
        ("siglip", "SiglipModel", "pixel_values", {"logits_per_image": (2, 2), "logits_per_text": (2, 2)}),
        ("detr", "DetrForObjectDetection", "", {"logits": (2, 7, 3), "pred_boxes": (2, 7, 4)}),
        ("sam", "SamModel", "input_points", {"pred_masks": (2, 1, 3, 16, 16), "iou_scores": (2, 1, 3)}),
        ("gpt2", "GPT2LMHeadModel", "", {"logits": (2, 12, 101)}),
    ],
)
def test_model_inputs_and_predictions(
    family: str, model: str, inputs: str, outputs: dict[str, tuple[int, ...]]
) -> None:
    built = build_hf(family)
    assert type(built[0]).__name__ == model
    assert set(built[2]) == set(inputs.split())
    assert sum(p.numel() for p in built[0].parameters()) < 100_000
    found = run(built)
    assert {name: tuple(value.shape) for name, value in found.items()} == outputs
    assert all(torch.isfinite(value).all() for value in found.values())


@needs_transformers
@pytest.mark.parametrize(
    ("family", "inputs"),
    [
        ("deepseek_v2", ""),  # keys with as many heads as queries
        ("dots1", ""),  # the number of experts is not said by default
        ("lfm2_moe", ""),  # nor are the kinds of its layers
        ("blip_2_qformer", "encoder_hidden_states"),  # refused without
        ("audioflamingo3_encoder", "input_features_mask"),
        ("llava", "pixel_values"),  # with a token for every feature of an image
        ("esm", ""),  # the vocabulary is not said by default
        ("decision_transformer", "actions attention_mask returns_to_go rewards timesteps"),
        (
            "time_series_transformer",
            "past_observed_mask past_time_features",
        ),  # no length of what is predicted
        ("blip-2", "input_ids"),  # no token for an image
        ("glm4v_text", ""),  # sections of rotary turns that only the model knows
        ("gemma3n_text", ""),  # layers that share keys, a list of widths for all layers
        ("lxmert", "attention_mask visual_feats visual_pos"),
        ("instructblip", "input_ids qformer_input_ids"),
        ("eomt", ""),  # more blocks with queries than layers
    ],
)
def test_sizes_and_arguments_are_found_by_trying(family: str, inputs: str) -> None:
    model, _, kwargs = build_hf(family)
    assert set(kwargs) == set(inputs.split())
    assert sum(p.numel() for p in model.parameters()) < 300_000


@needs_transformers
def test_a_composite_config_gets_a_class_that_takes_the_whole() -> None:
    """It is mapped to the class of its text part too, and first."""
    transformers = import_transformers()
    config = transformers.CONFIG_MAPPING["qwen3_5_moe"]()
    assert isinstance(config, class_of(transformers, config).config_class)


@needs_transformers
def test_layers_of_every_kind_are_kept() -> None:
    model, *_ = build_hf("gemma3_text")
    assert model.config.layer_types == ["sliding_attention", "full_attention"]
    assert model.config.num_hidden_layers == 2


@needs_transformers
def test_a_field_of_the_config_may_be_zero_and_a_size_may_not() -> None:
    model, _, _ = build_hf("deepseek_v3?layers=1&first_k_dense_replace=0")
    assert hasattr(model.get_submodule("model.layers.0.mlp"), "experts")  # not one of the first, dense ones
    with pytest.raises(InputError, match="layers must be a whole number of at least 1"):
        build_hf("deepseek_v3?layers=0")


@needs_transformers
def test_both_towers_count() -> None:
    model, example, kwargs = build_hf("clip")
    before = run((model, example, kwargs))["logits_per_image"]
    text = run((model, (example[0].flip(1),), kwargs))["logits_per_image"]
    image = run((model, example, {"pixel_values": kwargs["pixel_values"].flip(3)}))["logits_per_image"]
    assert not torch.allclose(before, text)
    assert not torch.allclose(before, image)


@needs_transformers
def test_an_inner_state_among_the_outputs_would_fix_the_stream() -> None:
    """Why only predictions come out: with the encoder's state among the outputs no channel of it can move."""
    model, example, kwargs = build_hf("bart")
    place = ("model.encoder.layers.0.fc2.weight", "out")

    def stream() -> Any:
        axes = trace(model, example, kwargs).axes
        return next(a for a in axes if place in {(m.param, m.role) for m in a.members})

    assert stream().group.permutation
    model._forward_hooks.clear()
    assert "encoder_last_hidden_state" in run((model, example, kwargs))
    assert stream().frozen_because.startswith("it is an output")


def test_keep_predictions_leaves_other_outputs_alone() -> None:
    x = torch.ones(2)
    assert keep_predictions(torch.nn.Identity(), (), x) is x
    hidden = {"last_hidden_state": x}
    assert keep_predictions(torch.nn.Identity(), (), hidden) is hidden
    both = {"logits": x, "pred_boxes": None, **hidden}
    assert keep_predictions(torch.nn.Identity(), (), both) == {"logits": x}


@needs_transformers
def test_a_folded_model_of_ours_still_writes() -> None:
    """`generate` reads what a model gives by attributes, in a dictionary of transformers' own."""
    model, example, kwargs = build_hf("t5?layers=1")
    tokens = torch.arange(3, 9)[None]
    written = [
        m.generate(tokens, max_new_tokens=4, min_new_tokens=4) for m in (model, fold(model, example, kwargs))
    ]
    assert written[0].shape == (1, 5) and torch.equal(*written)


@needs_transformers
def test_a_type_that_transformers_itself_cannot_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then its default config says too little, and the message says where; ours are not to blame."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AttributeError("'NoneType' object has no attribute 'get'")

    monkeypatch.setattr(import_transformers().PreTrainedModel, "_from_config", classmethod(refuse))
    with pytest.raises(Unsupported, match=r"itself builds no model of the default .* no attribute 'get'"):
        build_hf("gpt2")
    with pytest.raises(Unsupported, match="makes no default config of hf:gemma4_assistant"):
        build_hf("gemma4_assistant")


@needs_transformers
def test_unknown_families_and_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound, match="bert"):
        build_hf("berd")
    with pytest.raises(Unsupported, match="BarkModel only generates, part after part"):
        build_hf("bark")
    monkeypatch.delitem(example_calls._EXAMPLES, "states")
    with pytest.raises(Unsupported, match="takes states, for which there is no example"):
        build_hf("decision_transformer")


def test_diffusers_names() -> None:
    with pytest.raises(NotFound, match="did you mean unet2d"):
        build_diffusers("unet2")
    assert names() == ["unet2d", "unet2d-condition"]


def test_without_diffusers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(MissingExtra) as info:
        build_diffusers("unet2d")
    assert 'pip install "intertwine[diffusion]"' in str(info.value)


@needs_diffusers
@pytest.mark.parametrize("name", names())
def test_denoisers_are_exact_and_their_axes_are_found(name: str) -> None:
    torch.manual_seed(0)
    model, example, kwargs = build_diffusers(name)
    model.eval()
    symmetry = trace(model, example, kwargs)
    report = verify(model, example, kwargs=kwargs, symmetry=symmetry, samples=2)
    assert report.max_error <= 1e-10
    assert report.control_error >= 1e-4
    assert not report.unknown_ops
    assert report.parameter_coverage > 0.98
    groups = {axis.name: str(axis.group) for axis in symmetry.axes}
    # a norm over 4 groups of channels: permutations inside the groups, and of the groups
    assert groups["mid_block.resnets.0.conv1"] == "permutation in each of 4 blocks"
    assert groups["mid_block.resnets.0.conv1/blocks"] == "permutation"
    if name == "unet2d":
        assert groups["mid_block.attentions.0.to_q"] == "general linear in each of 3 blocks"
        assert groups["mid_block.attentions.0.to_v"] == "general linear in each of 3 blocks"
        assert groups["mid_block.attentions.0.to_q/blocks"] == "permutation"
    else:
        inner = "mid_block.attentions.0.transformer_blocks.0"
        for attention in ("attn1", "attn2"):  # the second reads the text
            assert groups[f"{inner}.{attention}.to_q"] == "general linear in each of 4 blocks"
            assert groups[f"{inner}.{attention}.to_v"] == "general linear in each of 4 blocks"
            assert groups[f"{inner}.{attention}.to_q/blocks"] == "permutation"
        assert groups[f"{inner}.ff.net.0.proj"] == "monomial"

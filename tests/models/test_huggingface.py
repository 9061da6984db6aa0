"""The table of transformers families: every one exact, and the axes that matter found in each.

A row names, for one layer, the weights that make and read each axis. Expected of every layer: the hidden axis
of its MLP, one axis of heads across q, k, v and o, any invertible matrix between v and o in every head, what
the architecture allows between q and k, and the residual stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from intertwine import trace, verify, zoo
from intertwine.surveying.libraries import FAMILIES
from intertwine.symmetry.axes import Axis
from intertwine.symmetry.symmetry import Symmetry

pytest.importorskip("transformers", reason="needs the extra `text`: transformers is not installed")

LINEAR, PAIRS = "general linear", "nonzero diagonal"


@dataclass(frozen=True)
class Layer:
    """attention: the weights q, k, v, o (a packed one thrice); mlp: those before and after the hidden axis.

    groups: heads of k and v, fewer than `heads` where queries are grouped. query_key: the group between
    q and k, acting alone in each of `query_key_blocks` heads. fixed: why no channel of the stream can move.
    """

    prefix: str
    attention: str
    mlp: str
    heads: int = 4
    groups: int = 0
    query_key: str = LINEAR
    query_key_blocks: int = 0
    width: int = 32
    hidden: int = 48
    fixed: str = ""

    def names(self, text: str) -> list[str]:
        return [f"{self.prefix}.{name}.weight" for name in text.split()]


BERT = ("attention.self.query attention.self.key attention.self.value attention.output.dense",)
BERT += ("intermediate.dense output.dense",)
VIT = ("attention.q_proj attention.k_proj attention.v_proj attention.o_proj", "mlp.fc1 mlp.fc2")
BART_SELF = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj"
BART_CROSS = "encoder_attn.q_proj encoder_attn.k_proj encoder_attn.v_proj encoder_attn.out_proj"
DETR_SELF, DETR_CROSS = (text.replace("out_proj", "o_proj") for text in (BART_SELF, BART_CROSS))
LLAMA = (DETR_SELF, "mlp.gate_proj mlp.down_proj")
T5_SELF = "layer.0.SelfAttention.q layer.0.SelfAttention.k layer.0.SelfAttention.v layer.0.SelfAttention.o"
T5_CROSS = T5_SELF.replace("layer.0.SelfAttention", "layer.1.EncDecAttention")
SAM = "q_proj k_proj v_proj out_proj"


def rotary(query_key: str = PAIRS, blocks: int = 0, names: tuple[str, str] = LLAMA) -> list[Layer]:
    """Grouped queries; a rotation of pairs of channels leaves their common scale, and the sign, free."""
    return [Layer("model.layers.0", *names, groups=2, query_key=query_key, query_key_blocks=blocks)]


def towers(mlp: str = "mlp.fc1 mlp.fc2") -> list[Layer]:
    return [Layer(f"{tower}_model.encoder.layers.1", BART_SELF, mlp) for tower in ("text", "vision")]


def seq2seq() -> list[Layer]:
    found = [Layer("model.encoder.layers.0", BART_SELF, "fc1 fc2")]
    return found + [Layer("model.decoder.layers.1", text, "fc1 fc2") for text in (BART_SELF, BART_CROSS)]


def sam() -> list[Layer]:
    # Relative positions meet the queries of all heads, so that one matrix acts in all of them.
    eyes = Layer(
        "vision_encoder.layers.1",
        "attn.qkv attn.qkv attn.qkv attn.proj",
        "mlp.lin1 mlp.lin2",
        query_key_blocks=1,
    )
    prefix, mlp = "mask_decoder.transformer.layers.1", "mlp.lin1 mlp.lin2"
    # Positions are sines and cosines of learned frequencies: two channels of the stream move as one.
    places = {"heads": 2, "hidden": 40, "width": 12}
    kinds = ("self_attn", "cross_attn_token_to_image")
    return [eyes] + [
        Layer(prefix, " ".join(f"{kind}.{n}" for n in SAM.split()), mlp, **places) for kind in kinds
    ]


def detr() -> list[Layer]:
    mlp = "mlp.fc1 mlp.fc2"
    # Constant sine waves are added to the stream of the encoder; the queries of the decoder are learned.
    found = [Layer("model.encoder.layers.0", DETR_SELF, mlp, fixed="meets positions that are fixed")]
    return found + [Layer("model.decoder.layers.1", text, mlp) for text in (DETR_SELF, DETR_CROSS)]


def t5() -> list[Layer]:
    found = [Layer("encoder.block.1", T5_SELF, "layer.1.DenseReluDense.wi layer.1.DenseReluDense.wo")]
    mlp = "layer.2.DenseReluDense.wi layer.2.DenseReluDense.wo"
    return found + [Layer("decoder.block.1", text, mlp) for text in (T5_SELF, T5_CROSS)]


TABLE: dict[str, list[Layer]] = {
    "bert": [Layer("bert.encoder.layer.0", *BERT)],
    "roberta": [Layer("roberta.encoder.layer.0", *BERT)],
    "distilbert": [
        Layer(
            "distilbert.transformer.layer.1",
            "attention.q_lin attention.k_lin attention.v_lin attention.out_lin",
            "ffn.lin1 ffn.lin2",
        )
    ],
    "albert": [
        Layer(
            "albert.encoder.albert_layer_groups.0.albert_layers.0",
            "attention.query attention.key attention.value attention.dense",
            "ffn ffn_output",
        )
    ],
    "gpt2": [
        Layer(
            "transformer.h.1",
            "attn.c_attn attn.c_attn attn.c_attn attn.c_proj",
            "mlp.c_fc mlp.c_proj",
            hidden=128,
        )
    ],
    "gpt_neox": [
        Layer(
            "gpt_neox.layers.1",
            "attention.query_key_value attention.query_key_value attention.query_key_value attention.dense",
            "mlp.dense_h_to_4h mlp.dense_4h_to_h",
        )
    ],
    "opt": [Layer("model.decoder.layers.0", BART_SELF, "fc1 fc2")],
    "llama": rotary(),
    "mistral": rotary(),
    "qwen2": rotary(),
    # A norm on q and k with gains that all heads share: so is the scale.
    "qwen3": rotary(blocks=1),
    "gemma": rotary(),
    "phi": rotary(names=(DETR_SELF.replace("o_proj", "dense"), "mlp.fc1 mlp.fc2")),
    "t5": t5(),
    "bart": seq2seq(),
    "vit": [Layer("vit.layers.1", *VIT)],
    "deit": [Layer("deit.layers.1", *VIT)],
    "swin": [
        Layer("swin.encoder.layers.0.blocks.1", *VIT, heads=3, width=24, hidden=96),
        Layer("swin.encoder.layers.1.blocks.0", *VIT, heads=6, width=48, hidden=192),
    ],
    "convnext": [Layer("convnext.encoder.stages.1.layers.0", "", "pwconv1 pwconv2", width=40, hidden=160)],
    "clip": towers(),
    "siglip": towers(),
    "dinov2": [Layer("dinov2.encoder.layer.1", *VIT, hidden=128)],
    "whisper": seq2seq(),
    "wav2vec2": [
        Layer(
            "wav2vec2.encoder.layers.1",
            VIT[0].replace("o_proj", "out_proj"),
            "feed_forward.intermediate_dense feed_forward.output_dense",
            width=8,  # in each of the 4 groups of a convolution, moved by the same permutation
        )
    ],
    "sam": sam(),
    "segformer": [Layer("segformer.stages.1.blocks.0", *VIT, width=40, hidden=80)],
    "detr": detr(),
    "mamba": [Layer("backbone.layers.0", "", "mixer.in_proj mixer.out_proj")],
}


def carrying(symmetry: Symmetry, *places: tuple[str, str]) -> list[Axis]:
    """Axes that all these weights carry, given by name and role."""
    return [a for a in symmetry.axes if set(places) <= {(m.param, m.role) for m in a.members}]


def assert_heads(symmetry: Symmetry, layer: Layer) -> None:
    q, k, v, o = layer.names(layer.attention)
    groups = layer.groups or layer.heads
    shared = carrying(symmetry, (q, "out"), (k, "out"), (v, "out"), (o, "in"))
    moving = [a.size for a in shared if a.group.permutation and not a.group.linear]
    assert moving == [groups], "one axis of heads"
    if groups < layer.heads:
        inside = carrying(symmetry, (q, "out"), (o, "in"))
        assert [a.size for a in inside if a.group.permutation and a.group.blocks == groups] == [layer.heads]
    values = [a for a in carrying(symmetry, (v, "out"), (o, "in")) if a.group.name == LINEAR]
    assert [a.group.blocks for a in values] == [groups], "any matrix between v and o in each head"
    scores = [a for a in carrying(symmetry, (q, "out"), (k, "out")) if a not in carrying(symmetry, (o, "in"))]
    found = {a.group.blocks for a in scores if a.group.name == layer.query_key}
    assert found == {layer.query_key_blocks or groups}, "q and k"


def assert_stream(symmetry: Symmetry, layer: Layer) -> None:
    up, down = layer.names(layer.mlp)
    written = [(down, "out"), *((o, "out") for o in layer.names(layer.attention)[3:])]
    found = carrying(symmetry, (up, "in"), *written)
    moving = [a for a in found if a.group.permutation and a.size == layer.width]
    if layer.fixed:
        assert not moving
        assert [layer.fixed in a.frozen_because for a in found] == [True]
    else:
        assert len(moving) == 1, "the residual stream"


def test_the_table_has_every_family() -> None:
    assert set(TABLE) == set(FAMILIES)


# Nightly: a large one, and those whose blocks are the blocks of llama, vit and bert.
NIGHTLY = ("sam", "mistral", "qwen2", "deit", "roberta")


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=pytest.mark.nightly if name in NIGHTLY else ()) for name in TABLE]
)
def test_family_is_exact_and_its_axes_are_found(family: str) -> None:
    source = zoo.resolve(f"hf:{family}")
    symmetry = trace(source.model, source.example, source.kwargs)
    # another element than the two of the proof, and the control
    report = verify(source.model, source.example, kwargs=source.kwargs, symmetry=symmetry, seed=2)
    assert report.max_error <= 1e-10
    assert report.control_error >= 1e-4
    assert not report.unknown_ops
    for layer in TABLE[family]:
        up, down = layer.names(layer.mlp)
        hidden = [a for a in carrying(symmetry, (up, "out"), (down, "in")) if a.group.permutation]
        assert [a.size for a in hidden] == [layer.hidden], "the hidden axis of the MLP"
        if layer.attention:
            assert_heads(symmetry, layer)
        assert_stream(symmetry, layer)

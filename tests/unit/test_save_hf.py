"""save_pretrained in, from_pretrained out: merged models load and generate without intertwine."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open

import intertwine
from intertwine import Symmetry, trace
from intertwine.errors import InputError, NotFound, WeightsError
from intertwine.merging import MergePlan, Options, Planner, apply_merge
from intertwine.merging.config_fields import ConfigNumbers, narrowed_configs
from intertwine.merging.limits import Limits, layer_key
from intertwine.merging.said import UNSAID
from intertwine.merging.sequential import fitted
from intertwine.vision_shim import import_transformers
from intertwine.zoo import Source, reloaded, resolve
from intertwine.zoo.saving import CODE, _auto_classes, how_to_load, save_model
from repeats import ALL

pytest.importorskip("transformers")

FAMILIES = ["gpt2", "llama", "bert", "vit", "t5", *(["mistral", "qwen2"] if ALL else [])]
# Heads and ranks go too, each layer its own; by day a gated one with one matrix for all, and a plain one.
MORE = ["phi3", "opt", *(["gemma2", "bloom", "gpt_neox"] if ALL else [])]
# In a process of its own; torchvision may lack its compiled operators, which transformers would trip over.
LOADER = """
import sys, torch, json
library = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
import transformers
found = {}
for place in sys.argv[2:]:
    folder, head = place.split("=")
    load = getattr(transformers, head).from_pretrained
    model = load(folder, trust_remote_code=sys.argv[1] == "trust").eval()
    saved = torch.load(folder + "/../expected.pt")
    with torch.no_grad():
        out = model(*saved["example"], **saved["kwargs"])
    error = float((out["logits"] - saved["logits"]).abs().max())
    tokens = 0
    if model.can_generate():
        how = {"decoder_start_token_id": 0} if model.config.is_encoder_decoder else {}
        how |= {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
        tokens = model.generate(saved["example"][0], **how).shape[1]
    found[folder] = {"error": error, "tokens": tokens, "class": type(model).__name__}
found["clean"] = not any(name.split(".")[0] == "intertwine" for name in sys.modules)
print(json.dumps(found))
"""


def load_elsewhere(places: dict[Path, str], trust: str = "") -> dict[str, Any]:
    command = [sys.executable, "-c", LOADER, trust, *(f"{folder}={head}" for folder, head in places.items())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def planner_of(source: Source, symmetry: Symmetry | None = None, **limits: Any) -> Planner:
    symmetry = symmetry or trace(source.model, source.example, source.kwargs)
    options = Options(limits=Limits(**limits))
    return Planner(source.model, symmetry, options, inputs=(source.example, source.kwargs))


def expect(small: torch.nn.Module, source: Source, folder: Path) -> None:
    """What the merged model computes, for another process to compare."""
    with torch.no_grad():
        logits = small(*source.example, **source.kwargs)["logits"]
    saved = {"example": source.example, "kwargs": source.kwargs, "logits": logits}
    torch.save(saved, folder / "expected.pt")


def auto_class(family: str) -> str:
    heads = {"bert": "AutoModelForMaskedLM", "vit": "AutoModelForImageClassification"}
    heads["t5"] = "AutoModelForSeq2SeqLM"
    return heads.get(family, "AutoModelForCausalLM")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every family: save_pretrained, read, prove, merge to 70 %, save; then loaded by another process."""
    places = {}
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp(family)
        sizes = "hidden=160" if family == "vit" else "layers=2&hidden=160&vocabulary=40"
        resolve(f"hf:{family}?{sizes}").model.save_pretrained(folder / "in")  # type: ignore[operator]
        source = resolve(f"hf:{folder / 'in'}")
        symmetry = trace(source.model, source.example, source.kwargs)
        assert symmetry.proof.max_error < 1e-10
        key = ConfigNumbers(source.model, [a for a in symmetry.axes if a.mergeable]).key
        plan = planner_of(source, symmetry, uniform=key).at_share(0.7, "parameters")
        small = apply_merge(source.model, plan)
        save_model(small, source, folder / "out", {"method": plan.method})
        expect(small, source, folder)
        before, after = (sum(p.numel() for p in m.parameters()) for m in (source.model, small))
        assert after <= 0.7 * before
        places[family] = folder / "out"
    return {**places, "loaded": load_elsewhere({places[f]: auto_class(f) for f in FAMILIES})}


@pytest.mark.parametrize("family", FAMILIES)
def test_save_merge_load_generate(family: str, written: dict[str, Any]) -> None:
    folder: Path = written[family]
    found = written["loaded"][str(folder)]
    assert written["loaded"]["clean"]
    assert found["error"] < 1e-5
    assert found["tokens"] > 1 or family in ("bert", "vit")
    assert not (folder / CODE).exists() and how_to_load(folder) == ""
    # negative control: the untouched model computes something else
    saved = torch.load(folder.parent / "expected.pt")
    whole, again = resolve(f"hf:{folder.parent / 'in'}").model, intertwine.load(folder)
    with torch.no_grad():
        a, b = (m(*saved["example"], **saved["kwargs"])["logits"] for m in (whole, again))
    assert torch.allclose(b, saved["logits"], atol=1e-5)
    assert float((a - b).abs().max()) > 1e-4


def test_a_ratio_of_a_config_says_widths_too() -> None:
    """Hiera's mlp_ratio is a real number; Dinov2's must be whole, which its config says, not we."""
    transformers = import_transformers()
    sizes = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "image_size": [32, 32]}
    sizes |= {"patch_stride": [8, 8], "masked_unit_size": [2, 2], "query_stride": [1, 1]}
    config = transformers.HieraConfig(num_query_pool=1, embed_dim_multiplier=1.0, mlp_ratio=4.0, **sizes)
    plain = transformers.Dinov2Config(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, mlp_ratio=4)
    found = []
    for model in (transformers.HieraModel(config), transformers.Dinov2Model(plain)):
        shapes = {n: tuple(p.shape) for n, p in model.named_parameters(remove_duplicate=False)}
        for width in (47, 48):
            narrow = {n: tuple(width if d == 64 else d for d in s) for n, s in shapes.items() if "mlp" in n}
            found.append(next(narrowed_configs(model, shapes | narrow), None))
    assert [made and made.mlp_ratio for made in found] == [47 / 16, 3, None, 3]


def test_numbers_that_only_fit_together_are_found() -> None:
    """Heads of half the size fit keys and values alone; queries then fit no number of heads."""
    transformers = import_transformers()
    sizes = {
        "vocab_size": 9,
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "intermediate_size": 16,
        "head_dim": 8,
    }
    model, small = (
        transformers.LlamaModel(
            transformers.LlamaConfig(**sizes, num_attention_heads=heads, num_key_value_heads=groups)
        )
        for heads, groups in ((4, 2), (1, 1))
    )
    shapes = {n: tuple(p.shape) for n, p in small.named_parameters()}
    found = [(c.num_attention_heads, c.num_key_value_heads) for c in narrowed_configs(model, shapes)]
    assert (1, 1) in found


def test_the_auto_classes_of_any_head() -> None:
    """A folder with code is loaded by the Auto class of its head, whichever that is."""
    transformers = import_transformers()
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    heads = ("TokenClassification", "QuestionAnswering", "MaskedLM", "NextSentencePrediction")
    for head in heads:
        model = getattr(transformers, f"BertFor{head}")(transformers.BertConfig(vocab_size=9, **sizes))
        assert _auto_classes(model) == [f"AutoModelFor{head}"]
    plain = transformers.BertModel(transformers.BertConfig(vocab_size=9, **sizes))
    assert "AutoModel" in _auto_classes(plain)
    mpt = transformers.MptConfig(d_model=8, n_heads=2, n_layers=1, vocab_size=9)
    several = _auto_classes(transformers.MptForCausalLM(mpt))
    assert set(several) == {"AutoModelForCausalLM", "AutoModelForPreTraining"}


def test_a_loaded_model_whose_weights_have_other_names_on_disk(tmp_path: Path) -> None:
    """gpt_neox has lm_head in memory and embed_out on disk, but not as a class that transformers lacks."""
    resolve("hf:gpt_neox?vocabulary=40").model.save_pretrained(tmp_path / "in")  # type: ignore[operator]
    source = resolve(f"hf:{tmp_path / 'in'}")
    symmetry = trace(source.model, source.example)
    planner = planner_of(source, symmetry, ratios={"layers.0.mlp.*": 0.5})
    small = apply_merge(source.model, planner.at_share(1.0, "parameters"))
    out = save_model(small, source, tmp_path / "out")
    assert (out / CODE).is_file()
    names = [set(safe_open(d / "model.safetensors", "pt").keys()) for d in (tmp_path / "in", out)]
    assert "embed_out.weight" in names[0] and "lm_head.weight" in names[1]


def test_stored_statistics_are_narrowed_too(tmp_path: Path) -> None:
    source = resolve("hf:resnet")
    symmetry = trace(source.model, source.example)
    axis = [a for a in symmetry.axes if a.mergeable][-1]  # inside a block, which no config says
    planner = planner_of(source, symmetry, ratios={axis.name: 0.5})
    small = apply_merge(source.model, planner.at_share(1.0, "parameters"))
    out = save_model(small, source, tmp_path / "out")  # loads it again, and compares what it computes
    assert "running_var" in json.dumps(json.loads((out / "config.json").read_text())["narrow"]["shapes"])


@dataclass(frozen=True)
class Written:
    """A smaller model, the folder that it was saved in, and the class that loads it."""

    source: Source
    model: torch.nn.Module
    plan: MergePlan
    out: Path
    loader: str


def own_widths(folder: Path) -> Written:
    """Every layer its own width."""
    source = resolve("hf:gpt2?layers=2&hidden=96")
    planner = planner_of(source, ratios={"h.0.mlp.*": 0.5, "h.1.mlp.*": 0.25})
    plan = planner.at_share(1.0, "parameters")
    small = apply_merge(source.model, plan)
    return Written(source, small, plan, save_model(small, source, folder), auto_class("gpt2"))


def cut(family: str, folder: Path) -> Written:
    """Every kind of axis one narrower."""
    source = resolve(f"hf:{family}?layers=1&vocabulary=40")
    symmetry = trace(source.model, source.example, source.kwargs)
    call = (source.example, source.kwargs)
    planner = Planner(source.model, symmetry, Options("sequential"), inputs=call)
    plan = fitted(planner, planner.weighed.to_widths({a.name: a.size - 1 for a in planner.weighed.axes}))
    small = apply_merge(source.model, plan)
    out = save_model(small, source, folder, {"method": "sequential"})
    return Written(source, small, plan, out, auto_class(family))


def rewritten(family: str, sizes: str, rewriting: str, folder: Path) -> Written:
    """GPT-2 with its norms folded, its head untied and its stream cut; T5, which looks its table up in two
    places; Llama with a factored table."""
    source = resolve(f"hf:{family}?layers=1&{sizes}")
    result = intertwine.merge(
        source.model, source.example, kwargs=source.kwargs, method="sequential", target_params=0.8,
        fold=rewriting == "fold", factor=rewriting == "factor",
        kinds="stream" if rewriting == "fold" else "all",
    )  # fmt: skip
    out = save_model(result.model, source, folder, result.details())
    return Written(source, result.model, result.plan, out, auto_class(family))


REWRITTEN = {
    "gpt2-fold": ("gpt2", "hidden=48", "fold"),
    "gemma-fold": ("gemma", "hidden=48", "fold"),
    "llama-factor": ("llama", "vocabulary=200", "factor"),
    **({"t5-fold": ("t5", "hidden=48", "fold")} if ALL else {}),
}
CUT = [*MORE, "bert"]


@pytest.fixture(scope="module")
def with_code(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Written], dict[str, Any]]:
    """What transformers lacks a class for, by name, and how one other process loaded it all."""

    def folder() -> Path:
        return tmp_path_factory.mktemp("code") / "out"

    made = {"widths": own_widths(folder())}
    made |= {family: cut(family, folder()) for family in CUT}
    made |= {name: rewritten(*row, folder()) for name, row in REWRITTEN.items()}
    for each in made.values():
        expect(each.model, each.source, each.out.parent)
    loaded = load_elsewhere({each.out: each.loader for each in made.values()}, "trust")
    assert loaded["clean"]
    return made, {name: loaded[str(each.out)] for name, each in made.items()}


def assert_alike(found: dict[str, Any], name: str) -> None:
    """The other process computed and wrote what was expected."""
    assert found[name]["error"] < 1e-5
    assert found[name]["tokens"] > 1 or name == "bert"


def test_widths_that_no_config_can_say(with_code: tuple[dict[str, Written], dict[str, Any]]) -> None:
    """Every layer its own width: a small module beside the config, which runs only where it is allowed."""
    (made, found), name = with_code, "widths"
    source, small, out = made[name].source, made[name].model, made[name].out
    assert not list(narrowed_configs(source.model, {n: tuple(p.shape) for n, p in small.named_parameters()}))
    assert (out / CODE).is_file()
    said = how_to_load(out)
    assert "trust_remote_code=True" in said and all(c in said for c in _auto_classes(source.model))
    assert_alike(found, name)
    assert found[name]["class"] == "NarrowGPT2LMHeadModel"
    with pytest.raises(InputError, match="run-code"):
        intertwine.load(out)
    again = intertwine.load(out, run_code=True)
    with torch.no_grad():
        both = [m(*source.example)["logits"] for m in (small, again)]
    assert torch.allclose(*both, atol=1e-5)


@pytest.mark.parametrize("family", CUT)
def test_heads_and_ranks_that_were_cut_load_elsewhere(
    family: str, with_code: tuple[dict[str, Written], dict[str, Any]]
) -> None:
    kinds = {a.kind for a in with_code[0][family].plan.axes if a.merges}
    assert kinds >= ({"channels", "heads", "rank"} if family in ("opt", "bert") else {"channels"})
    assert_alike(with_code[1], family)


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_rewritten_model_loads_elsewhere(
    name: str, with_code: tuple[dict[str, Written], dict[str, Any]]
) -> None:
    assert "factor" in name or with_code[0][name].plan.merges
    assert_alike(with_code[1], name)


def test_what_is_written_otherwise_is_refused(tmp_path: Path) -> None:
    """Another value, a name that is renamed on one way only, a number of the config that is no width."""
    source = resolve("hf:gpt_neox?layers=1&vocabulary=40")
    meant, kind = source.model, type(source.model)

    def written(state: dict[str, torch.Tensor], **config: Any) -> Path:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        meant.save_pretrained(folder, state_dict=state)  # type: ignore[operator]
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
        return folder

    state = meant.state_dict()
    reloaded.check_written(written(state), kind, meant, source)
    name = "gpt_neox.layers.0.mlp.dense_h_to_4h.bias"
    touched = state[name].clone()
    touched[0] += 1e-6
    renamed = {n.replace("lm_head", "other_head"): t for n, t in state.items()}
    for folder, reason in [
        (written({**state, name: touched}), "dense_h_to_4h.bias would be loaded otherwise"),
        (written(renamed), "lm_head.weight would be loaded otherwise"),
        (written(state, num_attention_heads=2), "its predictions differ"),
        (written(state, intermediate_size=24), "transformers cannot load it again"),
    ]:
        with pytest.raises(WeightsError, match=reason) as error:
            reloaded.check_written(folder, kind, meant, source)
        assert "nothing was written" in str(error.value)


def test_an_existing_folder_is_kept_unless_it_is_ours(tmp_path: Path) -> None:
    source = resolve("hf:bert?layers=1")
    save_model(source.model, source, tmp_path / "out")
    save_model(source.model, source, tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        save_model(source.model, source, tmp_path / "out")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_tokenizers_go_along(tmp_path: Path) -> None:
    toy = resolve("hf:bert?layers=1")
    toy.model.save_pretrained(tmp_path / "in")  # type: ignore[operator]
    for name in ("tokenizer.json", "vocab.txt", "special_tokens_map.json"):
        (tmp_path / "in" / name).write_text("{}")
    source = resolve(f"hf:{tmp_path / 'in'}")
    out = save_model(source.model, source, tmp_path / "out")
    assert {"tokenizer.json", "vocab.txt", "special_tokens_map.json"} <= {p.name for p in out.iterdir()}


def test_uniform_cuts_what_the_config_says(tmp_path: Path) -> None:
    """The head of a classifier is as wide as the stream: it goes only where the rest is not enough."""
    source = resolve("hf:distilbert?layers=1&vocabulary=40")
    classifier: Any = import_transformers().DistilBertForSequenceClassification
    model = classifier(source.model.config).eval()
    symmetry = trace(model, source.example)

    def cut(share: float) -> dict[str, int]:
        wanted: dict[str, Any] = {"target_params": share, "uniform": True, "method": "moments"}
        return intertwine.merge(model, source.example, symmetry=symmetry, **wanted).plan.complexity

    assert "pre_classifier" not in cut(0.9)
    assert cut(0.7)["pre_classifier"] < 32


def test_uniform_cuts_every_kind_that_a_config_can_say(tmp_path: Path) -> None:
    """The stream, key-value groups and experts too: plain folders, with the norms and the head of the family.

    Gemma's norms have the gain 1 + w, its embedding multiplies rows by the root of their width, and its head
    is untied; Mixtral's config leaves the width of heads open.
    """
    wanted = {"llama": 0.2, **({"gemma": 0.2, "mixtral": 0.15} if ALL else {})}
    places = {}
    for family, share in wanted.items():
        folder = tmp_path / family
        made: Any = resolve(f"hf:{family}?layers=2&vocabulary=40").model
        made.save_pretrained(folder / "in")
        source = resolve(f"hf:{folder / 'in'}")
        merged = intertwine.merge(
            source.model, source.example, kwargs=source.kwargs, target_params=share, uniform=True, fold=True
        )
        cut = {axis.kind for axis in merged.plan.axes if axis.merges}
        assert cut >= {"channels", "stream"} and merged.folding is None
        assert merged.parameters_after <= share * merged.parameters_before
        save_model(merged.model, source, folder / "out", merged.details(None))
        assert not (folder / "out" / CODE).exists()
        before, after = (json.loads((folder / d / "config.json").read_text()) for d in ("in", "out"))
        assert after["hidden_size"] < before["hidden_size"]
        expect(merged.model, source, folder)
        places[folder / "out"] = "AutoModelForCausalLM"
    loaded = load_elsewhere(places)
    assert loaded["clean"]
    assert all(loaded[str(place)]["error"] < 1e-5 and loaded[str(place)]["tokens"] > 1 for place in places)


def test_norms_come_back_in_the_precision_of_the_model() -> None:
    source = resolve("hf:llama?layers=1&vocabulary=40")
    model: Any = source.model.to(torch.bfloat16)
    merged = intertwine.merge(
        model, source.example, kwargs=source.kwargs, target_params=0.2, uniform=True, fold=True
    )
    assert merged.folding is None and "stream" in {a.kind for a in merged.plan.axes if a.merges}
    assert {p.dtype for p in merged.model.parameters()} == {torch.bfloat16}
    assert merged.model(*source.example, **source.kwargs)["logits"].dtype == torch.bfloat16


def test_what_no_config_can_say_stays() -> None:
    """BERT's heads are a part of the width of its stream; an untied head of T5 would untie all its tables."""
    for family in ("bert", "t5"):
        source = resolve(f"hf:{family}?layers=1&vocabulary=40")
        merged = intertwine.merge(
            source.model, source.example, kwargs=source.kwargs, target_params=0.9, uniform=True
        )
        assert merged.folding is None
        assert "stream" not in {axis.kind for axis in merged.plan.axes}
        assert family == "t5" or UNSAID in merged.plan.left_alone.values()


def test_experts_keep_widths_that_the_grouped_product_takes(tmp_path: Path) -> None:
    source = resolve("hf:mixtral?layers=1&vocabulary=40")
    symmetry = trace(source.model, source.example)
    goal: dict[str, Any] = {"target_params": 0.9, "method": "magnitude"}
    merged = intertwine.merge(source.model, source.example, symmetry=symmetry, **goal)
    assert set(merged.plan.complexity.values()) <= {8, 16, 24, 32, 40}
    save_model(merged.model, source, tmp_path / "out")  # loaded again, the library's own kernel runs


def test_limits_hold() -> None:
    """Multiples, ratios and axes left alone, with and without a budget."""
    source = resolve("hf:llama?layers=3&hidden=96")
    symmetry = trace(source.model, source.example, source.kwargs)

    def planner(**limits: Any) -> Planner:
        return planner_of(source, symmetry, **limits)

    widths = planner(multiple=8).at_share(0.8, "parameters").complexity
    assert all(width % 8 == 0 for width in widths.values())
    assert min(widths.values()) < 96
    uniform = planner(multiple=16, uniform=layer_key).at_share(0.8, "parameters").complexity
    assert len(set(uniform.values())) == 1
    assert set(uniform.values()) < {16, 32, 48, 64, 80}
    ratios = planner(ratios={"layers.1.mlp.*": 0.5}).at_share(1.0, "parameters").complexity
    assert sorted(ratios.values()) == [48, 96, 96]
    ignored = planner(ignore=("layers.0.*",))
    assert len(ignored.at_share(0.9, "parameters").complexity) == 2
    assert "as asked" in next(iter(ignored.rigid.values()))
    at_beta = planner(uniform=layer_key, multiple=8).at_beta(0.5).complexity
    assert len(set(at_beta.values())) == 1
    assert all(width % 8 == 0 for width in at_beta.values())
    with pytest.raises(NotFound, match="nothing"):
        planner(ignore=("nothing.*",))
    with pytest.raises(InputError, match="ratio"):
        Limits(ratios={"mlp": 1.0})


def test_a_full_disk_is_said_to_be_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    source = resolve("hf:gpt2")
    monkeypatch.setattr(type(source.model), "save_pretrained", full)
    with pytest.raises(InputError, match="No space left on device"):
        save_model(source.model, source, tmp_path / "small")
    assert not list(tmp_path.iterdir())

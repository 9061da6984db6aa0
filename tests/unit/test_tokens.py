"""Text as windows: what is predicted of each, and `evaluate` on it against a direct computation."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from intertwine.data import Tokens, evaluate, load_data
from intertwine.data.evaluation import embedding_of
from intertwine.data.preparation import Preparation
from intertwine.errors import DataError, ModelError

TEXT = "the cat sat on the mat. the dog sat on the log.\n" * 40


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text(TEXT)
    return tmp_path / "a.txt"


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of whole words with BERT's special tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the cat sat on mat dog log .".split()]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({n: i for i, n in enumerate(names)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    from intertwine.vision_shim import import_transformers

    folder = tmp_path_factory.mktemp("words")
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "unk_token": "[UNK]"}
    import_transformers().PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)
    return folder


def test_causal_windows(file: Path) -> None:
    """Every character but the first is predicted once, by the one before it."""
    data = load_data(f"text:{file}", context=10)
    assert isinstance(data, Tokens)
    number = {c: i for i, c in enumerate(sorted(set(TEXT)))}
    flat = [number[c] for c in TEXT]
    assert data.images.flatten().tolist() == flat[: 10 * len(data)]
    assert data.labels.flatten().tolist() == flat[1 : 10 * len(data) + 1]
    assert len(data) == (len(TEXT) - 1) // 10
    assert len(load_data(f"text:{file}", context=10, limit=3)) == 3
    assert data.take(2).images.equal(data.images[:2])
    assert data.take(2).fingerprint() != data.fingerprint()


def test_windows_without_a_length(file: Path, words: Path) -> None:
    """As long as the model takes, up to a bound: what is embedded is no longer than a paragraph."""
    lengths = {}
    for objective in ("causal", "masked", "embedding"):
        for most in (64, 100_000):
            known = Preparation(tokenizer=str(words), context=most, objective=objective)
            lengths[objective, most] = load_data(f"text:{file}", limit=1, prepare=known).shape[0]
    assert all(lengths[objective, 64] == 64 for objective in ("causal", "masked", "embedding"))
    assert [lengths[objective, 100_000] for objective in ("causal", "masked", "embedding")] == [512, 512, 128]


def test_parts_folders_and_parquet(file: Path) -> None:
    """A part has the vocabulary of the whole; a folder and a table read as the text in them."""
    whole = load_data(f"text:{file}", context=8)
    part = load_data(f"text:{file}[50%:]", context=8)
    start = len(TEXT) // 2
    number = {c: i for i, c in enumerate(sorted(set(TEXT)))}
    assert part.images.flatten().tolist() == [number[c] for c in TEXT[start:]][: 8 * len(part)]
    (file.parent / "b.txt").write_text(TEXT)
    assert abs(len(load_data(f"text:{file.parent}", context=8)) - 2 * len(whole)) <= 1
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    rows = TEXT.splitlines()
    pyarrow.parquet.write_table(pa.table({"text": rows, "id": range(len(rows))}), file.parent / "t.parquet")
    assert load_data(f"parquet:{file.parent / 't.parquet'}", context=8).images.equal(whole.images)
    for bad in ("[60%:50%]", "[0%:200%]"):
        with pytest.raises(DataError, match="no part"):
            load_data(f"text:{file}{bad}")


class Bigram(nn.Module):
    """Scores of the next token from this one."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, vocabulary)

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        return {"logits": self.table(ids)}


def test_evaluate_predicts_tokens(file: Path) -> None:
    torch.manual_seed(0)
    data, model = load_data(f"text:{file}", context=7), Bigram(len(set(TEXT)))
    got = evaluate(model, data, batch=5)
    with torch.no_grad():
        logp = model(data.images)["logits"].double().log_softmax(-1)
    each = -logp.gather(-1, data.labels[..., None])[..., 0]
    assert got.loss == pytest.approx(float(each.mean()), rel=1e-9)
    assert got.accuracy == pytest.approx(float((logp.argmax(-1) == data.labels).double().mean()))
    assert got.tokens == data.labels.numel()
    assert got.perplexity == pytest.approx(math.exp(got.loss))
    # windows of one length: the interval is that of the mean over windows
    expected = 1.96 * float(each.mean(1).std()) / math.sqrt(len(data))
    assert got.loss_error == pytest.approx(expected, rel=1e-6)
    assert evaluate(model, data, batch=64).loss == pytest.approx(got.loss, rel=1e-12)


def test_masked_words(file: Path, words: Path) -> None:
    """Hidden tokens and only those are targets, the same ones in any batches, between [CLS] and [SEP]."""
    data = load_data(f"text:{file}", context=12, tokenizer=str(words), objective="masked")
    inputs, targets = data.images, data.labels
    assert (inputs[:, 0] == 2).all()
    assert (inputs[:, -1] == 3).all()
    hidden = targets != -100
    assert hidden.equal(inputs == 4)
    assert 0.05 < float(hidden.double().mean()) < 0.25
    again = torch.cat([x for x, _ in data.batches(3)])
    assert again.equal(inputs)
    with pytest.raises(DataError, match="mask token"):
        load_data(f"text:{file}", context=12, objective="masked")


class Mean(nn.Module):
    """An encoder: vectors of tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(30, width)

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        return {"last_hidden_state": self.table(ids)}


def test_embeddings_are_compared_with_a_reference(file: Path, words: Path) -> None:
    data = load_data(f"text:{file}", context=12, tokenizer=str(words), objective="embedding")
    torch.manual_seed(0)
    a, b = Mean(6), Mean(6)
    assert evaluate(a, data, reference=a).cosine == pytest.approx(1, abs=1e-6)
    with torch.no_grad():
        direct = torch.cosine_similarity(embedding_of(a(data.images)), embedding_of(b(data.images))).mean()
    got = evaluate(a, data, reference=b, batch=3)
    assert got.cosine == pytest.approx(float(direct), abs=1e-6)
    assert "cosine" in got.to_dict()
    assert "loss" not in got.to_dict()
    with pytest.raises(DataError, match="reference"):
        evaluate(a, data)
    with pytest.raises(ModelError, match="embeddings of shapes"):
        evaluate(a, data, reference=Mean(5))


def test_what_does_not_fit(file: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the model only 5 tokens"):
        evaluate(nn.Sequential(nn.Embedding(99, 5)), load_data(f"text:{file}", context=8))
    with pytest.raises(DataError, match="fewer than one window"):
        load_data(f"text:{file}", context=100_000)
    with pytest.raises(DataError, match="no texts"):
        (tmp_path / "empty").mkdir()
        load_data(f"text:{tmp_path / 'empty'}")
    with pytest.raises(DataError, match="tokenizer"):
        load_data(f"text:{file}", tokenizer=str(tmp_path / "empty"))
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9" * 9)
    with pytest.raises(DataError, match="cannot read"):
        load_data(f"text:{tmp_path / 'latin.txt'}", context=4)

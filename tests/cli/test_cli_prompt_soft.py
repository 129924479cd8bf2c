"""`hush prompt soft` with small models of random weights on real questions."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from command_line import Answer, call

from hush import Ledger, data
from hush.errors import DataMissing

pytest.importorskip("transformers")
logging.getLogger("transformers").setLevel(logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
WORDS = ("abbreviation", "description", "entity", "person", "location", "number")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of an encoder and of a causal model, whose vocabulary is the questions' first words and the labels."""
    if "HUSH_DATA" not in os.environ:
        pytest.skip("HUSH_DATA is not set")
    try:
        texts = data.load_labelled_texts("trec", "test").texts
    except DataMissing as error:
        pytest.skip(str(error))
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertForSequenceClassification
    from transformers.models.gpt2.configuration_gpt2 import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel

    names = ["[PAD]", "[UNK]", "[CLS]", *WORDS, *sorted({text.split()[0] for text in texts} - set(WORDS))]
    inner = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]")
    torch.manual_seed(0)
    encoder = BertConfig(vocab_size=len(names), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                         intermediate_size=16, num_labels=6, max_position_embeddings=64)  # fmt: skip
    causal = GPT2Config(vocab_size=len(names), n_embd=16, n_layer=2, n_head=2, n_positions=64)
    folder = tmp_path_factory.mktemp("models")
    for name, model in (("encoder", BertForSequenceClassification(encoder)), ("causal", GPT2LMHeadModel(causal))):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def soft(capsys: pytest.CaptureFixture[str], *more: object) -> Answer:
    quick = ("--data", "trec", "--limit", 300, "--test-limit", 60, "--steps", 4, "--expected-batch-size", 60,
             "--most-tokens", 12, "--length", 3, "--seed", 1)  # fmt: skip
    return call(capsys, "prompt", "soft", *quick, *more)


def test_json_has_the_facts_and_the_file_loads(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, models: Path
) -> None:
    out, ledger = tmp_path / "prompt.safetensors", tmp_path / "budget.db"
    spend = ("--epsilon", 3, "--delta", 1e-3, "--out", out, "--ledger", ledger, "--json")
    answer = soft(capsys, "--model", models / "encoder", "--classifier", "--per-layer", *spend)
    assert answer.code == 0, answer.err
    found: dict[str, Any] = answer.data
    assert found["epsilon"] <= 3
    assert (found["delta"], found["steps"], found["sampling_prob"]) == (1e-3, 4, 0.2)
    assert 0 <= found["accuracy"] <= 1
    assert found["trained_parameters"] == 3 * 16 + 3 * 16 + 6 * 16 + 6  # two layers' vectors and the head
    assert Ledger(ledger).account("trec").spent().epsilon == pytest.approx(found["epsilon"], rel=1e-6)
    from transformers.models.bert.modeling_bert import BertForSequenceClassification

    from hush.prompts import SoftPrompt

    prompt = SoftPrompt.load(out, BertForSequenceClassification.from_pretrained(models / "encoder"))
    assert prompt.length == 3
    again = soft(capsys, "--model", models / "encoder", "--classifier", *spend)
    assert again.is_refused()
    assert "there already" in again.err
    out.unlink()
    assert soft(capsys, "--model", models / "encoder", "--classifier", *spend).code == 1  # the account is spent
    assert not out.exists()


def test_a_causal_model_answers_with_label_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, models: Path
) -> None:
    spend = ("--epsilon", 3, "--delta", 1e-3, "--out", tmp_path / "prompt.safetensors")
    answer = soft(capsys, "--model", models / "causal", "--label-words", ",".join(WORDS), *spend)
    assert answer.code == 0, answer.err
    assert "accuracy with the trained ones" in answer.out
    assert "0.001)-differential privacy" in answer.out
    few = soft(capsys, "--model", models / "causal", "--label-words", "number,person", "--epsilon", 3, "--delta", 1e-3)
    assert few.is_refused()
    assert "6 words" in few.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "trec", "--model", "nowhere"), "--epsilon"),
        (("--data", "trec", "--model", "nowhere", "--epsilon", 1, "--delta", 1e-5), "no folder"),
        (("--data", "mine", "--model", "nowhere", "--epsilon", 1, "--delta", 1e-5), "sst2"),
        (("--data", "sst2", "--model", "http://a.b", "--epsilon", 1, "--delta", 1e-5), "not an address"),
        (("--data", "sst2", "--model", "nowhere", "--classifier", "--epsilon", 1, "--delta", 1e-5), "no folder"),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    answer = call(capsys, "prompt", "soft", *arguments, "--out", tmp_path / "out.safetensors")
    assert answer.is_refused(), answer.err
    assert message in answer.err

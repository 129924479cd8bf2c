"""Soft prompts: what the frozen model sees, exact gradients of every example, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.gradients.naive_loop import TIGHT, naive, relative_error
from tests.prompts import tiny_models
from tests.prompts.tiny_models import (
    CAUSAL,
    ENCODERS,
    LABELS,
    NAMES,
    ROUNDED,
    TOKENS,
    UNFOLLOWED,
    VOCABULARY,
    batch,
    made,
    plain_kernels,
    text,
)
from torch import Tensor, nn

from hush.errors import InvalidValue, UnreadableFile
from hush.gradients import clipped_sum
from hush.prompts import ExampleLoss, SoftPrompt, label_tokens
from hush.prompts.files import facts_of
from hush.rng import Rng

WORDS = [7, 3, 11]


def prompt_of(name: str, model: nn.Module | None = None, **settings: Any) -> SoftPrompt:
    if name in CAUSAL:
        settings.setdefault("label_words", WORDS)
    return SoftPrompt(made(name) if model is None else model, 4, rng=Rng.from_seed(1), **settings)


def tight(name: str) -> float:
    return 1e-7 if name in ROUNDED else TIGHT


def method(name: str) -> Any:
    return UNFOLLOWED.get(name, "tape")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("settings", [{}, {"per_layer": True}], ids=["shallow", "per layer"])
def test_gradients_are_those_of_the_naive_loop(name: str, settings: dict[str, Any]) -> None:
    prompt, given = prompt_of(name, **settings), batch()
    expected = ["vectors", "layer_vectors.0", "layer_vectors.1"] if settings else ["vectors"]
    assert tiny_models.trained_names(prompt) == expected
    truth = naive(prompt, ExampleLoss("class"), given)
    clip_norm = 0.9 * float(truth.norms.median())
    got = clipped_sum(prompt, ExampleLoss("class"), given, clip_norm, method=method(name))
    assert relative_error(got.gradients, truth.clipped(clip_norm)) < tight(name)
    torch.testing.assert_close(got.norms, truth.norms, rtol=tight(name), atol=tight(name))
    assert all(value.any() for value in got.gradients.values())


@pytest.mark.parametrize("name", ["BERT", "GPT-2"])
def test_both_methods_agree_and_a_head_may_learn_too(name: str) -> None:
    settings = {"train_too": ("classifier",)} if name == "BERT" else {"train_too": ("ln_f",)}
    prompt, given = prompt_of(name, **settings), batch()
    truth = naive(prompt, ExampleLoss("class"), given)
    assert len(truth.rows) == 3
    for method in ("tape", "looped"):  # masks of transformers ask for values, which vmap has not
        got = clipped_sum(prompt, ExampleLoss("class"), given, 0.05, method=method)  # type: ignore[arg-type]
        assert relative_error(got.gradients, truth.clipped(0.05)) < TIGHT


@pytest.mark.parametrize("name", CAUSAL)
def test_next_token_gradients_of_a_causal_model(name: str) -> None:
    prompt, given = prompt_of(name, label_words=None, per_layer=True), text()
    truth = naive(prompt, ExampleLoss("next_token"), given)
    got = clipped_sum(prompt, ExampleLoss("next_token"), given, 0.1, method=method(name))
    assert relative_error(got.gradients, truth.clipped(0.1)) < tight(name)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_prompt_of_real_embeddings_is_a_text_in_front(name: str) -> None:
    """Vectors that are the embeddings of tokens give what the model gives for those tokens and the text."""
    model, given = made(name), batch()
    prompt = prompt_of(name, model, label_words=None)
    front = torch.tensor([5, 9, 2, 30])
    with torch.no_grad():
        prompt.vectors.copy_(model.get_input_embeddings().weight[front])
        ids = torch.cat([front.expand(len(given["input_ids"]), 4), given["input_ids"]], dim=1)
        mask = torch.cat([torch.ones(len(ids), 4, dtype=torch.long), given["attention_mask"]], dim=1)
        expected = model(input_ids=ids, attention_mask=mask).logits[:, 4:]
        found = prompt(given["input_ids"], given["attention_mask"]).logits
    assert found.shape == (len(ids), TOKENS, VOCABULARY)
    real = given["attention_mask"] == 1
    torch.testing.assert_close(found[real], expected[real])


@pytest.mark.parametrize("name", ENCODERS)
def test_in_an_encoder_the_first_token_stays_the_first(name: str) -> None:
    model, given = made(name), batch()
    prompt = prompt_of(name, model)
    front = torch.tensor([5, 9, 2, 30])
    with torch.no_grad():
        prompt.vectors.copy_(model.get_input_embeddings().weight[front])
        rows, mask = given["input_ids"], given["attention_mask"]
        ids = torch.cat([rows[:, :1], front.expand(len(rows), 4), rows[:, 1:]], dim=1)
        wide = torch.cat([torch.ones(len(rows), 4, dtype=torch.long), mask], dim=1)
        expected = model(input_ids=ids, attention_mask=wide).logits
        torch.testing.assert_close(prompt(rows, mask).logits, expected)


@pytest.mark.parametrize("name", CAUSAL)
def test_per_layer_vectors_begin_where_the_model_itself_would_be(name: str) -> None:
    """In a causal model the places see only the prompt, so the start is exactly the shallow prompt."""
    given = batch()
    shallow, deep = (prompt_of(name, per_layer=per_layer) for per_layer in (False, True))
    with torch.no_grad():
        one, other = (part(given["input_ids"], given["attention_mask"]).logits for part in (shallow, deep))
        torch.testing.assert_close(one, other)
        deep.layer_vectors[1][:, 0] += 1.0
        changed = deep(given["input_ids"], given["attention_mask"]).logits
    assert not torch.allclose(one, changed)


def test_label_words_are_read_after_each_texts_last_token() -> None:
    model, given = made("GPT-2"), batch()
    prompt, whole = prompt_of("GPT-2", model), prompt_of("GPT-2", model, label_words=None)
    with torch.no_grad():
        found = prompt(given["input_ids"], given["attention_mask"]).logits
        tokens = whole(given["input_ids"], given["attention_mask"]).logits
    assert found.shape == (len(found), LABELS)
    for row, length in enumerate(given["attention_mask"].sum(1).tolist()):
        torch.testing.assert_close(found[row], tokens[row, length - 1, WORDS])


def test_padding_changes_nothing() -> None:
    given = batch()
    for name in NAMES:
        prompt = prompt_of(name, per_layer=True)
        with torch.no_grad():
            padded = prompt(given["input_ids"], given["attention_mask"]).logits[3]
            alone = prompt(given["input_ids"][3:4, :4], given["attention_mask"][3:4, :4]).logits[0]
        torch.testing.assert_close(padded, alone)


def test_the_model_is_left_as_it_was() -> None:
    model, given = made("BERT"), batch()
    before, hooks = (
        {name: value.clone() for name, value in model.state_dict().items()},
        lambda: sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules()),
    )
    number = hooks()
    prompt = prompt_of("BERT", model, per_layer=True)
    clipped_sum(prompt, ExampleLoss("class"), given, 1.0)
    with pytest.raises(InvalidValue, match="32 places"):
        prompt(torch.ones(2, 30, dtype=torch.long))
    with pytest.raises(IndexError):
        prompt(torch.full((2, 5), VOCABULARY + 1))
    assert hooks() == number
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    with torch.no_grad():  # without the prompt it answers as before
        torch.testing.assert_close(
            model(**{k: v for k, v in given.items() if k != "labels"}).logits,
            made("BERT")(**{k: v for k, v in given.items() if k != "labels"}).logits,
        )


@pytest.mark.parametrize("name", ["BERT", "GPT-2"])
def test_a_file_of_a_few_kilobytes_loads_into_a_fresh_model(name: str, tmp_path: Path) -> None:
    too = {"train_too": ("classifier",)} if name == "BERT" else {}
    prompt, given, path = prompt_of(name, per_layer=True, **too), batch(), tmp_path / "prompt.safetensors"
    with torch.no_grad():
        for value in prompt.parameters():
            if value.requires_grad:
                value.add_(0.1)
    prompt.save(path)
    fresh = made(name)
    with torch.no_grad():
        for key, value in fresh.named_parameters():
            if "classifier" in key:
                value.zero_()  # a head that was never saved with the model
    again = SoftPrompt.load(path, fresh)
    assert set(load_file(path)) == set(tiny_models.trained_names(prompt))
    assert path.stat().st_size < 8_000 < sum(value.numel() * 8 for value in fresh.parameters())
    with torch.no_grad():
        expected, found = (part(given["input_ids"], given["attention_mask"]).logits for part in (prompt, again))
    assert torch.equal(expected, found)


def test_files_of_other_models_and_other_files_are_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "prompt.safetensors", tmp_path / "other.safetensors"
    prompt_of("GPT-2").save(path)
    assert facts_of(path)["guarantee"] is None
    strange = made("GPT-2")
    with torch.no_grad():
        strange.get_input_embeddings().weight.add_(0.5)
    with pytest.raises(InvalidValue, match="another model"):
        SoftPrompt.load(path, strange)
    save_file({"vectors": torch.zeros(2)}, other)
    with pytest.raises(UnreadableFile, match="not a prompt"):
        SoftPrompt.load(other, made("GPT-2"))
    save_file({"vectors": torch.zeros(4, 3)}, other, {"hush prompt": json.dumps(facts_of(path) | {"format": 1})})
    with pytest.raises(UnreadableFile, match="does not hold"):
        SoftPrompt.load(other, made("GPT-2"))
    save_file({"vectors": torch.zeros(4, 3)}, other, {"hush prompt": json.dumps(facts_of(path) | {"format": 9})})
    with pytest.raises(UnreadableFile, match="format 9"):
        SoftPrompt.load(other, made("GPT-2"))


@pytest.mark.filterwarnings("ignore:TF32:UserWarning")
def test_a_half_precision_model_keeps_a_prompt_in_single_precision() -> None:
    model = made("GPT-2").to(torch.bfloat16)
    with plain_kernels():
        prompt, given = prompt_of("GPT-2", model, per_layer=True), batch()
    assert {value.dtype for value in prompt.parameters() if value.requires_grad} == {torch.float32}
    with plain_kernels():
        truth = naive(prompt, ExampleLoss("class"), given)
        got = clipped_sum(prompt, ExampleLoss("class"), given, 1e6, method="tape")
    assert relative_error(got.gradients, truth.clipped(1e6)) < 0.05  # bfloat16 has 8 bits


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 0}, "length"),
        ({"label_words": [1]}, "two or more"),
        ({"label_words": [1, 1]}, "different"),
        ({"label_words": [1, 99]}, "vocabulary"),
        ({"train_too": ["classifier"]}, "no module 'classifier'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        SoftPrompt(**{"model": made("GPT-2"), "length": 3, **settings})


def test_a_model_without_token_embeddings_is_refused() -> None:
    with pytest.raises(InvalidValue, match="Linear"):
        SoftPrompt(nn.Linear(2, 2), 3)


def test_label_tokens_are_single_and_different() -> None:
    vocabulary = {"good": [4], "bad": [5], "very bad": [6, 5], "fine": [4]}

    def tokenizer(word: str, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": vocabulary[word]}

    assert label_tokens(tokenizer, ["good", "bad"]) == [4, 5]
    with pytest.raises(InvalidValue, match="2 tokens"):
        label_tokens(tokenizer, ["good", "very bad"])
    with pytest.raises(InvalidValue, match="same token"):
        label_tokens(tokenizer, ["good", "fine"])


def test_a_left_padded_batch_is_read_at_its_last_token() -> None:
    prompt = prompt_of("Llama")
    ids = torch.tensor([[0, 0, 8, 9], [3, 4, 5, 6]])
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    with torch.no_grad():
        found: Tensor = prompt(ids, mask).logits
    assert bool(torch.isfinite(found).all())
    assert bool(found[0].any())


def test_checkpointing_gives_the_same_gradients_or_is_refused() -> None:
    """A checkpointed layer runs again on the way back; vectors before layers would be missing there."""
    for name in ("BERT", "Llama"):
        prompt, given = prompt_of(name), batch()
        truth = naive(prompt, ExampleLoss("class"), given)
        prompt.model.gradient_checkpointing_enable({"use_reentrant": False})
        prompt.train()
        got = clipped_sum(prompt, ExampleLoss("class"), given, 0.1, method="tape")
        assert relative_error(got.gradients, truth.clipped(0.1)) < TIGHT
        deep = prompt_of(name, per_layer=True)
        deep.model.gradient_checkpointing_enable({"use_reentrant": False})
        with pytest.raises(InvalidValue, match="checkpointing"):
            deep.train()(given["input_ids"], given["attention_mask"])
        with torch.no_grad():
            deep(given["input_ids"], given["attention_mask"])


def test_a_trained_head_that_shares_the_embedding_comes_back(tmp_path: Path) -> None:
    prompt, given = prompt_of("GPT-2", train_too="lm_head"), batch()
    with torch.no_grad():
        prompt.model.lm_head.weight.add_(0.3)
    assert prompt.model.lm_head.weight is prompt.model.get_input_embeddings().weight
    prompt.save(tmp_path / "prompt.safetensors")
    again = SoftPrompt.load(tmp_path / "prompt.safetensors", made("GPT-2"))
    with torch.no_grad():
        expected, found = (part(given["input_ids"], given["attention_mask"]).logits for part in (prompt, again))
    assert torch.equal(expected, found)


def test_a_model_of_two_texts_is_refused() -> None:
    from transformers.models.t5.configuration_t5 import T5Config
    from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration

    small = T5Config(vocab_size=30, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0)
    with pytest.raises(InvalidValue, match="two texts"):
        SoftPrompt(T5ForConditionalGeneration(small), 3)

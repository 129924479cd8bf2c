"""Losses per example from transformers' data collators, and adapters under checkpointing and bfloat16."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.gradients.naive_loop import TIGHT, naive, relative_error
from tests.prompts.tiny_models import LABELS, VOCABULARY, batch, made, plain_kernels, text
from torch import Tensor

from hush import Budget, TrainingPlan, fit
from hush.errors import InvalidValue, NotIsolated
from hush.gradients import check_isolation, clipped_sum
from hush.prompts import ExampleLoss

pytestmark = [
    pytest.mark.filterwarnings("ignore:TF32:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def tokenizer() -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    words = {"[PAD]": 0, "[MASK]": 1, **{f"w{number}": number for number in range(2, VOCABULARY)}}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[PAD]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", mask_token="[MASK]")


def items(labels: bool = False) -> list[dict[str, Any]]:
    stream = torch.Generator().manual_seed(5)
    found = []
    for row in range(24):
        length = 3 + row % 5
        ids = torch.randint(2, VOCABULARY, (length,), generator=stream).tolist()
        found.append({"input_ids": ids, "attention_mask": [1] * length, **({"labels": row % 3} if labels else {})})
    return found


def test_each_examples_tokens_are_averaged_for_themselves() -> None:
    model, given = made("GPT-2"), text()
    found = ExampleLoss("next_token")(model, **given)
    for row, length in enumerate(given["attention_mask"].sum(1).tolist()):
        ids = given["input_ids"][row : row + 1, :length]
        expected = model(input_ids=ids, labels=ids).loss  # transformers' own mean, of this example alone
        torch.testing.assert_close(found[row].float(), expected)  # in single precision there
    whole = model(**given).loss  # the mean over all tokens of the batch is another number
    assert not torch.isclose(whole, found.mean().float(), rtol=1e-4)


def test_labels_that_are_not_shifted() -> None:
    model, given = made("GPT-2"), text()
    given["labels"][0] = -100
    found = ExampleLoss("token")(model, **given)
    assert found[0].item() == 0.0
    logits = model(input_ids=given["input_ids"], attention_mask=given["attention_mask"]).logits
    expected = F.cross_entropy(logits[3, :4], given["labels"][3, :4])
    torch.testing.assert_close(found[3], expected)


def test_padding_is_cut_and_changes_nothing() -> None:
    model, given = made("BERT"), batch()
    wide = {name: F.pad(value, (0, 9)) if value.ndim == 2 else value for name, value in given.items()}
    seen: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    torch.testing.assert_close(ExampleLoss("class")(model, **wide), ExampleLoss("class")(model, **given))
    hook.remove()
    assert seen == [8, 8]  # the longest text, and a column so that each text has padding


def collator(kind: str) -> tuple[Any, str, str]:
    from transformers import DataCollatorForLanguageModeling, DataCollatorWithPadding

    if kind == "classes":
        return DataCollatorWithPadding(tokenizer()), "BERT", "class"
    return DataCollatorForLanguageModeling(tokenizer(), mlm=False), "GPT-2", "next_token"


@pytest.mark.parametrize("kind", ["classes", "next words"])
def test_collators_of_transformers_drop_in(kind: str) -> None:
    collate, name, loss = collator(kind)
    model, rows = made(name).float(), items(labels=kind == "classes")
    plan = TrainingPlan.for_budget(
        Budget(epsilon=20.0, delta=1e-4), sampling_prob=0.4, expected_batch_size=10, steps=4, clip_norm=1.0
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    may_rest = [key for key, _ in model.named_parameters() if "token_type" in key]
    run = fit(plan, model, rows, collate=collate, loss_fn=ExampleLoss(loss), optimizer=optimizer,
              progress=False, may_rest=may_rest)  # type: ignore[arg-type]  # fmt: skip
    assert run.complete
    given = dict(collate(rows[:6]))
    truth = naive(model.double(), ExampleLoss(loss), given)
    got = clipped_sum(model, ExampleLoss(loss), given, 0.5, method="tape")
    assert relative_error(got.gradients, truth.clipped(0.5)) < TIGHT


# Losses token by token: masked words, tags, and a second text. The truth is one example at a time, without padding.


def token_case(kind: str) -> tuple[Any, Any, list[dict[str, Any]]]:
    """A model in double precision, the collator, and its items."""
    from transformers import (
        DataCollatorForLanguageModeling,
        DataCollatorForSeq2Seq,
        DataCollatorForTokenClassification,
    )

    found = items()
    if kind == "masked words":
        masking = DataCollatorForLanguageModeling(tokenizer(), mlm=True, mlm_probability=0.4)
        return headed("BertForMaskedLM"), masking, found
    if kind == "tags":
        tagged = [{**item, "labels": [token % LABELS for token in item["input_ids"]]} for item in found]
        return headed("BertForTokenClassification"), DataCollatorForTokenClassification(tokenizer()), tagged
    paired = [{**item, "labels": other["input_ids"]} for item, other in zip(found, found[3:] + found[:3], strict=True)]
    model = two_texts()
    return model, DataCollatorForSeq2Seq(tokenizer(), model=model), paired


def headed(name: str) -> Any:
    from transformers.models.bert import modeling_bert

    torch.manual_seed(0)
    return getattr(modeling_bert, name)(made("BERT").config).eval().double()


def two_texts() -> Any:
    from transformers.models.t5.configuration_t5 import T5Config
    from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration

    torch.manual_seed(0)
    small = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "dropout_rate": 0.0}
    config = T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, pad_token_id=0, **small)
    return T5ForConditionalGeneration(config).eval().double()


def mean_by_hand(model: Any, row: dict[str, Tensor]) -> float:
    """One collated row without its padding: the mean of -log p over its labelled places."""
    given = {"input_ids": row["input_ids"][None, : int(row["attention_mask"].sum())]}
    labels = row["labels"].tolist()
    if model.config.is_encoder_decoder:
        labels = [label for label in labels if label != -100]
        given["decoder_input_ids"] = torch.tensor([[0, *labels[:-1]]])
    with torch.no_grad():
        chances = model(**given).logits[0].log_softmax(-1)
    costs = [-float(chances[place, label]) for place, label in enumerate(labels) if label != -100]
    return sum(costs) / len(costs) if costs else 0.0


@pytest.mark.parametrize("kind", ["masked words", "tags", "two texts"])
def test_token_losses_are_the_mean_of_each_example(kind: str) -> None:
    model, collate, rows = token_case(kind)
    torch.manual_seed(2)  # which words are masked
    given = dict(collate([dict(row) for row in rows[:8]]))
    by_hand = [mean_by_hand(model, {name: value[row] for name, value in given.items()}) for row in range(8)]
    found = ExampleLoss("token")(model, **given)
    torch.testing.assert_close(found, torch.tensor(by_hand, dtype=torch.float64), rtol=1e-6, atol=1e-6)
    assert len({int(count) for count in (given["labels"] != -100).sum(1)}) > 2  # so many tokens, and others
    with torch.no_grad():  # the mean over all tokens of the batch is another number
        assert float(model(**given).loss) != pytest.approx(found.mean().item(), rel=1e-4)
    truth = naive(model, ExampleLoss("token"), given)
    got = clipped_sum(model, ExampleLoss("token"), given, 0.9 * float(truth.norms.median()))
    assert relative_error(got.gradients, truth.clipped(0.9 * float(truth.norms.median()))) < 1e-7


@pytest.mark.parametrize("kind", ["masked words", "tags", "two texts"])
def test_fit_takes_token_collators(kind: str) -> None:
    model, collate, rows = token_case(kind)
    model = model.float()
    plan = TrainingPlan.for_budget(
        Budget(epsilon=20.0, delta=1e-4), sampling_prob=0.4, expected_batch_size=10, steps=4, clip_norm=1.0
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    may_rest = [key for key, _ in model.named_parameters() if "token_type" in key]
    run = fit(plan, model, rows, collate=collate, loss_fn=ExampleLoss("token"), optimizer=optimizer,
              progress=False, may_rest=may_rest)  # type: ignore[arg-type]  # fmt: skip
    assert run.complete


def test_a_second_text_needs_no_help_of_the_collator() -> None:
    """Without `model=` the collator leaves out what the decoder reads; a model makes it of the labels it gets."""
    from transformers import DataCollatorForSeq2Seq

    model, collate, rows = token_case("two texts")
    given, bare = (dict(make(rows[:5])) for make in (collate, DataCollatorForSeq2Seq(tokenizer())))
    assert "decoder_input_ids" not in bare
    loss_fn = ExampleLoss("token")
    torch.testing.assert_close(loss_fn(model, **bare), loss_fn(model, **given))


def test_the_models_own_mean_is_found_out() -> None:
    """What a hasty port of a Trainer script does: one mean over the batch's tokens, repeated."""
    model, given = made("GPT-2"), text()

    def hasty(model: Any, **batch: Tensor) -> Tensor:
        return model(**batch).loss.expand(len(batch["input_ids"]))

    with pytest.raises(NotIsolated):
        check_isolation(model, hasty, given)
    check_isolation(model, ExampleLoss("next_token"), given)


def test_batches_without_labels_and_unknown_kinds_are_refused() -> None:
    with pytest.raises(InvalidValue, match="labels"):
        ExampleLoss("class")(made("BERT"), input_ids=torch.ones(2, 3, dtype=torch.long))
    with pytest.raises(InvalidValue, match="next_token"):
        ExampleLoss("sentence")
    with pytest.raises(InvalidValue, match="2 tensors"):
        ExampleLoss("class")(made("BERT"), torch.ones(2, 3), torch.ones(2))
    with pytest.raises(InvalidValue, match="label_words"):
        ExampleLoss("class")(made("GPT-2"), **batch())


def lora(name: str, **settings: Any) -> Any:
    peft = pytest.importorskip("peft")
    targets = {"BERT": ["query", "value"], "GPT-2": ["c_attn", "c_proj"], "Llama": ["q_proj", "v_proj", "down_proj"]}
    config = peft.LoraConfig(r=3, target_modules=targets[name], init_lora_weights=False, lora_dropout=0.0,
                             fan_in_fan_out=name == "GPT-2", **settings)  # fmt: skip
    torch.manual_seed(1)
    return peft.get_peft_model(made(name), config).double()


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "Llama"])
@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpointing"])
def test_lora_gradients_are_those_of_the_naive_loop(name: str, checkpointing: bool) -> None:
    model = lora(name, modules_to_save=["classifier"] if name == "BERT" else None)
    given, loss_fn = (batch(), ExampleLoss("class")) if name == "BERT" else (text(), ExampleLoss("next_token"))
    truth = naive(model, loss_fn, given)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
        model.train()  # transformers checkpoints in training mode only; nothing here has dropout
    clip_norm = 0.9 * float(truth.norms.median())
    got = clipped_sum(model, loss_fn, given, clip_norm, method="tape")
    assert relative_error(got.gradients, truth.clipped(clip_norm)) < TIGHT
    torch.testing.assert_close(got.norms, truth.norms, rtol=TIGHT, atol=TIGHT)


@pytest.mark.parametrize("name", ["GPT-2", "Llama"])
def test_lora_in_bfloat16(name: str) -> None:
    model, given = lora(name).to(torch.bfloat16), text()
    with plain_kernels():
        truth = naive(model, ExampleLoss("next_token"), given)
        got = clipped_sum(model, ExampleLoss("next_token"), given, 1e6, method="tape")
        assert relative_error(got.gradients, truth.clipped(1e6)) < 0.05  # bfloat16 has 8 bits
        clipped = clipped_sum(model, ExampleLoss("next_token"), given, 1e-2, method="tape")
    total = torch.stack([value.double().square().sum() for value in clipped.gradients.values()]).sum().sqrt()
    assert 0 < float(total) <= len(given["input_ids"]) * 1e-2 * 1.01

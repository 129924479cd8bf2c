"""Padding: an example's gradient is the one that it has alone, however far and on whichever side it is padded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.gradients.naive_loop import METHODS
from tests.prompts.test_collators import headed, tokenizer, two_texts
from tests.prompts.tiny_models import LABELS, VOCABULARY, made
from torch import Tensor

from hush import Budget, TrainingPlan, fit
from hush.errors import InvalidValue
from hush.gradients import clipped_sum
from hush.prompts import ExampleLoss, SoftPrompt

pytestmark = [
    pytest.mark.filterwarnings("ignore:TF32:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
LENGTHS, OTHER_LENGTHS = (3, 8, 12, 5), (6, 4, 9, 3)
PAD, EOS = 0, 2
CLOSE = 1e-5  # relative, the requirement
SIDES = ("right", "left")
Batch = dict[str, Tensor]


def padded(texts: list[Tensor], side: str, filler: int) -> Tensor:
    width = max(len(text) for text in texts)
    rows = torch.full((len(texts), width), filler)
    for row, text in zip(rows, texts, strict=True):
        row[slice(0, len(text)) if side == "right" else slice(width - len(text), width)] = text
    return rows


def texts(lengths: tuple[int, ...] = LENGTHS, *, ends: bool = False) -> list[Tensor]:
    """Random texts without special tokens; with `ends`, each closes with the end-of-sequence token."""
    stream = torch.Generator().manual_seed(3)
    rows = [torch.randint(4, VOCABULARY, (length,), generator=stream) for length in lengths]
    for row in rows if ends else ():
        row[-1] = EOS
    return rows


def collated(rows: list[Tensor], kind: str, *, side: str, pad: int = PAD, label: int = -100) -> Batch:
    """What a collator makes of these texts. Labels of texts are their tokens, labels of classes follow the text."""
    given = {
        "input_ids": padded(rows, side, pad),
        "attention_mask": padded([torch.ones_like(row) for row in rows], side, 0),
    }
    if kind == "class":
        return {**given, "labels": torch.stack([row[0] % LABELS for row in rows])}
    return {**given, "labels": padded(rows, side, label)}


def gradient(model: Any, loss: Tensor) -> Tensor:
    params = [value for value in model.parameters() if value.requires_grad]
    parts = torch.autograd.grad(loss, params, allow_unused=True)
    pairs = zip(parts, params, strict=True)
    return torch.cat([(torch.zeros_like(value) if part is None else part).flatten() for part, value in pairs])


def largest_difference(model: Any, loss_fn: Any, together: Batch, alone: list[Batch]) -> float:
    """Return the largest relative difference of an example's gradient in the batch from the one it has alone."""
    differences: list[float] = []
    for number, single in enumerate(alone):
        expected = gradient(model, loss_fn(model, **single)[0])
        in_batch = gradient(model, loss_fn(model, **together)[number])
        differences.append(float((in_batch - expected).norm() / expected.norm()))
    return float(torch.tensor(differences).max())  # NaN if any is


CASES = {  # absolute positions, positions by the mask, rotary ones, ALiBi; encoders with each kind of positions
    "GPT-2": ("next_token", lambda: made("GPT-2")),
    "OPT": ("next_token", lambda: made("OPT")),
    "Llama": ("next_token", lambda: made("Llama")),
    "CodeGen": ("next_token", lambda: made("CodeGen")),
    "Bloom": ("next_token", lambda: made("Bloom")),
    "MPT": ("next_token", lambda: made("MPT")),
    "BERT": ("class", lambda: made("BERT")),
    "RoBERTa": ("class", lambda: made("RoBERTa")),
    "DistilBERT": ("class", lambda: made("DistilBERT")),
    "ELECTRA": ("class", lambda: made("ELECTRA")),
    "Llama classifier": ("class", lambda: made("Llama classifier")),
    "BERT, masked words": ("token", lambda: headed("BertForMaskedLM")),
    "GPT-2, not shifted": ("token", lambda: made("GPT-2")),
    "Llama, eager": ("next_token", lambda: made("Llama", attn_implementation="eager")),
    "XLNet": ("class", lambda: reads_the_last_token()),
}


def reads_the_last_token() -> Any:
    from transformers import XLNetConfig, XLNetForSequenceClassification

    torch.manual_seed(0)
    small = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "dropout": 0.0, "summary_last_dropout": 0.0}
    return (
        XLNetForSequenceClassification(XLNetConfig(vocab_size=VOCABULARY, num_labels=LABELS, **small)).eval().double()
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("pad", "label", "ends"),
    [(PAD, -100, False), (PAD, PAD, False), (EOS, -100, True), (EOS, EOS, True), (EOS, EOS, False)],
    ids=["usual", "labelled padding", "eos as padding", "eos as labelled padding", "eos as padding alone"],
)
def test_a_gradient_does_not_depend_on_padding(name: str, side: str, pad: int, label: int, ends: bool) -> None:
    kind, make = CASES[name]
    model, rows = make(), texts(ends=ends)
    together = collated(rows, kind, side=side, pad=pad, label=label)
    alone = [collated([row], kind, side=side) for row in rows]
    assert largest_difference(model, ExampleLoss(kind), together, alone) < CLOSE
    wider = {name: padded([*value, torch.zeros(20, dtype=torch.long)], side, 0)[:-1] if value.ndim == 2 else value
             for name, value in together.items()}  # fmt: skip
    assert largest_difference(model, ExampleLoss(kind), wider, alone) < CLOSE


@pytest.mark.parametrize("name", ["GPT-2", "Llama", "BERT", "DistilBERT"])
@pytest.mark.parametrize("side", SIDES)
def test_neither_does_it_in_single_precision(name: str, side: str) -> None:
    kind, make = CASES[name]
    model, rows = make().float(), texts()
    alone = [collated([row], kind, side=side) for row in rows]
    assert largest_difference(model, ExampleLoss(kind), collated(rows, kind, side=side), alone) < CLOSE


@pytest.mark.parametrize("name", ["GPT-2", "Llama", "BERT", "DistilBERT", "BERT, masked words"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("method", METHODS)
def test_clipped_sums_are_those_of_the_texts_alone(name: str, side: str, method: Any) -> None:
    kind, make = CASES[name]
    model, rows = make(), texts()
    if method == "vectorized":  # masks of transformers branch on their values, which vmap has not
        if kind != "next_token":
            pytest.skip("the masks of encoders branch in every form of attention")
        model.set_attn_implementation("eager")
    expected: dict[str, Tensor] = {}
    for row in rows:
        single = clipped_sum(model, ExampleLoss(kind), collated([row], kind, side="right"), 0.05, method="looped")
        for key, value in single.gradients.items():
            expected[key] = expected.get(key, 0) + value
    found = clipped_sum(model, ExampleLoss(kind), collated(rows, kind, side=side), 0.05, method=method)
    for key, value in expected.items():
        torch.testing.assert_close(found.gradients[key], value, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["T5", "BART"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("label", [-100, PAD], ids=["ignored", "labelled padding"])
@pytest.mark.parametrize("with_decoder", [False, True], ids=["", "collator shifts"])
def test_nor_on_the_padding_of_a_second_text(name: str, side: str, label: int, with_decoder: bool) -> None:
    model = two_texts() if name == "T5" else absolute_two_texts()
    rows, others = texts(), texts(OTHER_LENGTHS)

    def batch(rows: list[Tensor], others: list[Tensor]) -> Batch:
        given = {**collated(rows, "token", side=side), "labels": padded(others, side, label)}
        shift = model.prepare_decoder_input_ids_from_labels
        return {**given, "decoder_input_ids": shift(labels=given["labels"])} if with_decoder else given

    alone = [batch([row], [other]) for row, other in zip(rows, others, strict=True)]
    assert largest_difference(model, ExampleLoss("token"), batch(rows, others), alone) < CLOSE


def absolute_two_texts() -> Any:
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(0)
    sizes = {f"{part}_{name}": value for part in ("encoder", "decoder")
             for name, value in {"layers": 2, "attention_heads": 2, "ffn_dim": 24}.items()}  # fmt: skip
    config = BartConfig(vocab_size=VOCABULARY, d_model=16, max_position_embeddings=32, dropout=0.0, pad_token_id=PAD,
                        bos_token_id=1, eos_token_id=EOS, decoder_start_token_id=EOS, **sizes)  # fmt: skip
    return BartForConditionalGeneration(config).eval().double()


def test_what_the_caller_made_for_the_decoder_stays() -> None:
    """Labels of a decoder may begin with -100 where its input is a given beginning, which is no padding."""
    model, rows = two_texts(), texts()
    given = collated(rows, "token", side="right")
    prefix = torch.full_like(given["input_ids"], 7)
    labels = given["labels"].clone()
    labels[:, :2] = -100
    found = ExampleLoss("token")(model, **{**given, "labels": labels, "decoder_input_ids": prefix})
    logits = model(
        input_ids=given["input_ids"], attention_mask=given["attention_mask"], decoder_input_ids=prefix
    ).logits
    expected = -logits[1].log_softmax(-1)[torch.arange(2, 8), labels[1, 2:8]].mean()
    torch.testing.assert_close(found[1], expected)


def test_a_hole_in_the_mask_and_given_types_move_with_their_text() -> None:
    model, rows = made("BERT"), texts()
    batches = []
    for side in SIDES:
        given = collated(rows, "class", side=side)
        types = padded([torch.arange(len(row)) % 2 for row in rows], side, 0)
        holes = padded([torch.tensor([1, 1, 0, *[1] * len(row)][: len(row)]) for row in rows], side, 0)
        batches.append({**given, "token_type_ids": types, "attention_mask": holes})
    first, second = (ExampleLoss("class")(model, **given) for given in batches)
    torch.testing.assert_close(first[1:], second[1:])  # the first text ends in its hole: on either side that is padding


def test_an_empty_text_has_a_loss_and_moves_nobody() -> None:
    model, rows = made("GPT-2"), texts()
    given = collated(rows, "next_token", side="left")
    expected = ExampleLoss("next_token")(model, **given)
    given["attention_mask"][0] = 0
    found = ExampleLoss("next_token")(model, **given)
    assert found[0] == 0
    torch.testing.assert_close(found[1:], expected[1:])


@pytest.mark.parametrize("name", ["GPT-2", "Llama", "BERT", "DistilBERT"])
def test_a_batch_without_a_mask_is_rejected_with_the_fix(name: str) -> None:
    kind, make = CASES[name]
    given = collated(texts(), kind, side="right")
    del given["attention_mask"]
    with pytest.raises(InvalidValue, match=r"attention_mask, 1 for text and 0 for padding.*collator return it"):
        ExampleLoss(kind)(make(), **given)


def test_masks_and_labels_of_other_shapes_are_rejected() -> None:
    model, given = made("GPT-2"), collated(texts(), "next_token", side="right")
    square = given["attention_mask"][:, None, None, :].expand(-1, 1, 12, -1)
    with pytest.raises(InvalidValue, match=r"must be \(batch, tokens\)"):
        ExampleLoss("next_token")(model, **{**given, "attention_mask": square})
    with pytest.raises(InvalidValue, match="labels must have the shape"):
        ExampleLoss("next_token")(model, **{**given, "labels": given["labels"][:, 1:]})


@pytest.mark.parametrize("rope", ["dynamic", "longrope"])
def test_positions_that_follow_the_longest_text_are_rejected(rope: str) -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4} if rope == "longrope" else {}
    settings = {"rope_type": rope, "factor": 2.0, "rope_theta": 10000.0, **factors}
    limit = {"original_max_position_embeddings": 10} if rope == "longrope" else {}
    model = made("Llama", rope_parameters={**settings, **limit})
    if rope == "dynamic":
        model.config.max_position_embeddings = 10
    short = [row[:10] for row in texts()]
    assert len(ExampleLoss("next_token")(model, **collated(short, "next_token", side="left"))) == 4
    with pytest.raises(InvalidValue, match="truncate texts to 10 tokens"):
        ExampleLoss("next_token")(model, **collated(texts(), "next_token", side="right"))


def reads_padding(name: str) -> Any:
    import transformers

    torch.manual_seed(0)
    small = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 24, "max_position_embeddings": 32, "num_labels": LABELS}  # fmt: skip
    own = {"ConvBert": {"embedding_size": 16, "conv_kernel_size": 3, "head_ratio": 1}}.get(name, {})
    config = getattr(transformers, f"{name}Config")(**small, **own)
    return getattr(transformers, f"{name}ForSequenceClassification")(config).eval().double()


@pytest.mark.parametrize("name", ["FNet", "ConvBert"])
def test_models_that_read_padding_are_rejected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = reads_padding(name), texts()
    together, alone = (collated(each, "class", side="right") for each in (rows, rows[:1]))
    if name == "FNet":  # takes no mask at all
        forward = model.forward
        model.forward = lambda attention_mask, **given: forward(**given)
    with pytest.raises(InvalidValue, match="reads the padded columns"):
        ExampleLoss("class")(model, **together)
    monkeypatch.setattr("hush.prompts.collate._READS_PADDING", frozenset())  # what would happen otherwise
    assert largest_difference(model, ExampleLoss("class"), together, [alone]) > 1e-8


def test_sparse_attention_that_follows_the_longest_text_is_rejected() -> None:
    model = made("BERT")
    model.config.attention_type = "block_sparse"
    with pytest.raises(InvalidValue, match="attention_type='original_full'"):
        ExampleLoss("class")(model, **collated(texts(), "class", side="right"))


@pytest.mark.parametrize("side", SIDES)
def test_a_soft_prompt_reads_texts_of_both_sides_by_the_loss(side: str) -> None:
    for name in ("BERT", "DistilBERT"):
        prompt, rows = SoftPrompt(made(name), 3), texts()
        alone = [collated([row], "class", side="right") for row in rows]
        assert largest_difference(prompt, ExampleLoss("class"), collated(rows, "class", side=side), alone) < CLOSE
    prompt = SoftPrompt(made("GPT-2"), 3)
    alone = [collated([row], "next_token", side="right") for row in rows]
    together = collated(rows, "next_token", side=side)
    assert largest_difference(prompt, ExampleLoss("next_token"), together, alone) < CLOSE


def test_a_soft_prompt_that_is_called_with_left_padding_rejects_it() -> None:
    given = collated(texts(), "class", side="left")
    with pytest.raises(InvalidValue, match="padding_side = 'right'"):
        SoftPrompt(made("BERT"), 3)(given["input_ids"], given["attention_mask"])


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["GPT-2", "Llama", "BERT"])
def test_fit_takes_tokenizers_of_both_sides(name: str, side: str) -> None:
    from transformers import DataCollatorForLanguageModeling, DataCollatorWithPadding

    kind, make = CASES[name]
    words = tokenizer()
    words.padding_side = side
    collate = DataCollatorWithPadding(words) if kind == "class" else DataCollatorForLanguageModeling(words, mlm=False)
    items = [{"input_ids": row.tolist(), "attention_mask": [1] * len(row), **({"labels": 1} if kind == "class" else {})}
             for row in texts((3, 4, 5, 6, 7) * 6)]  # fmt: skip
    plan = TrainingPlan.for_budget(
        Budget(epsilon=20.0, delta=1e-4), sampling_prob=0.4, expected_batch_size=12, steps=3, clip_norm=1.0
    )
    model = make().float()
    may_rest = [key for key, _ in model.named_parameters() if "token_type" in key]
    run = fit(plan, model, items, collate=collate, loss_fn=ExampleLoss(kind), progress=False, may_rest=may_rest,
              optimizer=torch.optim.SGD(model.parameters(), lr=0.1))  # type: ignore[arg-type]  # fmt: skip
    assert run.complete

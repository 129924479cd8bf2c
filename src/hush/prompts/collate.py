"""One loss per example from the batches of transformers' data collators.

    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    run = fit(plan, model, dataset, collate=collator, loss_fn=ExampleLoss("next_token"), optimizer=optimizer)

A model that is given `labels` averages over all tokens of the batch: a long text then takes weight from the others, and
no clipping bounds what it does. `ExampleLoss` keeps the labels to itself, and averages over each example's own tokens.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hush import _check
from hush.errors import InvalidValue
from hush.gradients.precision import wide

KINDS = ("class", "next_token", "token")
_NAMES = ("input_ids", "attention_mask", "labels")
_BY_TOKEN = frozenset({"input_ids", "attention_mask", "token_type_ids", "position_ids", "special_tokens_mask"})
_IGNORED = -100  # the label that collators give to padding


class ExampleLoss:
    """A `loss_fn` for `fit`, for batches by name or as (input_ids, attention_mask, labels).

    | kind | labels | for |
    |---|---|---|
    | "class" | (batch,) | sequence classification, label words |
    | "next_token" | (batch, tokens) | causal language models: the labels are the tokens, and are shifted here |
    | "token" | (batch, tokens) | masked language models, tagging, encoder-decoders: not shifted |

    Tokens labelled -100 do not count; an example without any other has loss 0. Columns that are padding in every row
    are cut off, which changes nothing but the time; an example's loss does not depend on how far others are padded.
    """

    def __init__(self, kind: str) -> None:
        self.kind = _check.one_of("kind", kind, KINDS)

    def __call__(self, model: nn.Module, *batch: Tensor, **named: Tensor) -> Tensor:
        """The losses, shape (batch,)."""
        if batch and len(batch) != len(_NAMES):
            raise InvalidValue(f"a batch without names must be {', '.join(_NAMES)}; got {len(batch)} tensors.")
        inputs: dict[str, Any] = dict(zip(_NAMES, batch, strict=True)) if batch else named
        if "labels" not in inputs:
            raise InvalidValue(f"the batch must hold labels; it holds {', '.join(inputs)}.")
        inputs = _second_text(model, inputs) if _is_two_texts(model) else _cut(inputs, together=self.kind != "class")
        labels = inputs["labels"]
        logits = model(**{name: value for name, value in inputs.items() if name != "labels"}).logits
        if logits.ndim != (2 if self.kind == "class" else 3):
            raise InvalidValue(
                f"the model's logits are {tuple(logits.shape)}, which kind {self.kind!r} is not for; "
                "a causal model classifies by label_words, and is trained on texts by 'next_token'."
            )
        if self.kind == "class":
            return F.cross_entropy(wide(logits), labels, reduction="none")
        if self.kind == "next_token":
            logits, labels = logits[:, :-1], labels[:, 1:]
        losses = F.cross_entropy(wide(logits.transpose(1, 2)), labels, reduction="none", ignore_index=_IGNORED)
        counted: Tensor = (labels != _IGNORED).sum(dim=1).clamp(min=1)
        return losses.sum(dim=1) / counted


def _is_two_texts(model: nn.Module) -> bool:
    """Whether labels are a text of their own, with its own padding."""
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def _second_text(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """With what the decoder reads, the labels shifted by one, where the collator has not made it."""
    if "decoder_input_ids" in inputs:
        return inputs
    return {**inputs, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels=inputs["labels"])}


def _cut(inputs: dict[str, Any], *, together: bool) -> dict[str, Any]:
    """The batch without the last columns that are padding in all rows; labels are cut where they go token by token."""
    mask = inputs.get("attention_mask")
    if mask is None or torch._C._functorch.is_functorch_wrapped_tensor(
        mask
    ):  # inside vmap there is no number to cut at
        return inputs
    used = torch.nonzero(mask.any(dim=0))
    longest = int(used.max()) + 1 if len(used) else mask.shape[1]
    names = _BY_TOKEN | {"labels"} if together else _BY_TOKEN
    return {name: value[:, :longest] if name in names else value for name, value in inputs.items()}

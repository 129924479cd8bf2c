"""One loss per example from the batches of transformers' data collators.

    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    run = fit(plan, model, dataset, collate=collator, loss_fn=ExampleLoss("next_token"), optimizer=optimizer)

A model that is given `labels` averages over all tokens of the batch: a long text then takes weight from the others, and
no clipping bounds what it does. `ExampleLoss` keeps the labels to itself, and averages over each example's own tokens.

Padding is a second way for texts to reach each other: a text that is padded to the length of a longer one gets other
positions (left padding and absolute positions), another first token (left padding and an encoder's classifier), labels
at the padding, or another normaliser. `ExampleLoss` moves every text to the first column, so that it has the positions
and the neighbours that it has alone, and ignores labels at the padding. What this does not mend is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hush import _check
from hush.errors import InvalidValue
from hush.gradients.precision import wide

KINDS = ("class", "next_token", "token")
_NAMES = ("input_ids", "attention_mask", "labels")
_IGNORED = -100  # the label that collators give to padding
# Rotary positions whose frequencies follow the longest text of the batch (transformers, modeling_rope_utils.py).
_BATCH_ROPE = ("dynamic", "longrope")
# Families that mix padded columns into the text by Fourier transforms, convolutions, pooling, landmarks or hashing.
# Found by comparing each text's gradient alone and padded over 80 families of transformers 5: relative differences from
# 1e-6 to 1, where all others stay at rounding. tests/prompts/test_padding.py repeats this for some of both.
_READS_PADDING = frozenset({"canine", "convbert", "fnet", "funnel", "nystromformer", "prophetnet", "reformer", "yoso"})


class ExampleLoss:
    """A `loss_fn` for `fit`, for batches by name or as (input_ids, attention_mask, labels).

    | kind | labels | for |
    |---|---|---|
    | "class" | (batch,) | sequence classification, label words |
    | "next_token" | (batch, tokens) | causal language models: the labels are the tokens, and are shifted here |
    | "token" | (batch, tokens) | masked language models, tagging, encoder-decoders: not shifted |

    An example's loss does not depend on how far others are padded, nor on which side: texts that are padded on the left
    are moved to the first column, columns that are padding in every example are cut off, and tokens that are labelled
    -100 or padded do not count. An example without a token that counts has loss 0.

    A batch of tokens must hold `attention_mask` (batch, tokens), 1 for text and 0 for padding. Without it padding
    cannot be told from text, and the batch is rejected.
    """

    def __init__(self, kind: str) -> None:
        self.kind = _check.one_of("kind", kind, KINDS)

    def __call__(self, model: nn.Module, *batch: Tensor, **named: Tensor) -> Tensor:
        """Return the losses, shape (batch,).

        Raises:
            InvalidValue: The batch has no labels or no attention_mask, or the model reads padding in a way that the
                mask does not prevent.
        """
        if batch and len(batch) != len(_NAMES):
            raise InvalidValue(f"a batch without names must be {', '.join(_NAMES)}; got {len(batch)} tensors.")
        inputs: dict[str, Any] = dict(zip(_NAMES, batch, strict=True)) if batch else named
        if "labels" not in inputs:
            raise InvalidValue(f"the batch must hold labels; it holds {', '.join(inputs)}.")
        inputs = self._without_padding(model, inputs) if "input_ids" in inputs else inputs
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

    def _without_padding(self, model: nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the batch in a form in which no example's loss depends on how far it is padded."""
        config = getattr(model, "config", None)
        mask = _checked_mask(inputs)
        has_two_texts = bool(getattr(config, "is_encoder_decoder", False))
        by_token = {name for name, value in inputs.items() if _goes_by_token(name, value, mask)}
        if self.kind != "class" and not has_two_texts:
            if inputs["labels"].shape != mask.shape:
                shapes = f"{tuple(inputs['labels'].shape)} and {tuple(mask.shape)}"
                raise InvalidValue(f"labels must have the shape of attention_mask, (batch, tokens); got {shapes}.")
            inputs = {**inputs, "labels": inputs["labels"].masked_fill(mask == 0, _IGNORED)}
            by_token.add("labels")
        pad = getattr(config, "pad_token_id", None)
        if self.kind == "class" and isinstance(pad, int) and pad >= 0:
            # A causal classifier reads the last token that is not the configured padding, whatever the mask says.
            inputs = {**inputs, "input_ids": inputs["input_ids"].masked_fill(mask == 0, pad)}
        reads_last = self.kind == "class" and getattr(config, "summary_type", None) == "last"
        inputs = _cut(_moved(inputs, by_token, to_end=reads_last), by_token, from_front=reads_last)
        if not reads_last:
            inputs = _alike(inputs, by_token, config)
        _reject_shared_positions(config, inputs["input_ids"].shape[1])
        return _second_text(model, inputs) if has_two_texts and self.kind != "class" else inputs


def _checked_mask(inputs: dict[str, Any]) -> Tensor:
    mask: Tensor | None = inputs.get("attention_mask")
    if mask is None:
        raise InvalidValue(
            "the batch must hold attention_mask, 1 for text and 0 for padding, or padding cannot be told from text; "
            "let the collator return it, all ones where no text is padded."
        )
    if mask.shape != inputs["input_ids"].shape:
        shapes = f"{tuple(mask.shape)} for input_ids {tuple(inputs['input_ids'].shape)}"
        raise InvalidValue(f"attention_mask must be (batch, tokens), as input_ids are; got {shapes}.")
    return mask


def _goes_by_token(name: str, value: Any, mask: Tensor) -> bool:
    """Whether a tensor has one entry per token: whole numbers (ids, types, positions, boxes) of the mask's shape."""
    if name == "labels" or name.startswith("decoder"):
        return False
    return name == "attention_mask" or (
        isinstance(value, Tensor) and not value.is_floating_point() and value.shape[:2] == mask.shape
    )


def _is_hidden(mask: Tensor) -> bool:
    """Whether no number can be read from the mask, because a transformation (vmap) is at work."""
    return torch._C._functorch.is_functorch_wrapped_tensor(mask)


def _moved(inputs: dict[str, Any], names: set[str], *, to_end: bool) -> dict[str, Any]:
    """Return the batch with each text rotated to the first column, or to the last one for models that read it.

    Each row is moved by its own mask alone. Whether any row has to be moved is looked up beside what follows the
    batch axis: it decides nothing but whether the identity is applied.
    """
    mask = inputs["attention_mask"]
    width, edge = mask.shape[1], -1 if to_end else 0
    if not width:
        return inputs
    if not _is_hidden(mask):
        with torch._C.DisableTorchFunction():
            if bool((mask[:, edge] != 0).all()):
                return inputs
    is_text = (mask != 0).to(torch.long)
    columns = torch.arange(width, device=mask.device)
    # The first maximum is the first column of the text; seen from the end, it is the number of columns behind it.
    shift = -is_text.flip(1).argmax(dim=1) if to_end else is_text.argmax(dim=1)
    places = (columns + shift[:, None]) % width
    return {name: _by_place(value, places) if name in names else value for name, value in inputs.items()}


def _by_place(value: Tensor, places: Tensor) -> Tensor:
    index = places.reshape(*places.shape, *[1] * (value.ndim - 2)).expand(value.shape)
    return value.gather(1, index)


def _cut(inputs: dict[str, Any], names: set[str], *, from_front: bool) -> dict[str, Any]:
    """Return the batch without the columns behind (or before) all texts, which saves time and changes no loss."""
    mask = inputs["attention_mask"]
    if _is_hidden(mask):
        return inputs
    with torch._C.DisableTorchFunction():  # the width is no value of the loss: padding has no influence on it
        used = torch.nonzero((mask != 0).any(dim=0))
        if not len(used):
            return inputs
        kept = slice(int(used.min()), None) if from_front else slice(0, int(used.max()) + 1)
    return {name: value[:, kept] if name in names else value for name, value in inputs.items()}


def _alike(inputs: dict[str, Any], names: set[str], config: Any) -> dict[str, Any]:
    """Return the batch with one more column of padding where some texts are padded and others are not.

    Models ask whether a mask is all ones. Rows that would answer differently are computed apart, which takes longer.
    """
    mask = inputs["attention_mask"]
    limit = getattr(config, "max_position_embeddings", None)
    if _is_hidden(mask) or not isinstance(limit, int):
        return inputs
    if mask.shape[1] >= min([limit, *(most for _, most in _rope_limits(config))]):
        return inputs
    with torch._C.DisableTorchFunction():
        is_full = (mask != 0).all(dim=1)
        if bool(is_full.all()) or not bool(is_full.any()):
            return inputs
    pad = getattr(config, "pad_token_id", None)
    fill = {"labels": _IGNORED, "input_ids": pad if isinstance(pad, int) and pad >= 0 else 0}
    return {
        name: F.pad(value, (*[0, 0] * (value.ndim - 2), 0, 1), value=fill.get(name, 0)) if name in names else value
        for name, value in inputs.items()
    }


def _reject_shared_positions(config: Any, width: int) -> None:
    """Raise where one long text would change the positions of all texts of its batch, or the model reads padding."""
    family = getattr(config, "model_type", None)
    if family in _READS_PADDING:
        raise InvalidValue(
            f"a model of type {family!r} reads the padded columns, so a text's loss depends on the longest one of its "
            "batch; use a model whose attention is masked, or a loss function of your own for texts of one length."
        )
    if getattr(config, "attention_type", None) == "block_sparse":
        raise InvalidValue(
            "attention_type 'block_sparse' follows the longest text of the batch; make the model with "
            "attention_type='original_full'."
        )
    for kind, limit in _rope_limits(config):
        if width > limit:
            raise InvalidValue(
                f"the batch has {width} tokens, and beyond {limit} positions of rope type {kind!r} depend on the "
                f"longest text of the batch; truncate texts to {limit} tokens."
            )


def _rope_limits(config: Any) -> Iterator[tuple[str, int]]:
    """Yield the rotary positions that follow the longest text, with the length up to which they do not."""
    settings = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    for rope in (settings, *settings.values()):
        kind = rope.get("rope_type", rope.get("type")) if isinstance(rope, dict) else None
        if kind in _BATCH_ROPE:
            limits = (rope.get("original_max_position_embeddings"), getattr(config, "max_position_embeddings", None))
            yield kind, min([int(most) for most in limits if most], default=0)


def _second_text(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the batch with labels from the first column on, and with what the decoder reads: labels shifted by one.

    The decoder sees only what comes before a token, so that padding behind the labels does not count. What a collator
    made for the decoder is made again, because it was made of labels that may begin with padding. What the caller made
    in another way stays as it is.
    """
    labels = _without_pad_token(inputs["labels"], getattr(model.config, "pad_token_id", None))
    is_text = (labels != _IGNORED).to(torch.long)
    places = (torch.arange(labels.shape[1], device=labels.device) + is_text.argmax(dim=1)[:, None]) % labels.shape[1]
    moved = labels.gather(1, places)
    given = inputs.get("decoder_input_ids")
    if given is None:
        made = model.prepare_decoder_input_ids_from_labels(labels=moved)
        return {**inputs, "labels": moved, "decoder_input_ids": made}
    if "decoder_attention_mask" in inputs or not hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return {**inputs, "labels": labels}
    as_collated = model.prepare_decoder_input_ids_from_labels(labels=inputs["labels"])
    is_collated = (as_collated == given).all(dim=1, keepdim=True)
    made = model.prepare_decoder_input_ids_from_labels(labels=moved)
    return {
        **inputs,
        "labels": torch.where(is_collated, moved, labels),
        "decoder_input_ids": torch.where(is_collated, made, given),
    }


def _without_pad_token(labels: Tensor, pad: int | None) -> Tensor:
    """Return a decoder's labels with the padding around each text ignored, where a collator left the padding token."""
    if pad is None:
        return labels
    is_text = ((labels != pad) & (labels != _IGNORED)).to(torch.long)
    is_before = is_text.cumsum(dim=1) == 0
    is_behind = is_text.flip(1).cumsum(dim=1).flip(1) == 0
    return labels.masked_fill((is_before | is_behind) & (labels == pad), _IGNORED)

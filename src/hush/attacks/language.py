"""A causal language model seen as a function: tokens (rows, length) -> logits (rows, length, vocabulary)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hush import _check
from hush.attacks.signals import at_rest
from hush.errors import InvalidValue

LanguageModel = Callable[[Tensor], Any]  # logits, or an object with a field `logits` as transformers give
Floats = npt.NDArray[np.float64]
ROWS_AT_ONCE = 1_000


def logits_of(model: LanguageModel, tokens: Tensor) -> Tensor:
    """The logits after each token."""
    answer = model(tokens)
    found: Tensor = answer if isinstance(answer, Tensor) else answer.logits
    if found.ndim != 3 or found.shape[:2] != tokens.shape:
        raise InvalidValue(
            f"the model must give (rows, length, vocabulary) for tokens of shape {tuple(tokens.shape)}; "
            f"got {tuple(found.shape)}."
        )
    return found


@torch.no_grad()
def token_bits(model: LanguageModel, tokens: Tensor, *, rows_at_once: int = ROWS_AT_ONCE) -> Floats:
    """How many bits each next token costs: -log2 of its probability, (rows, length - 1)."""
    if tokens.ndim != 2 or tokens.shape[1] < 2 or tokens.is_floating_point():
        raise InvalidValue(f"tokens must be whole numbers, (rows, at least 2); got shape {tuple(tokens.shape)}.")
    _check.whole("rows_at_once", rows_at_once)
    with at_rest(model):
        found = np.concatenate([_bits(logits_of(model, part), part) for part in tokens.split(rows_at_once)])
    if not np.isfinite(found).all():
        raise InvalidValue("the model gives logits that are not finite.")
    return found


def _bits(logits: Tensor, tokens: Tensor) -> Floats:
    chosen = logits[:, :-1].gather(-1, tokens[:, 1:, None]).squeeze(-1).double()
    total = torch.logsumexp(logits[:, :-1].float(), dim=-1).double()
    return np.asarray(((total - chosen) / np.log(2)).cpu().numpy(), dtype=np.float64)


def log_perplexity(
    model: LanguageModel, tokens: Tensor, *, prefix_length: int = 1, rows_at_once: int = ROWS_AT_ONCE
) -> Floats:
    """The bits of each row after its prefix: the log-perplexity of the Secret Sharer, not divided by the length."""
    prefix = _check.whole("prefix_length", prefix_length)
    if prefix >= tokens.shape[-1]:
        raise InvalidValue(f"prefix_length must be below the length, {tokens.shape[-1]}; got {prefix}.")
    return np.asarray(token_bits(model, tokens, rows_at_once=rows_at_once)[:, prefix - 1 :].sum(axis=1))


@torch.no_grad()
def continued(
    model: LanguageModel,
    tokens: Tensor,
    length: int,
    *,
    stream: torch.Generator | None = None,
    top: int | None = None,
    temperature: float = 1.0,
    window: int | None = None,
) -> Tensor:
    """Rows with `length` more tokens: the likeliest each time, or drawn among the `top` likeliest with a stream."""
    _check.positive("temperature", temperature)
    with at_rest(model):
        for _ in range(_check.whole("length", length)):
            seen = tokens if window is None else tokens[:, -window:]
            last = logits_of(model, seen)[:, -1].float() / temperature
            tokens = torch.cat([tokens, _next(last, stream, top)], dim=1)
    return tokens


def _next(logits: Tensor, stream: torch.Generator | None, top: int | None) -> Tensor:
    if stream is None:
        return logits.argmax(dim=-1, keepdim=True)
    if top is not None and top < logits.shape[-1]:
        limit = logits.topk(top, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < limit, -torch.inf)
    return torch.multinomial(logits.softmax(dim=-1), 1, generator=stream)

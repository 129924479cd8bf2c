"""Training text out of a language model: by sampling and ranking, or from prefixes (Carlini et al. 2021, 2023)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hush import _check
from hush.attacks.language import ROWS_AT_ONCE, Floats, LanguageModel, continued, token_bits
from hush.attacks.rates import Rate, clopper_pearson
from hush.errors import InvalidValue
from hush.rng import Rng

RANKINGS = ("perplexity", "zlib", "reference")


@dataclass(frozen=True)
class Candidate:
    """One text that the model wrote. The smaller `score`, the likelier it was learned by heart."""

    text: str
    bits: float  # what the model needs for it
    score: float
    memorised: str | None  # the longest part that stands in the training text word for word, if it is long enough


@dataclass(frozen=True)
class Extraction:
    """Texts from the model, the most suspicious first."""

    candidates: tuple[Candidate, ...] = field(repr=False)
    num_samples: int
    rank_by: str
    match_length: int

    def precision(self, first: int = 100) -> Rate:
        """The share of the first candidates that hold training text."""
        kept = self.candidates[: _check.whole("first", first)]
        return clopper_pearson(sum(item.memorised is not None for item in kept), len(kept))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a report; the texts themselves are private and stay out."""
        found = sum(item.memorised is not None for item in self.candidates)
        return {
            "rank_by": self.rank_by,
            "samples": self.num_samples,
            "different": len(self.candidates),
            "memorised": found,
            "match_length": self.match_length,
            "precision": self.precision().to_dict(),
        }


def extract(
    model: LanguageModel,
    starts: Tensor,
    *,
    decode: Callable[[list[int]], str],
    training_text: str | Sequence[str],
    length: int = 64,
    match_length: int = 50,
    rank_by: str = "zlib",
    reference: LanguageModel | None = None,
    top: int | None = 40,
    temperature: float = 1.0,
    window: int | None = None,
    rng: Rng | None = None,
) -> Extraction:
    """Let the model write, rank what it wrote by how surely it did, and look it up in the training text.

    Args:
        model: Tokens (rows, length) -> logits (rows, length, vocabulary).
        starts: One prompt per sample, (samples, at least 1).
        decode: Tokens -> text.
        training_text: Where to look; the attacker does not have it, whoever measures does.
        length: Tokens to write.
        match_length: Characters in a row that count as learned by heart.
        rank_by: "perplexity"; "zlib", the bits over those of zlib, which finds what is unlikely for a simple model; or
            "reference", the bits over those of another model.
        reference: That other model.
        top: Draw among so many likeliest tokens; None for all.
        temperature: Above 1 for more variety.
        window: The most tokens that the model can look back on.
        rng: Where the draws come from.
    """
    _check.one_of("rank_by", rank_by, RANKINGS)
    if (rank_by == "reference") != (reference is not None):
        raise InvalidValue('a reference model goes with rank_by="reference", and with nothing else.')
    stream = (rng or Rng.from_entropy()).torch_stream("extraction")
    written = continued(model, starts, length, stream=stream, top=top, temperature=temperature, window=window)
    bits = _bits_of(model, written, starts.shape[1], window)
    texts = [decode(row) for row in written[:, starts.shape[1] :].tolist()]
    others = _bits_of(reference, written, starts.shape[1], window) if reference is not None else None
    scores = _scores(rank_by, texts, bits, others)
    pieces = _pieces(training_text, _check.whole("match_length", match_length))
    first: dict[str, Candidate] = {}
    for place in np.argsort(scores, kind="stable").tolist():
        text = texts[place]
        if " ".join(text.split()) not in first:
            found = _longest_match(text, pieces, match_length)
            first[" ".join(text.split())] = Candidate(text, float(bits[place]), float(scores[place]), found)
    return Extraction(tuple(first.values()), len(texts), rank_by, match_length)


def _bits_of(model: LanguageModel, tokens: Tensor, start: int, window: int | None) -> Floats:
    kept = tokens if window is None else tokens[:, -window:]
    begin = max(0, start - 1 - (tokens.shape[1] - kept.shape[1]))
    return np.asarray(token_bits(model, kept)[:, begin:].sum(axis=1))


def _scores(rank_by: str, texts: Sequence[str], bits: Floats, others: Floats | None) -> Floats:
    if rank_by == "zlib":
        return np.asarray(bits / np.array([8 * len(zlib.compress(text.encode())) for text in texts]))
    return bits if others is None else bits / np.maximum(others, 1e-9)


def _pieces(training_text: str | Sequence[str], length: int) -> set[str]:
    """Every run of `length` characters of the training text."""
    texts = [training_text] if isinstance(training_text, str) else training_text
    return {text[place : place + length] for text in texts for place in range(len(text) - length + 1)}


def _longest_match(text: str, pieces: set[str], length: int) -> str | None:
    """The longest run of places that each start a known piece."""
    best, start = (0, 0), None
    for place in range(len(text) - length + 2):
        if text[place : place + length] in pieces and place <= len(text) - length:
            start = place if start is None else start
        elif start is not None:
            best, start = max(best, (place - 1 + length - start, start)), None
    return text[best[1] : best[1] + best[0]] if best[0] else None


@dataclass(frozen=True, eq=False)
class PrefixExtraction:
    """Which training texts the model goes on with, given their beginnings."""

    exact: Rate
    matches: Any = field(repr=False)  # which rows, (rows,) bool
    chances: Floats = field(repr=False)  # of drawing the true continuation once

    def within(self, tries: int, chance: float = 0.5) -> Rate:
        """The share of texts found with at least this chance in so many draws [hayes25]: the (n, p) of the paper."""
        tries = _check.whole("tries", tries)
        reached = -np.expm1(tries * np.log1p(-np.minimum(self.chances, 1 - 1e-16))) >= chance
        return clopper_pearson(int(reached.sum()), len(reached))


def extract_from_prefixes(
    model: LanguageModel, sequences: Tensor, *, prefix_length: int, rows_at_once: int = ROWS_AT_ONCE
) -> PrefixExtraction:
    """Give the model the beginning of each training text, and see whether it writes the rest.

    Args:
        model: Tokens (rows, length) -> logits (rows, length, vocabulary).
        sequences: Training texts as tokens, (rows, length).
        prefix_length: How many tokens the attacker knows.
        rows_at_once: Rows in memory at once.
    """
    prefix = _check.whole("prefix_length", prefix_length)
    if prefix >= sequences.shape[1]:
        raise InvalidValue(f"prefix_length must be below the length, {sequences.shape[1]}; got {prefix}.")
    rest = sequences.shape[1] - prefix
    written = [continued(model, part[:, :prefix], rest) for part in sequences.split(rows_at_once)]
    same = (torch.cat(written)[:, prefix:] == sequences[:, prefix:]).all(dim=1).numpy()
    bits = token_bits(model, sequences, rows_at_once=rows_at_once)[:, prefix - 1 :].sum(axis=1)
    return PrefixExtraction(clopper_pearson(int(same.sum()), len(same)), same, np.asarray(np.exp2(-bits)))

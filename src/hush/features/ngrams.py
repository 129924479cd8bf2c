"""Texts as counts of hashed words and pairs of words: no vocabulary is read from anybody's texts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from hush import _check
from hush.errors import InvalidValue

_WORD = re.compile(r"\w+")  # words of one letter too, as in "I" or "a"
_CLAUSE = re.compile(r"[.,;:!?()\"]")
_NEGATIONS = frozenset({"not", "no", "never", "nor", "cannot", "without", "hardly"})
_REACH = 4  # words after a negation


class HashedNGrams(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Words, and runs of up to `longest` of them, hashed into buckets; roots of counts; rows of length 1.

    Each text is looked at alone, so that nothing is spent: there is no event.

    >>> HashedNGrams(num_buckets=2**10).fit_transform(["a fine film", "not a fine film"]).shape
    (2, 1024)

    Args:
        num_buckets: Columns. Different words that share one are told apart no more.
        longest: Words in the longest run.
        lowercase: Whether capital letters count as small ones.
        negations: Whether a word that follows an English negation in its clause is another word than by itself, as
            "funny" in "not very funny" [pang02].
    """

    def __init__(
        self, num_buckets: int = 2**18, *, longest: int = 2, lowercase: bool = True, negations: bool = False
    ) -> None:
        self.num_buckets = num_buckets
        self.longest = longest
        self.lowercase = lowercase
        self.negations = negations

    def fit(self, X: Iterable[str], y: object = None) -> HashedNGrams:
        """Nothing is learned; the settings are checked."""
        self._hashing()
        return self

    def transform(self, X: Iterable[str]) -> Any:
        """A sparse table of float32, one row for each text."""
        if isinstance(X, str):
            raise InvalidValue("X must be a list of texts, one for each row; got one text: put it into a list.")
        texts = list(X)
        if not texts or not all(isinstance(text, str) for text in texts):
            raise InvalidValue("X must be a list of texts, with at least one; an empty list or something else came.")
        counts = self._hashing().transform(texts)
        counts.data = numpy.sqrt(counts.data, dtype=numpy.float32)
        return normalize(counts, copy=False)

    def _hashing(self) -> HashingVectorizer:
        return HashingVectorizer(
            n_features=_check.whole("num_buckets", self.num_buckets, least=2),
            ngram_range=(1, _check.whole("longest", self.longest)),
            lowercase=self.lowercase,
            tokenizer=_negated if self.negations else _WORD.findall,
            token_pattern=None,
            alternate_sign=False,
            norm=None,
            dtype=numpy.float32,
        )

    def __sklearn_tags__(self) -> Any:
        """Scikit-learn's description: texts come in, and there is nothing to fit."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.requires_fit = True, False, False
        return tags


def _negated(text: str) -> list[str]:
    """The words of a text, those after a negation marked.

    >>> _negated("It isn't very funny, but short")
    ['It', 'is', 'not', 'not_very', 'not_funny', 'but', 'short']
    """
    words = []
    for clause in _CLAUSE.split(text.replace("’", "'").replace("n't", " not")):
        reach = 0
        for word in _WORD.findall(clause):
            words.append(f"not_{word}" if reach else word)
            reach = _REACH if word.lower() in _NEGATIONS else max(0, reach - 1)
    return words

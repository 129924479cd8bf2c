"""Texts as counts of hashed words and pairs of words: no vocabulary is read from anybody's texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from hush import _check
from hush.errors import InvalidValue


class HashedNGrams(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Words, and runs of up to `longest` of them, hashed into buckets; roots of counts; rows of length 1.

    Each text is looked at alone, so that nothing is spent: there is no event.

    >>> HashedNGrams(num_buckets=2**10).fit_transform(["a fine film", "not a fine film"]).shape
    (2, 1024)

    Args:
        num_buckets: Columns. Different words that share one are told apart no more.
        longest: Words in the longest run.
        lowercase: Whether capital letters count as small ones.
    """

    def __init__(self, num_buckets: int = 2**18, *, longest: int = 2, lowercase: bool = True) -> None:
        self.num_buckets = num_buckets
        self.longest = longest
        self.lowercase = lowercase

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
            token_pattern=r"(?u)\b\w+\b",  # words of one letter too, as in "I" or "a"
            alternate_sign=False,
            norm=None,
            dtype=numpy.float32,
        )

    def __sklearn_tags__(self) -> Any:
        """Scikit-learn's description: texts come in, and there is nothing to fit."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.requires_fit = True, False, False
        return tags

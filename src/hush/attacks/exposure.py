"""Exposure: how much likelier than chance a model holds a secret (Carlini, Liu, Erlingsson, Kos, Song 2019).

A secret of random form, such as "my number is 281-265", was put into the training text. Among all numbers of that form
the model ranks it somewhere by perplexity; rank 1 of 2^20 means 20 bits of exposure: whoever asks the model finds it.

>>> exposure_of([0.0, 3.5], range(1, 17)).values.tolist()
[4.0, 2.0]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from hush import _check
from hush.attacks.language import ROWS_AT_ONCE, Floats, LanguageModel, log_perplexity
from hush.attacks.skew_normal import fit_skew_normal
from hush.errors import InvalidValue


@dataclass(frozen=True, eq=False)
class Exposure:
    """The exposure of each secret, in bits.

    By rank it cannot be above log2 of the number of references; a secret at that limit may be worse than it says.
    Extrapolated values have no limit, and rest on the shape of the fit: `fit_p_value` is the Kolmogorov-Smirnov test's.
    """

    values: Floats = field(repr=False)
    ranks: Floats = field(repr=False)
    log_perplexities: Floats = field(repr=False)
    num_references: int
    method: str
    fit_p_value: float | None = None

    @property
    def limit(self) -> float:
        """The largest value that a rank among the references can give."""
        return float(np.log2(self.num_references))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a report."""
        return {
            "method": self.method,
            "exposure": self.values.tolist(),
            "rank": self.ranks.tolist(),
            "references": self.num_references,
            "limit": self.limit,
            "fit_p_value": self.fit_p_value,
        }

    def __str__(self) -> str:
        spread = f"median {np.median(self.values):.2f}, largest {self.values.max():.2f} bits"
        return f"exposure of {len(self.values)} secrets: {spread} (by {self.method}; limit of ranks {self.limit:.2f})"


def exposure(
    model: LanguageModel,
    canaries: Tensor,
    references: Tensor,
    *,
    method: str = "rank",
    prefix_length: int = 1,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Exposure:
    """The exposure of secrets in a causal language model, all asked in one batched pass.

    Args:
        model: Tokens (rows, length) -> logits (rows, length, vocabulary).
        canaries: Secrets as tokens, (secrets, length).
        references: Others of the same form, drawn at random and never trained on, (references, length).
        method: "rank" among the references, or "extrapolate" by a skew normal fitted to their perplexities.
        prefix_length: Tokens in front that all share; they count nothing.
        rows_at_once: Rows in memory at once.
    """
    sizes = {"prefix_length": prefix_length, "rows_at_once": rows_at_once}
    secret, others = (log_perplexity(model, tokens, **sizes) for tokens in (canaries, references))
    return exposure_of(secret, others, method=method)


def exposure_of(log_perplexities: Iterable[float], references: Iterable[float], *, method: str = "rank") -> Exposure:
    """The same from log-perplexities alone. A reference as likely as the secret goes before it.

    Approximation by sampling and by distribution modelling [carlini19].
    """
    _check.one_of("method", method, ("rank", "extrapolate"))
    secret = np.atleast_1d(np.asarray(list(log_perplexities), dtype=np.float64))
    others = np.sort(np.asarray(list(references), dtype=np.float64))
    if not len(secret) or not len(others) or not (np.isfinite(secret).all() and np.isfinite(others).all()):
        raise InvalidValue("exposure needs finite log-perplexities of at least one secret and one reference.")
    ranks = 1 + np.searchsorted(others, secret, side="right").astype(np.float64)
    values, p_value = np.log2(len(others)) - np.log2(ranks), None
    if method == "extrapolate":
        shape = fit_skew_normal(others)
        values, p_value = -shape.log2_cdf(secret), shape.p_value(others)
    return Exposure(values, ranks, secret, len(others), method, p_value)

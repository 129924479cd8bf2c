"""A clip norm that follows a quantile of the gradient norms, privately.

At each step the sum over the batch of (1 if the norm is at most the clip norm, else 0) - 1/2 is released with Gaussian
noise, and the clip norm moves towards the wanted quantile [Andrew, Thakkar, McMahan, Ramaswamy 2021, Alg. 1]. That
count is paid for by a little more noise on the gradients, so that both together are one Gaussian release with the
plan's noise multiplier: nothing is added to the plan's event. See docs/theory/adaptive-clipping.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from hush import _check
from hush.errors import InvalidValue


@dataclass(frozen=True, kw_only=True)
class AdaptiveClipping:
    """Settings of a clip norm that follows the `quantile` of gradient norms.

    `count_stddev` is the noise on the count, in examples; a twentieth of the expected batch size is usual. `rate` is
    the step size of the clip norm's logarithm.
    """

    quantile: float
    count_stddev: float
    rate: float = 0.2

    def __post_init__(self) -> None:
        quantile = _check.number("quantile", self.quantile)
        if not 0 < quantile < 1:
            raise InvalidValue(f"quantile must be above 0 and below 1; got {quantile!r}.")
        object.__setattr__(self, "quantile", quantile)
        object.__setattr__(self, "count_stddev", _check.positive("count_stddev", self.count_stddev))
        object.__setattr__(self, "rate", _check.positive("rate", self.rate))

    def gradient_noise_multiplier(self, noise_multiplier: float) -> float:
        """The gradients' own noise multiplier, so that they and the count together have `noise_multiplier`.

        >>> round(AdaptiveClipping(quantile=0.5, count_stddev=30.0).gradient_noise_multiplier(1.0), 6)
        1.000139
        """
        # z, z_delta, sigma_b of [andrew21], Thm. 1: z_delta = (z^-2 - (2 sigma_b)^-2)^(-1/2).
        share = (noise_multiplier / (2 * self.count_stddev)) ** 2
        if share >= 1:
            raise InvalidValue(
                f"count_stddev must be above noise_multiplier / 2 = {noise_multiplier / 2:g}, or the count alone "
                f"costs more than the plan allows; got {self.count_stddev:g}."
            )
        return math.nextafter(noise_multiplier / math.sqrt(1 - share), math.inf)


class ClipNorm:
    """The clip norm of the present step. It is made from private releases only, so it may be shown."""

    def __init__(self, start: float, adaptive: AdaptiveClipping | None, expected_batch_size: int) -> None:
        self.value = start
        self._adaptive = adaptive
        self._expected = expected_batch_size

    def centred_count(self, norms: Tensor) -> float:
        """The sum over units of 1/2 where the norm is at most the clip norm and -1/2 elsewhere (NaN is elsewhere)."""
        below = int((norms <= self.value).sum())
        return below - len(norms) / 2

    def update(self, noisy_count: float) -> None:
        """Move by a count that already has its noise."""
        if self._adaptive is None:
            return
        share = min(max(noisy_count / self._expected + 0.5, 0.0), 1.0)
        self.value *= math.exp(-self._adaptive.rate * (share - self._adaptive.quantile))

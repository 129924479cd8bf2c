"""Settings that do well on a first run, by data and model. They are public constants; nothing is read from the rows.

How they were chosen is told in docs/guides/train-command.md. In short: full batches for models that are linear in fixed
features, because sampling only loses signal there; large batches and small clip norms for networks [tramer21]; the
learning rates from a search on a fifth of the digits' own training part, scaled by the square root of the size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hush.errors import InvalidValue

MOMENTUM = 0.9


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train one model on one data set. `expected_batch_size` None means full batches."""

    model: str
    expected_batch_size: int | None
    steps: int
    clip_norm: float
    learning_rate: float

    @property
    def twin_learning_rate(self) -> float:
        """For the run without clipping, whose gradients are not shortened to the clip norm."""
        return self.learning_rate * self.clip_norm


_FAVOURITES = {"digits": "kernel", "mnist": "cnn", "fashion-mnist": "cnn", "cifar10": "cnn"}
_FULL_BATCH_STEPS = 80


def recipe_for(
    name: str, num_examples: int, epsilon: float, model: str | None = None, *, regression: bool = False
) -> Recipe:
    """The recipe of a data set, by its name and public size; a `model` that was asked for is kept."""
    chosen = model or _FAVOURITES.get(name, "linear")
    if chosen in ("linear", "kernel") and regression:
        # The squared error of rows of length 1 (and a bias) is curved by at most 4: this rate is stable by far.
        return Recipe(model=chosen, expected_batch_size=None, steps=200, clip_norm=1.0, learning_rate=0.3)
    if chosen in ("linear", "kernel"):
        return Recipe(
            model=chosen,
            expected_batch_size=None,
            steps=_FULL_BATCH_STEPS,
            clip_norm=0.5,
            learning_rate=_rounded(0.16 * math.sqrt(num_examples) * min(max(epsilon / 3, 0.1), 3.0)),
        )
    if chosen not in ("mlp", "cnn"):
        raise InvalidValue(f"--model must be one of linear, kernel, mlp, cnn; got {chosen!r}.")
    size = min(1024, max(64, num_examples // 4))
    epochs = 20 if num_examples >= 20_000 else 40
    return Recipe(
        model=chosen,
        expected_batch_size=size,
        steps=max(1, math.ceil(epochs * num_examples / size)),
        clip_norm=0.1,
        learning_rate=4.0,
    )


def default_delta(num_examples: int) -> float:
    """1e-5, or the next power of ten that is below 1 over the number of examples.

    >>> default_delta(60_000), default_delta(2_000_000)
    (1e-05, 1e-07)
    """
    power = 5
    while 10.0**-power >= 1 / num_examples:
        power += 1
    return float(f"1e-{power}")


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")

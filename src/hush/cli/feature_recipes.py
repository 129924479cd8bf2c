"""Recipes by name: fixed features and a private softmax, the best that is known for a data set on two cores.

They are public constants. Where they come from, and what they reach, is in docs/guides/results.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hush.errors import InvalidValue

SCATTERING_NOISE, PATCH_NOISE = 20.0, 40.0  # of the mean that is taken off the rows


@dataclass(frozen=True)
class FeatureRecipe:
    """What a row goes through before the softmax, and how that learns."""

    data: str
    make: Callable[[int | None], list[Any]]  # a seed, or None -> transformers that are not fitted yet
    steps: int
    clip_norm: float
    texts: bool = False  # or pictures


def _patches(num_filters: int, **settings: Any) -> Callable[[int | None], list[Any]]:
    def make(seed: int | None) -> list[Any]:
        from hush.features import Patches, PrivateScaler

        return [Patches(num_filters, **settings), PrivateScaler(PATCH_NOISE, with_std=False, random_state=seed)]

    return make


def _scattering(num_directions: int | None) -> Callable[[int | None], list[Any]]:
    def make(seed: int | None) -> list[Any]:
        from hush.features import PrivateScaler, Scattering

        return [
            Scattering(mix=True, num_directions=num_directions),
            PrivateScaler(SCATTERING_NOISE, with_std=False, random_state=seed),
        ]

    return make


def _words(seed: int | None) -> list[Any]:
    from hush.features import HashedNGrams, PrivateColumnWeights

    return [HashedNGrams(longest=1, negations=True), PrivateColumnWeights(random_state=seed)]


def _digits(seed: int | None) -> list[Any]:
    from hush.features import Upright

    return [Upright(), *_STROKES(seed)]


_STROKES = _patches(
    256, num_directions=96, patch_size=5, cells=6, overlap=0.6, threshold=0.35, contrast=0.1, ridge=1e3, mirror=False
)  # fmt: skip
_CLOTHES = _patches(512, num_directions=192, patch_size=5, cells=6)
_PHOTOGRAPHS = _patches(1024, patch_size=5)
_STEPS = 80
RECIPES = {
    "mnist-features": FeatureRecipe("mnist", _digits, _STEPS, 0.5),
    "fashion-features": FeatureRecipe("fashion-mnist", _CLOTHES, _STEPS, 0.5),
    "cifar-patches": FeatureRecipe("cifar10", _PHOTOGRAPHS, _STEPS, 0.5),
    "imdb-words": FeatureRecipe("imdb", _words, 60, 0.5, texts=True),
    "mnist-scattering": FeatureRecipe("mnist", _scattering(None), _STEPS, 1.0),
    "fashion-scattering": FeatureRecipe("fashion-mnist", _scattering(None), _STEPS, 1.0),
    "cifar-scattering": FeatureRecipe("cifar10", _scattering(120), _STEPS, 1.0),
}


def recipe(name: str) -> FeatureRecipe:
    """The recipe of this name."""
    if name not in RECIPES:
        raise InvalidValue(f"--recipe must be one of {', '.join(RECIPES)}; got {name!r}.")
    return RECIPES[name]

"""Recipes by name: fixed features and a private softmax, the best that is known for a data set on two cores.

They are public constants. Where they come from, and what they reach, is in docs/guides/results.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hush.errors import InvalidValue

PATCH_NOISE, SCALE_NOISE = 30.0, 20.0


@dataclass(frozen=True)
class FeatureRecipe:
    """What a row goes through before the softmax, and how that learns."""

    data: str
    make: Callable[[int | None], list[Any]]  # a seed, or None -> transformers that are not fitted yet
    steps: int
    clip_norm: float


def _patches(
    num_filters: int, patch_size: int, cells: int, mirror: bool, num_directions: int | None = None
) -> Callable[[int | None], list[Any]]:
    def make(seed: int | None) -> list[Any]:
        from hush.features import PrivateScaler, WhitenedPatches

        second = None if seed is None else seed + 1_000_000
        return [
            WhitenedPatches(
                num_filters,
                num_directions=num_directions,
                patch_size=patch_size,
                cells=cells,
                mirror=mirror,
                noise_multiplier=PATCH_NOISE,
                random_state=seed,
            ),
            PrivateScaler(SCALE_NOISE, with_std=False, random_state=second),
        ]

    return make


def _scattering(num_directions: int | None) -> Callable[[int | None], list[Any]]:
    def make(seed: int | None) -> list[Any]:
        from hush.features import PrivateScaler, Scattering

        return [
            Scattering(mix=True, num_directions=num_directions),
            PrivateScaler(SCALE_NOISE, with_std=False, random_state=seed),
        ]

    return make


_STEPS, _CLIP_NORM = 80, 1.0
RECIPES = {
    name: FeatureRecipe(data, make, _STEPS, _CLIP_NORM)
    for name, data, make in (
        ("mnist-features", "mnist", _scattering(None)),
        ("fashion-features", "fashion-mnist", _scattering(None)),
        ("cifar-patches", "cifar10", _patches(1024, 6, 3, mirror=True, num_directions=512)),
        ("mnist-patches", "mnist", _patches(256, 7, 4, mirror=False, num_directions=256)),
        ("fashion-patches", "fashion-mnist", _patches(512, 5, 4, mirror=True, num_directions=256)),
        ("cifar-scattering", "cifar10", _scattering(120)),
    )
}


def recipe(name: str) -> FeatureRecipe:
    """The recipe of this name."""
    if name not in RECIPES:
        raise InvalidValue(f"--recipe must be one of {', '.join(RECIPES)}; got {name!r}.")
    return RECIPES[name]

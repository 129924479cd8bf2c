"""Patches that are whitened by private pictures: one small matrix, their second moments, is released with noise.

A picture adds the mean of p p^T over its patches p, whose lengths are at most 1: a matrix of Frobenius norm at most 1.
The filters still are patches of pictures of nothing. For photographs, digits and clothes `Patches` does better
(docs/guides/results.md); this is for pictures that look like nothing of the kind, as spectra or scans do.
"""

from __future__ import annotations

from typing import Any

from hush.features.patches import Patches
from hush.features.private_transformer import Account, PrivateTransformer


class WhitenedPatches(Patches, PrivateTransformer):
    """As `Patches`, and whitened by a noisy sum over the pictures that it is fitted to.

    Args:
        num_filters: As of `Patches`, and so are the others but the last.
        patch_size: Pixels a side of a patch.
        cells: Cells a side that the answers are averaged over.
        overlap: How wide a hill is.
        num_directions: How many directions of the answers are kept for each cell.
        threshold: Answers of less than this count as 0.
        contrast: Patches of this length count half.
        ridge: Added to the eigenvalues before whitening. Noise is of the size of the smaller ones.
        mirror: Whether a picture and its mirror image are the same thing.
        dictionary_seed: A public number that the filters are made from.
        noise_multiplier: Of the released matrix; it costs 1 / noise_multiplier^2 in mu^2.
        random_state: A seed for tests; never release such a fit. None is fresh entropy.
    """

    def __init__(
        self,
        num_filters: int = 1024,
        *,
        patch_size: int = 6,
        cells: int = 3,
        overlap: float = 0.5,
        num_directions: int | None = None,
        threshold: float = 0.2,
        contrast: float = 0.0,
        ridge: float = 0.5,
        mirror: bool = True,
        dictionary_seed: int = 0,
        noise_multiplier: float = 30.0,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            num_filters,
            patch_size=patch_size,
            cells=cells,
            overlap=overlap,
            num_directions=num_directions,
            threshold=threshold,
            contrast=contrast,
            ridge=ridge,
            mirror=mirror,
            dictionary_seed=dictionary_seed,
        )
        self.noise_multiplier = noise_multiplier
        self.random_state = random_state

    def fit(self, X: Any, y: object = None, account: Account | None = None) -> WhitenedPatches:
        """Release the second moments of patches; `account` is charged before any noise is drawn."""
        pictures = self._checked(X)
        rng = self._begin(account)
        moments = self._noisy_moments(self._second_moments(pictures), rng)
        self._prepare(moments, tuple(int(size) for size in pictures.shape[1:]))
        return self

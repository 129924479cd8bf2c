"""Features that are computed and not trained, as scikit-learn transformers. What they read from rows is an event."""

from hush.features.column_weights import PrivateColumnWeights
from hush.features.ngrams import HashedNGrams
from hush.features.patches import Patches
from hush.features.pca import PrivatePCA
from hush.features.private_transformer import PrivateTransformer
from hush.features.public_bins import PublicBins
from hush.features.saved import load, save
from hush.features.scaler import PrivateScaler
from hush.features.scattering import Scattering
from hush.features.upright import Upright
from hush.features.whitened_patches import WhitenedPatches

__all__ = [
    "HashedNGrams",
    "Patches",
    "PrivateColumnWeights",
    "PrivatePCA",
    "PrivateScaler",
    "PrivateTransformer",
    "PublicBins",
    "Scattering",
    "Upright",
    "WhitenedPatches",
    "load",
    "save",
]

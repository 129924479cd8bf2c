"""What was done to private data, as frozen values. See `hush.events.kinds` for each event's meaning."""

from hush.events.exchange import from_dp_accounting, to_dp_accounting
from hush.events.json_text import from_dict, from_json, to_dict, to_json
from hush.events.kinds import (
    ApproximateDP,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    GaussianDP,
    Laplace,
    MatrixGaussian,
    NotPrivate,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
    Repeated,
    ZeroConcentratedDP,
    flat,
)

__all__ = [
    "ApproximateDP",
    "Composed",
    "Event",
    "FixedSizeSampled",
    "Gaussian",
    "GaussianDP",
    "Laplace",
    "MatrixGaussian",
    "NotPrivate",
    "PoissonSampled",
    "PureDP",
    "RandomizedResponse",
    "Repeated",
    "ZeroConcentratedDP",
    "flat",
    "from_dict",
    "from_dp_accounting",
    "from_json",
    "to_dict",
    "to_dp_accounting",
    "to_json",
]

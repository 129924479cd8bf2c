"""Private Theil-Sen regression: medians over pairs of points, chosen by the exponential mechanism.

Points are paired at random, `matchings` times over. The line through each pair has a height at one quarter and at three
quarters of the range of x. A private median of the heights at each place gives two points, and the line through them is
the answer [alabi22, Alg. 4, DPTheilSenkMatch].

One record is in one pair of each matching. If it changes, one height per matching changes; if it comes or goes, random
matchings of n and n + 1 points can be coupled so that one pair per matching is replaced, added or removed
(theory/theil-sen.md). So a candidate's utility, minus the distance between the number of heights below it and half of
all heights, moves by at most `matchings`. The median of the slopes of all pairs would move by n - 1.
"""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hush import _check, events, mechanisms
from hush.errors import InvalidValue
from hush.linear.estimator import Account, PrivateEstimator
from hush.linear.rows import Box, Floats, box
from hush.rng import Rng

PLACES = (0.25, 0.75)  # of the range of x, where heights are compared
CANDIDATES = 1001
_SAFE = 1 - 1e-9


class PrivateTheilSen(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """A robust line through points, with pure differential privacy. One feature.

    >>> import numpy
    >>> x = numpy.linspace(0, 10, 1000).reshape(-1, 1)
    >>> line = PrivateTheilSen(epsilon=1.0, x_bounds=(0, 10), y_bounds=(0, 30)).fit(x, 3 * x[:, 0])
    >>> abs(line.predict([[5.0]])[0] - 15) < 1
    np.True_

    Args:
        epsilon: What the fit costs. Needed.
        x_bounds: (low, high), public knowledge. Needed; values outside are moved to the bound.
        y_bounds: (low, high), as `x_bounds`; the answer's heights lie inside.
        matchings: How often the points are paired. More smooth the heights and cost no privacy.
        relation: "add_remove" or "replace_one"; the cost is the same.
        random_state: A seed for tests; never release such a fit. None is fresh entropy.

    Attributes:
        coef_: The slope, in an array of one.
        intercept_: The height at x = 0.
        event_: What was done to the data.
        guarantee_: What that costs.
    """

    def __init__(
        self,
        epsilon: float | None = None,
        x_bounds: tuple[float, float] | None = None,
        y_bounds: tuple[float, float] | None = None,
        *,
        matchings: int = 10,
        relation: str = "add_remove",
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.x_bounds = x_bounds
        self.y_bounds = y_bounds
        self.matchings = matchings
        self.relation = relation
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, account: Account | None = None) -> PrivateTheilSen:
        """Fit once, for the whole budget; `account` is charged before any noise is drawn.

        Raises:
            InvalidValue: A setting is missing or outside its domain, or X has more than one column.
            BudgetExceeded: The account cannot pay; nothing was fitted.
        """
        rows, targets = validate_data(self, _column(X), y, dtype=numpy.float64, y_numeric=True)
        if rows.shape[1] != 1:
            raise InvalidValue(f"PrivateTheilSen takes one feature; got {rows.shape[1]}. Use PrivateLinearRegression.")
        of_x, of_y = _needed("x_bounds", self.x_bounds), _needed("y_bounds", self.y_bounds)
        matchings = _check.whole("matchings", self.matchings)
        budget = self._budget()
        each = budget.epsilon / 2 * _SAFE
        event = events.Repeated(events.PureDP(each), 2)
        rng = self._announce(event, budget, numpy.column_stack([rows, targets]), account)
        x = numpy.clip(rows[:, 0], of_x.low, of_x.high)
        y_inside = numpy.clip(numpy.asarray(targets, dtype=numpy.float64), of_y.low, of_y.high)
        first, second = _pairs(len(x), matchings, rng)
        places = of_x.low[0] + numpy.array(PLACES) * (of_x.high[0] - of_x.low[0])
        heights = [
            private_median(values, of_y, sensitivity=matchings, epsilon=each, rng=rng)
            for values in heights_at(x, y_inside, first, second, places, of_y)
        ]
        slope = (heights[1] - heights[0]) / (places[1] - places[0])
        self.coef_ = numpy.array([slope])
        self.intercept_ = float(heights[0] - slope * places[0])
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """The line's height for each row."""
        check_is_fitted(self, "coef_")
        rows = validate_data(self, _column(X), dtype=numpy.float64, reset=False)
        return numpy.asarray(rows @ self.coef_ + self.intercept_)

    def __sklearn_tags__(self) -> Any:
        """Scikit-learn's description: one feature, in a column or in a row of numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, False
        return tags


def _column(X: ArrayLike) -> Any:
    """Numbers in one dimension as a table of one column; anything else as it is."""
    return numpy.asarray(X).reshape(-1, 1) if numpy.ndim(X) == 1 else X


def _needed(name: str, bounds: object) -> Box:
    if bounds is None:
        raise InvalidValue(f"{name} are needed: (low, high), from public knowledge and never from the data.")
    return box(name, bounds, 1)


def _pairs(count: int, matchings: int, rng: Rng) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
    """Uniformly random matchings, one after another; with an odd number one point is left out of each."""
    stream = rng.stream(rng.unused("pairs"))
    half = count // 2
    orders = [stream.permutation(count)[: 2 * half] for _ in range(matchings)]
    flat = numpy.concatenate(orders).reshape(-1, 2) if half else numpy.empty((0, 2), numpy.int64)
    return flat[:, 0], flat[:, 1]


def heights_at(
    x: Floats, y: Floats, first: NDArray[numpy.int64], second: NDArray[numpy.int64], places: Floats, of_y: Box
) -> list[Floats]:
    """The heights of the pairs' lines at each place, moved into the bounds. Pairs without a slope are left out."""
    run = x[second] - x[first]
    kept = run != 0
    with numpy.errstate(all="ignore"):
        slopes = (y[second] - y[first])[kept] / run[kept]
        lines = [y[first][kept] + slopes * (place - x[first][kept]) for place in places]
    return [numpy.clip(numpy.nan_to_num(line, nan=of_y.middle[0]), of_y.low, of_y.high) for line in lines]


def private_median(values: Floats, bounds: Box, *, sensitivity: int, epsilon: float, rng: Rng) -> float:
    """One of evenly spaced candidates within the bounds, near the median; `sensitivity` values may change at once."""
    candidates = numpy.linspace(bounds.low[0], bounds.high[0], CANDIDATES)
    chosen = mechanisms.exponential(
        median_utilities(values, candidates), sensitivity=float(sensitivity), epsilon=epsilon, rng=rng
    )
    return float(candidates[chosen])


def median_utilities(values: Floats, candidates: Floats) -> Floats:
    """Minus the distance between the number of values below (equal ones count half) and half of all values.

    One value replaced moves it by at most 1, one more or fewer by at most 1/2.
    """
    ordered = numpy.sort(values)
    below = numpy.searchsorted(ordered, candidates, "left") + numpy.searchsorted(ordered, candidates, "right")
    return numpy.asarray(-numpy.abs(below - len(values)) / 2)

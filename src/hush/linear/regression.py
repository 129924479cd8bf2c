"""Private linear regression, as a scikit-learn regressor."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hush import _check
from hush.errors import InvalidValue
from hush.linear import ridge, sufficient
from hush.linear.estimator import Account, PrivateEstimator
from hush.linear.rows import Floats, box, is_norm_pair, needed_norm, with_constant, within_norm

METHODS = ("adassp", "output")


@dataclass(frozen=True)
class _Units:
    """How public bounds become units in which each row has at most a known length and targets lie in [-1, 1]."""

    centre: Floats
    scale: Floats  # of a column
    in_ball: bool
    target_centre: float
    target_scale: float

    @property
    def row_norm(self) -> float:
        return 1.0 if self.in_ball else math.sqrt(len(self.scale))

    def rows(self, rows: Floats) -> Floats:
        if self.in_ball:
            return within_norm(rows, float(self.scale[0]))
        inside = numpy.clip(rows, self.centre - self.scale, self.centre + self.scale)
        return numpy.clip((inside - self.centre) / self.scale, -1.0, 1.0)

    def targets(self, targets: Floats) -> Floats:
        low, high = self.target_centre - self.target_scale, self.target_centre + self.target_scale
        return numpy.clip((numpy.clip(targets, low, high) - self.target_centre) / self.target_scale, -1.0, 1.0)


def _units(bounds: object, columns: int) -> _Units:
    if bounds is None:
        raise InvalidValue(
            "bounds are needed, from public knowledge and never from the data: ((x_low, x_high), (y_low, y_high)), or "
            "(x_norm, y_bound) for the length of a row and the size of a target; what lies outside is moved inside."
        )
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InvalidValue("bounds must be ((x_low, x_high), (y_low, y_high)) or (x_norm, y_bound).")
    if is_norm_pair(bounds):
        scale = numpy.full(columns, needed_norm(bounds[0], "x_norm"))
        return _Units(numpy.zeros(columns), scale, True, 0.0, _check.positive("y_bound", bounds[1]))
    of_rows, of_target = box("the bounds of x", bounds[0], columns), box("the bounds of y", bounds[1], 1)
    return _Units(of_rows.middle, of_rows.half, False, float(of_target.middle[0]), float(of_target.half[0]))


class PrivateLinearRegression(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Least squares with differential privacy.

    >>> import numpy
    >>> x = numpy.linspace(0, 10, 2000).reshape(-1, 1)
    >>> model = PrivateLinearRegression(epsilon=1.0, delta=1e-6, bounds=((0, 10), (0, 30)))
    >>> abs(model.fit(x, 3 * x[:, 0]).predict([[5.0]])[0] - 15) < 1
    np.True_

    Args:
        epsilon: The most that the fit may cost. Needed.
        delta: The accepted chance of failure; None means 0, pure privacy, which "adassp" does not give.
        method: "adassp" (noisy X'X and X'y) or "output" (ridge regression in a ball, noise on its solution).
        bounds: ((x_low, x_high), (y_low, y_high)), the former two numbers or one for each column; or (x_norm, y_bound)
            for rows in a ball. Public knowledge. Needed; rows and targets outside are moved inside. Bounds of a box
            centre and scale the columns; a norm does neither.
        fit_intercept: Learn an intercept: a column of ones beside the scaled columns.
        alpha: Of "output": the weight of |w|^2 / 2 against the sum of errors / 2, in the scaled units. None: from the
            noise and the number of rows, noisy where that is private.
        coef_norm: Of "output": the radius of the ball that holds the weights, in the scaled units.
        relation: "add_remove" or "replace_one". Under "replace_one" the number of rows is public.
        random_state: A seed for tests; never release such a fit. None is fresh entropy.

    Attributes:
        coef_: One weight for each column.
        intercept_: The intercept.
        event_: What was done to the data.
        guarantee_: What that costs.
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        method: str = "adassp",
        bounds: object = None,
        *,
        fit_intercept: bool = True,
        alpha: float | None = None,
        coef_norm: float = 1.0,
        relation: str = "add_remove",
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.bounds = bounds
        self.fit_intercept = fit_intercept
        self.alpha = alpha
        self.coef_norm = coef_norm
        self.relation = relation
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, account: Account | None = None) -> PrivateLinearRegression:
        """Fit once, for the whole budget; `account` is charged before any noise is drawn.

        Raises:
            InvalidValue: A setting is missing or outside its domain.
            BudgetExceeded: The account cannot pay; nothing was fitted.
        """
        rows, targets = validate_data(self, X, y, dtype=numpy.float64, y_numeric=True)
        budget, units = self._budget(), _units(self.bounds, rows.shape[1])
        scaled, goal = units.rows(rows), units.targets(numpy.asarray(targets, dtype=numpy.float64))
        row_norm = units.row_norm
        if self.fit_intercept:
            scaled, row_norm = with_constant(scaled, 1.0), math.sqrt(row_norm**2 + 1)
        if _check.one_of("method", self.method, METHODS) == "adassp":
            plan = sufficient.SufficientPlan.for_budget(budget, row_norm, self._relation())
            rng = self._announce(plan.event, budget, numpy.column_stack([rows, targets]), account)
            weights = sufficient.fit(scaled, goal, plan, rng)
        else:
            other = self._ridge_plan(row_norm)
            rng = self._announce(other.event, budget, numpy.column_stack([rows, targets]), account)
            weights, self.alpha_ = ridge.fit(scaled, goal, other, rng)
        self._keep(weights, units)
        return self

    def _ridge_plan(self, row_norm: float) -> ridge.RidgePlan:
        return ridge.RidgePlan.for_budget(
            self._budget(),
            row_norm=row_norm,
            radius=_check.positive("coef_norm", self.coef_norm),
            alpha=None if self.alpha is None else _check.positive("alpha", self.alpha),
            relation=self._relation(),
        )

    def _keep(self, weights: Floats, units: _Units) -> None:
        slopes = weights[:-1] if self.fit_intercept else weights
        self.coef_ = slopes * units.target_scale / units.scale
        constant = float(weights[-1]) * units.target_scale if self.fit_intercept else 0.0
        self.intercept_ = units.target_centre + constant - float(units.centre @ self.coef_)

    def predict(self, X: ArrayLike) -> Floats:
        """The regression's value for each row."""
        check_is_fitted(self, "coef_")
        rows = validate_data(self, X, dtype=numpy.float64, reset=False)
        return numpy.asarray(rows @ self.coef_ + self.intercept_)

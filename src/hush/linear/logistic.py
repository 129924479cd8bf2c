"""Private logistic regression, as a scikit-learn classifier."""

from __future__ import annotations

import math
from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from hush import _check
from hush.errors import InvalidValue
from hush.linear import gradient, objective, output
from hush.linear.estimator import CLASSES_FROM_DATA, Account, PrivateEstimator, known_classes
from hush.linear.problem import Constants, Floats, Problem
from hush.linear.rows import needed_norm, with_constant, within_norm

METHODS = ("objective", "output", "gradient")


class PrivateLogisticRegression(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Logistic regression with differential privacy: of two classes, or of several by a softmax.

    >>> import numpy
    >>> x = numpy.repeat([[1.0, 0.0], [0.0, 1.0]], 500, axis=0)
    >>> y = numpy.repeat(["no", "yes"], 500)
    >>> model = PrivateLogisticRegression(epsilon=1.0, data_norm=1.0, classes=["no", "yes"]).fit(x, y)
    >>> model.predict([[0.0, 1.0]])[0], model.guarantee_.epsilon <= 1.0
    (np.str_('yes'), True)

    Args:
        epsilon: The most that the fit may cost. Needed.
        delta: The accepted chance of failure; None means 0, pure privacy. Above 0 the noise is Gaussian and, with
            more than a few features, much smaller. "gradient" needs one.
        method: "objective" (noise in the objective), "output" (noise on its minimiser) or "gradient" (noisy
            gradient descent on a loss that is straight for rows on the wrong side: its probabilities lean to 0 and 1).
        data_norm: The most that a row's Euclidean length can be, from public knowledge. Needed; longer rows are scaled
            down.
        alpha: The weight of |coef_|^2 / 2 against the sum of the losses, scikit-learn's 1/C. None: from the noise and
            the dimension ("output": and from the number of rows, noisy where that is private). The objective method
            raises one that is too small for the budget; `alpha_` is what was used.
        fit_intercept: Learn an intercept: a column that holds `data_norm`, clipped and regularised as the others.
        classes: The set of classes, public. None: it is read from y, which no guarantee covers; a note says so.
        relation: "add_remove" or "replace_one". Under "replace_one" the number of rows is public.
        steps: Of "gradient". More cost time and no privacy. None: 50 to 500, from alpha and the number of rows, noisy
            where that is private.
        random_state: A seed for tests; never release such a fit. None is fresh entropy.

    Attributes:
        coef_: One row of weights for two classes, else one per class.
        intercept_: One number for each row of `coef_`.
        classes_: The classes, sorted.
        alpha_: The regulariser that was used.
        event_: What was done to the data.
        guarantee_: What that costs.
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        method: str = "objective",
        data_norm: float | None = None,
        alpha: float | None = None,
        fit_intercept: bool = True,
        *,
        classes: ArrayLike | None = None,
        relation: str = "add_remove",
        steps: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.data_norm = data_norm
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.relation = relation
        self.steps = steps
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, account: Account | None = None) -> PrivateLogisticRegression:
        """Fit once, for the whole budget; `account` is charged before any noise is drawn.

        Raises:
            InvalidValue: A setting is missing or outside its domain.
            BudgetExceeded: The account cannot pay; nothing was fitted.
        """
        rows, labels, notes = self._checked(X, y)
        budget, norm = self._budget(), needed_norm(self.data_norm)
        alpha = None if self.alpha is None else _check.positive("alpha", self.alpha) / norm**2
        unit = within_norm(rows, norm)
        problem = Problem(
            rows=with_constant(unit, 1.0) if self.fit_intercept else unit,
            labels=labels,
            num_classes=len(self.classes_),
            row_norm=math.sqrt(2) if self.fit_intercept else 1.0,
        )
        plan = self._plan(problem.constants, problem.dimension, alpha)
        rng = self._announce(plan.event, budget, numpy.column_stack([rows, labels]), account, notes)
        if self.method == "output":
            weights, alpha = output.fit(problem, plan, rng)
        else:
            fit = objective.fit if self.method == "objective" else gradient.fit
            weights, alpha = fit(problem, plan, rng), plan.alpha
        self._keep(problem.class_weights(weights), norm)
        self.alpha_ = alpha * norm**2
        return self

    def _plan(self, constants: Constants, dimension: int, alpha: float | None) -> Any:
        budget, relation = self._budget(), self._relation()
        match _check.one_of("method", self.method, METHODS):
            case "objective":
                return objective.ObjectivePlan.for_budget(budget, constants, dimension, alpha=alpha, relation=relation)
            case "output":
                return output.OutputPlan.for_budget(budget, constants, alpha=alpha, relation=relation)
        steps = None if self.steps is None else _check.whole("steps", self.steps)
        return gradient.GradientPlan.for_budget(budget, constants, steps=steps, alpha=alpha, relation=relation)

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[Floats, NDArray[numpy.int64], tuple[str, ...]]:
        rows, targets = validate_data(self, X, y, dtype=numpy.float64)
        check_classification_targets(targets)
        notes: tuple[str, ...] = ()
        if self.classes is None:
            self.classes_, notes = numpy.unique(targets), (CLASSES_FROM_DATA,)
        else:
            self.classes_ = known_classes(self.classes)
        if len(self.classes_) < 2:
            raise InvalidValue("y must hold two classes or more, but there is one class only; name all by classes=.")
        labels = numpy.searchsorted(self.classes_, targets).clip(0, len(self.classes_) - 1)
        if (self.classes_[labels] != targets).any():
            raise InvalidValue("y holds a class that is not in classes; list every class that may occur.")
        return rows, labels.astype(numpy.int64), notes

    def _keep(self, table: Floats, norm: float) -> None:
        if self.fit_intercept:
            self.coef_, self.intercept_ = table[:, :-1] / norm, table[:, -1].copy()
        else:
            self.coef_, self.intercept_ = table / norm, numpy.zeros(len(table))

    def decision_function(self, X: ArrayLike) -> Floats:
        """The logit of the second class, or one for each class."""
        check_is_fitted(self, "coef_")
        rows = validate_data(self, X, dtype=numpy.float64, reset=False)
        scores = rows @ self.coef_.T + self.intercept_
        return numpy.asarray(scores[:, 0] if len(self.classes_) == 2 else scores)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest class of each row."""
        scores = self.decision_function(X)
        places = (scores > 0).astype(numpy.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return numpy.asarray(self.classes_[places])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """The chance of each class, in the order of `classes_`."""
        return numpy.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """The logarithm of `predict_proba`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return numpy.stack([-numpy.logaddexp(0, scores), -numpy.logaddexp(0, -scores)], axis=1)
        top = scores.max(axis=1, keepdims=True)
        return numpy.asarray(scores - top - numpy.log(numpy.exp(scores - top).sum(axis=1, keepdims=True)))

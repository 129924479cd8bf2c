"""A private softmax on fixed features, as a scikit-learn classifier for tables of gigabytes."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from hush import _check, events
from hush.errors import InvalidValue
from hush.linear import softmax_head
from hush.linear.estimator import Account, PrivateEstimator, known_classes
from hush.linear.rows import needed_norm
from hush.linear.softmax_head import HeadPlan

_FREQUENCIES = numpy.sqrt([1.0, 2.0, 3.0, 5.0])
_MARKED = 1_024  # rows that are looked at to find out whether they were fitted before


class PrivateSoftmaxHead(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Softmax regression by full-batch noisy gradient descent, on features in float32 or sparse.

    >>> import numpy
    >>> x = numpy.repeat(numpy.eye(3, dtype=numpy.float32), 2_000, axis=0)
    >>> head = PrivateSoftmaxHead(epsilon=1.0, delta=1e-5, classes=[0, 1, 2], data_norm=1.0)
    >>> head.fit(x, numpy.repeat([0, 1, 2], 2_000)).predict(x[::2_000]).tolist()
    [0, 1, 2]

    Args:
        epsilon: The most that the fit, and what was `spent` before, may cost. Needed.
        delta: The accepted chance of failure. Needed, above 0.
        classes: The set of classes, public. Needed.
        data_norm: The most that a row's Euclidean length can be. Needed; longer rows are scaled down.
        clip_norm: Of one row's gradient, for rows of length at most 1; the longest possible is 1.41.
        steps: Of the descent. More cost time and no privacy.
        learning_rate: On the mean gradient. None: in proportion to the budget and to the (noisy) number of rows.
        spent: The event of what was released of the same rows before, as by transformers of `hush.features`.
        relation: "add_remove" or "replace_one". Under "replace_one" the number of rows is public.
        random_state: A seed for tests; never release such a fit. None is fresh entropy.

    Attributes:
        coef_: One row of weights for each class.
        intercept_: Zeros: rows of fixed features have no need of one.
        event_: What was done to the rows, `spent` included.
        guarantee_: What that costs.
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        classes: ArrayLike | None = None,
        data_norm: float | None = None,
        clip_norm: float | None = None,
        steps: int = 80,
        learning_rate: float | None = None,
        spent: events.Event | None = None,
        relation: str = "add_remove",
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.data_norm = data_norm
        self.clip_norm = clip_norm
        self.steps = steps
        self.learning_rate = learning_rate
        self.spent = spent
        self.relation = relation
        self.random_state = random_state

    def plan(self) -> HeadPlan:
        """The noise and the steps that the settings stand for."""
        budget = self._budget()
        if budget.delta == 0:
            raise InvalidValue("a softmax head needs a delta above 0, such as 1e-5.")
        return HeadPlan.for_budget(
            budget,
            steps=_check.whole("steps", self.steps),
            clip_norm=1.0 if self.clip_norm is None else _check.positive("clip_norm", self.clip_norm),
            learning_rate=None if self.learning_rate is None else _check.positive("learning_rate", self.learning_rate),
            spent=self.spent,
            relation=self._relation(),
        )

    def fit(self, X: Any, y: ArrayLike, account: Account | None = None) -> PrivateSoftmaxHead:
        """Fit once, for what is left of the budget; `account` is charged before any noise is drawn.

        Raises:
            InvalidValue: A setting is missing or outside its domain.
            BudgetExceeded: The account cannot pay; nothing was fitted.
        """
        rows, labels = self._checked(X, y)
        plan = self.plan()
        known = _marks(rows[:_MARKED], labels[:_MARKED]) if account is None else numpy.empty((0, 1))
        rng = self._announce(plan.event, self._budget(), known, account, spent=self.spent)
        weights = softmax_head.descend(rows, labels, len(self.classes_), [plan], rng)[0]
        self.coef_ = weights.T / needed_norm(self.data_norm)
        self.intercept_ = numpy.zeros(len(self.classes_))
        return self

    def _checked(self, X: Any, y: ArrayLike) -> tuple[Any, NDArray[numpy.int64]]:
        rows, targets = validate_data(self, X, y, accept_sparse="csr", dtype=[numpy.float32, numpy.float64], order="C")
        check_classification_targets(targets)
        if self.classes is None:
            raise InvalidValue("classes is needed: all classes that may occur, from public knowledge.")
        self.classes_ = known_classes(self.classes)
        if len(self.classes_) < 2:
            raise InvalidValue(f"classes must name two classes or more; got {len(self.classes_)}.")
        labels = numpy.searchsorted(self.classes_, targets).clip(0, len(self.classes_) - 1)
        if (self.classes_[labels] != targets).any():
            raise InvalidValue("y holds a class that is not in classes; list every class that may occur.")
        return softmax_head.within_norm(rows, needed_norm(self.data_norm)), labels.astype(numpy.int64)

    def decision_function(self, X: Any) -> NDArray[Any]:
        """One logit for each class; of two classes, that of the second against the first."""
        check_is_fitted(self, "coef_")
        rows = validate_data(self, X, accept_sparse="csr", dtype=[numpy.float32, numpy.float64], reset=False)
        scores = numpy.asarray(rows @ self.coef_.T)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row."""
        scores = self.decision_function(X)
        places = (scores > 0).astype(numpy.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return numpy.asarray(self.classes_[places])

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """The chance of each class, in the order of `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = numpy.stack([numpy.zeros_like(scores), scores], axis=1)
        powers = numpy.exp(scores - scores.max(axis=1, keepdims=True))
        return numpy.asarray(powers / powers.sum(axis=1, keepdims=True))


def _marks(rows: Any, labels: NDArray[numpy.int64]) -> NDArray[numpy.float64]:
    """What tells rows apart: all columns, or of sparse rows, which may have millions, a few sums of them."""
    if issparse(rows):
        rows = rows @ numpy.sin(numpy.outer(1 + numpy.arange(rows.shape[1]), _FREQUENCIES))
    return numpy.column_stack([rows, labels]).astype(numpy.float64)

"""The first membership attack: a classifier of confidence vectors for each class (Shokri et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hush.attacks.result import AttackResult
from hush.attacks.shadows import Flags, Shadows
from hush.attacks.signals import Floats, Labels, Model, log_odds

_LEAST = 50  # examples, half of them members, for a class's own classifier


def shadow_models(
    model: Model,
    shadows: Shadows,
    members: Any,
    *,
    attack_model: Callable[[], Any] | None = None,
    per_class: bool = True,
) -> AttackResult:
    """Learn from the shadow models what a member's confidence vector looks like, one classifier for each class.

    Args:
        model: The attacked model: rows -> what the shadows give.
        shadows: Models like it, with the rows that they saw.
        members: Which rows of the pool the attacked model was trained on: the truth to measure against.
        attack_model: Gives a new scikit-learn classifier with `predict_proba`; a logistic regression if None.
        per_class: One classifier for each class, as in the paper, or one for all. Classes with few rows share one.
    """
    make, inside_target = attack_model or _logistic, shadows.check_target(members)
    target = features(shadows.target(model), shadows.labels)
    known = np.concatenate([features(values, shadows.labels) for values in shadows.log_probs])
    answers, classes = shadows.included.reshape(-1), np.tile(shadows.labels, shadows.count)
    scores = _fitted(make, known, answers)(target)
    if per_class:
        for number in np.unique(shadows.labels):
            inside, rows = classes == number, shadows.labels == number
            if min(answers[inside].sum(), (~answers[inside]).sum()) >= _LEAST // 2:
                scores[rows] = _fitted(make, known[inside], answers[inside])(target[rows])
    return AttackResult("shadow models", scores, inside_target)


def features(log_probs: Floats, labels: Labels) -> Floats:
    """The true class's log-odds and log-probability, then the others' log-probabilities from the largest down."""
    others = np.where(np.arange(log_probs.shape[-1]) == labels[:, None], -np.inf, log_probs)
    sorted_others = -np.sort(-others, axis=-1)[:, :-1]
    own = np.take_along_axis(log_probs, labels[:, None], axis=-1)
    return np.concatenate([log_odds(log_probs, labels)[:, None], own, sorted_others], axis=1)


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))


def _fitted(make: Callable[[], Any], known: Floats, answers: Flags) -> Callable[[Floats], Floats]:
    """A new classifier on these rows; it gives the log-odds of membership, where the probability would round to 1."""
    classifier = make()
    classifier.fit(known, answers)
    if hasattr(classifier, "decision_function"):
        return lambda rows: np.asarray(classifier.decision_function(rows), dtype=np.float64)
    return lambda rows: np.asarray(classifier.predict_proba(rows)[:, 1], dtype=np.float64)

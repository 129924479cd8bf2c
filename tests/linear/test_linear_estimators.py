"""The estimators as scikit-learn and their users see them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from hush import Budget, Ledger, accounting, events
from hush.errors import BudgetExceeded, HushError, InvalidValue
from hush.linear import PrivateLinearRegression, PrivateLogisticRegression, PrivateTheilSen, RepeatedFitWarning, repeats
from hush.privacy import round_up

LOGISTIC = [("objective", None), ("objective", 1e-5), ("output", None), ("output", 1e-5), ("gradient", 1e-5)]
LINEAR = [("adassp", 1e-5), ("output", 1e-5), ("output", None)]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    repeats.forget()


def classes_apart(num_rows: int = 600, num_classes: int = 2, seed: int = 0) -> tuple[numpy.ndarray, numpy.ndarray]:
    rng = numpy.random.default_rng(seed)
    y = rng.integers(0, num_classes, num_rows)
    x = 0.2 * rng.standard_normal((num_rows, 4))
    x[numpy.arange(num_rows), y] += 0.8
    return x, y


def on_a_plane(num_rows: int = 3000, seed: int = 0) -> tuple[numpy.ndarray, numpy.ndarray]:
    rng = numpy.random.default_rng(seed)
    x = rng.uniform(0, 10, (num_rows, 2))
    return x, 3 * x[:, 0] - 2 * x[:, 1] + 5 + rng.standard_normal(num_rows)


def all_estimators(epsilon: float = 1.0, **more: Any) -> list[Any]:
    plane = ((0, 10), (-20, 40))
    return [
        *(PrivateLogisticRegression(epsilon, delta, method, data_norm=2.0, **more) for method, delta in LOGISTIC),
        *(PrivateLinearRegression(epsilon, delta, method, plane, **more) for method, delta in LINEAR),
        PrivateTheilSen(epsilon, (0, 10), (-20, 40), **more),
    ]


def quietly(x: numpy.ndarray, y: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The data, with earlier fits on it forgotten."""
    repeats.forget()
    return x, y


def fitted(model: Any, **more: Any) -> Any:
    if isinstance(model, PrivateLogisticRegression):
        return model.fit(*quietly(*classes_apart()), **more)
    x, y = quietly(*on_a_plane())
    return model.fit(x[:, :1] if isinstance(model, PrivateTheilSen) else x, y, **more)


# The bounds are about those of scikit-learn's own test data; a large epsilon, because some checks ask for accuracy
# (of a regression with alpha 0.01, which they set themselves).
CHECKED = [
    *(PrivateLogisticRegression(100.0, delta, method, 6.0, random_state=0) for method, delta in LOGISTIC),
    PrivateLinearRegression(50.0, 1e-5, "adassp", ((-4, 4), (-4, 4)), random_state=0),
    PrivateLinearRegression(1e6, None, "output", (6.0, 4.0), coef_norm=5.0, random_state=0),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", CHECKED, ids=lambda model: f"{model.method}-{model.delta}")
def test_scikit_learn_accepts_the_estimator(model: Any) -> None:
    """All checks, none excused; those of pipelines run because `random_state` makes the fit repeatable."""
    found = check_estimator(model, on_skip=None)
    assert sum(result["status"] == "passed" for result in found) >= 45


@pytest.mark.filterwarnings("ignore")
def test_theil_sen_is_described_as_one_dimensional() -> None:
    """Scikit-learn's checks are for tables of several columns, and leave such an estimator out; so the rest is here."""
    check_estimator(PrivateTheilSen(1.0, (0, 1), (0, 1)), on_skip=None)
    x, y = on_a_plane()
    with pytest.raises(InvalidValue, match="one feature"):
        PrivateTheilSen(1.0, (0, 10), (-20, 40)).fit(x, y)
    for bad in (numpy.nan, numpy.inf):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            PrivateTheilSen(1.0, (0, 10), (-20, 40)).fit([[bad], [1.0]], [0.0, 1.0])
    flat = PrivateTheilSen(1.0, (0, 10), (-20, 40), random_state=1).fit(x[:, 0], y)
    table = PrivateTheilSen(1.0, (0, 10), (-20, 40), random_state=1).fit(x[:, :1], y)
    assert flat.coef_ == table.coef_


@pytest.mark.parametrize("model", all_estimators(), ids=repr)
def test_cost_is_inside_the_budget_and_charged(model: Any, tmp_path: Any) -> None:
    account = Ledger(tmp_path / "budget.db").account("rows", cap=Budget(epsilon=1.2, delta=1e-5))
    fitted(model, account=account)
    delta = getattr(model, "delta", None) or 0.0
    assert Budget(epsilon=1.0, delta=delta).allows(model.guarantee_)
    assert model.guarantee_.epsilon > 0.999
    assert accounting.guarantee(model.event_, delta=delta).epsilon == model.guarantee_.epsilon
    assert [row.content for row in account.rows() if row.kind == "charge"] == [events.to_json(model.event_)]
    other = clone(model)
    with pytest.raises(BudgetExceeded):
        fitted(other, account=account)
    assert not hasattr(other, "coef_")


def test_charge_comes_before_any_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def charge(self, event: events.Event) -> None:
            raise BudgetExceeded("no")

    def drawn(*_: object) -> None:
        raise AssertionError("noise was drawn")

    for name in ("cipher_stream", "stream"):
        monkeypatch.setattr(f"hush.rng.Rng.{name}", drawn)
    for model in all_estimators():
        with pytest.raises(BudgetExceeded):
            fitted(model, account=Refusing())
        with pytest.raises(AssertionError, match="noise was drawn"):
            fitted(model)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_relation_is_kept_and_an_account_for_another_is_refused(relation: str, tmp_path: Any) -> None:
    for place, model in enumerate(all_estimators(relation=relation)):
        assert fitted(model).guarantee_.relation == relation
        other = "replace_one" if relation == "add_remove" else "add_remove"
        account = Ledger(tmp_path / f"{place}.db").account("rows", cap=None, relation=other)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="account is kept for"):
            fitted(model, account=account)


@pytest.mark.parametrize("model", all_estimators(), ids=repr)
def test_noise_is_fresh_unless_seeded_and_a_seed_is_told(model: Any) -> None:
    numpy.random.seed(0)  # noqa: NPY002
    one = fitted(clone(model)).coef_
    others = []
    for _ in range(6):  # a few, since Theil-Sen chooses among candidates and may choose the same ones again
        numpy.random.seed(0)  # noqa: NPY002
        others.append(fitted(clone(model)).coef_)
    assert any((other != one).any() for other in others)
    seeded = [fitted(clone(model).set_params(random_state=3)) for _ in range(2)]
    assert (seeded[0].coef_ == seeded[1].coef_).all()
    assert seeded[0].randomness_ == "seed 3"
    assert any("seed 3" in note for note in seeded[0].guarantee_.notes)


@pytest.mark.parametrize(("method", "delta"), LOGISTIC)
def test_logistic_learns_two_and_several_classes(method: str, delta: float | None) -> None:
    for num_classes in (2, 3):
        x, y = classes_apart(3000, num_classes)
        model = PrivateLogisticRegression(4.0, delta, method, 2.0, classes=list(range(num_classes)))
        model.fit(*quietly(x, y))
        assert model.score(x, y) > 0.9
        assert model.coef_.shape == (1 if num_classes == 2 else 3, 4)
        chances = model.predict_proba(x)
        assert chances.sum(axis=1) == pytest.approx(numpy.ones(len(x)))
        assert (model.classes_[chances.argmax(axis=1)] == model.predict(x)).all()


@pytest.mark.parametrize(("method", "delta"), LINEAR)
def test_linear_finds_the_plane(method: str, delta: float | None) -> None:
    x, y = on_a_plane(200_000)  # so many that noise would have to be six standard errors off
    model = PrivateLinearRegression(3.0, delta, method, ((0, [10, 10]), (-20, 40))).fit(x, y)
    assert model.score(x, y) > (0.95 if method == "adassp" else 0.6)
    assert model.predict([[5.0, 5.0]])[0] == pytest.approx(10, abs=2)


def test_theil_sen_finds_the_line_among_outliers() -> None:
    rng = numpy.random.default_rng(0)
    x = rng.uniform(0, 10, 2000)
    y = numpy.where(rng.uniform(size=2000) < 0.15, 40.0, 2 * x + 1)
    model = PrivateTheilSen(2.0, (0, 10), (-20, 40), random_state=0).fit(x, y)
    assert model.coef_[0] == pytest.approx(2, abs=0.4)
    assert model.predict([5.0])[0] == pytest.approx(11, abs=1.5)


@pytest.mark.parametrize(("method", "delta"), LOGISTIC)
def test_units_of_the_rows_do_not_matter(method: str, delta: float | None) -> None:
    """Rows and bound times 12: the same model in the other unit, and the same alpha in units of the weights."""
    x, y = classes_apart()
    models = []
    for factor in (1.0, 12.0):
        model = PrivateLogisticRegression(1.0, delta, method, 0.5 * factor, random_state=5)
        models.append(model.fit(*quietly(x * factor, y)))
    assert models[1].coef_ * 12 == pytest.approx(models[0].coef_, rel=1e-4, abs=1e-4)
    assert models[1].intercept_ == pytest.approx(models[0].intercept_, rel=1e-4, abs=1e-4)
    assert models[1].alpha_ == pytest.approx(144 * models[0].alpha_, rel=1e-6)


def test_what_lies_outside_counts_as_at_the_bound() -> None:
    x, y = classes_apart()
    far = x.copy()
    far[0] *= 1e200
    near = x.copy()
    near[0] /= numpy.linalg.norm(x[0])
    one, other = (
        PrivateLogisticRegression(1.0, data_norm=1.0, random_state=1).fit(*quietly(part, y)) for part in (far, near)
    )
    assert one.coef_ == pytest.approx(other.coef_, rel=1e-5)
    plane, heights = on_a_plane()
    wild, low = plane.copy(), plane.copy()
    wild[0], low[0] = (1e9, -1e9), (10, 0)
    bounds = ((0, 10), (-20, 40))
    lines = [
        PrivateLinearRegression(1.0, 1e-5, bounds=bounds, random_state=1).fit(*quietly(part, heights))
        for part in (wild, low)
    ]
    assert lines[0].coef_ == pytest.approx(lines[1].coef_)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (PrivateLogisticRegression(data_norm=1.0), "epsilon is needed"),
        (PrivateLogisticRegression(1.0), "data_norm is needed"),
        (PrivateLogisticRegression(1.0, data_norm=-1.0), "data_norm must be above 0"),
        (PrivateLogisticRegression(1.0, data_norm=numpy.inf), "data_norm must be a finite"),
        (PrivateLogisticRegression(0.0, data_norm=1.0), "epsilon must be above 0"),
        (PrivateLogisticRegression(1.0, 2.0, data_norm=1.0), "delta must be in"),
        (PrivateLogisticRegression(1.0, data_norm=1.0, method="magic"), "method must be one of"),
        (PrivateLogisticRegression(1.0, data_norm=1.0, method="gradient"), "needs a delta above 0"),
        (PrivateLogisticRegression(1.0, data_norm=1.0, alpha=-1.0), "alpha must be above 0"),
        (PrivateLogisticRegression(1.0, data_norm=1.0, classes=[0, 5]), "not in classes"),
        (PrivateLogisticRegression(1.0, data_norm=1.0, relation="zero_out"), "relation must be one of"),
        (PrivateLogisticRegression(1.0, data_norm=1.0, random_state="x"), "random_state must be"),
        (PrivateLinearRegression(1.0, 1e-5), "bounds are needed"),
        (PrivateLinearRegression(1.0, bounds=((0, 10), (0, 1))), "needs a delta above 0"),
        (PrivateLinearRegression(1.0, 1e-5, bounds=((0, 10), (1, 0))), "low below high"),
        (PrivateLinearRegression(1.0, 1e-5, bounds=(1.0, -1.0)), "y_bound must be above 0"),
        (PrivateTheilSen(1.0, y_bounds=(0, 1)), "x_bounds are needed"),
        (PrivateTheilSen(1.0, (0, 1)), "y_bounds are needed"),
        (PrivateTheilSen(1.0, (0, 1), (0, 1), matchings=0), "matchings must be at least 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_missing_or_wrong_is_said_in_one_line(model: Any, words: str) -> None:
    with pytest.raises(HushError, match=words) as caught:
        fitted(model)
    assert "\n" not in str(caught.value)


def test_bounds_that_gave_no_noise_elsewhere_give_noise() -> None:
    """A known defect of another library: bounds (0, 100) had sensitivity 0, so two fits were equal."""
    x, y = on_a_plane()
    model = PrivateLinearRegression(1.0, 1e-5, "adassp", ((0, 100), (0, 100)))
    one = model.fit(x, y).coef_
    repeats.forget()
    assert (abs(model.fit(x, y).coef_ - one) > 1e-6).all()


def test_classes_from_the_data_are_noted() -> None:
    x, y = classes_apart()
    model = PrivateLogisticRegression(1.0, data_norm=2.0).fit(x, y)
    assert any("classes" in note for note in model.guarantee_.notes)
    repeats.forget()
    named = PrivateLogisticRegression(1.0, data_norm=2.0, classes=[0, 1, 2]).fit(x, y)
    assert not any("classes" in note for note in named.guarantee_.notes)
    assert named.classes_.tolist() == [0, 1, 2]  # a class that nobody has stays a class


def test_cross_validation_warns_of_its_cost() -> None:
    x, y = classes_apart()
    model = make_pipeline(FunctionTransformer(), PrivateLogisticRegression(1.0, 1e-5, "gradient", 2.0, steps=5))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_val_score(model, x, y, cv=5)
    assert [warning.category for warning in caught] == [RepeatedFitWarning] * 4
    five = model[-1].fit(*quietly(x, y)).event_
    cost = accounting.guarantee(events.Repeated(five, 5), delta=1e-5).epsilon
    assert "5 private models were fitted on rows of the same data" in str(caught[-1].message)
    assert f"epsilon {round_up(cost)} at delta 1e-05" in str(caught[-1].message)


def test_an_account_takes_the_place_of_the_warning(tmp_path: Any) -> None:
    x, y = classes_apart()
    account = Ledger(tmp_path / "budget.db").account("rows", cap=Budget(epsilon=3.0, delta=0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            PrivateLogisticRegression(1.0, data_norm=2.0).fit(x, y, account=account)
        other = classes_apart(seed=9)
        PrivateLogisticRegression(1.0, data_norm=2.0).fit(*other)  # other rows: no reason to warn
    assert account.spent().epsilon == pytest.approx(2.0, rel=1e-6)


def test_nothing_private_is_kept() -> None:
    """Numbers of rows, of solver steps or of clipped rows would be read from the data."""
    model = fitted(PrivateLogisticRegression(1.0, None, "output", data_norm=2.0))
    learned = {name for name in vars(model) if name.endswith("_")}
    shown = {"event_", "charged_", "guarantee_", "randomness_", "n_features_in_"}
    assert learned == {"coef_", "intercept_", "classes_", "alpha_", *shown}

"""`hush train --model logistic|linear|theil-sen`: models of `hush.linear`, fitted at once instead of step by step."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hush import _check
from hush.cli.output import print_json, print_lines, print_table
from hush.errors import InvalidValue

MODELS = ("logistic", "linear", "theil-sen")
METHODS = {"logistic": ("objective", "output", "gradient"), "linear": ("adassp", "output")}
OF_STEPS = {"optimizer": "sgd", "average": "none"}  # options that have a value unless said
_STEPWISE = (
    *("steps", "epochs", "clip_norm", "learning_rate", "expected_batch_size", "module", "unit", "resume", "live"),
    *("num_examples", "physical_batch_size", "secure", *OF_STEPS),
)

Method = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of logistic: objective, output, gradient; of linear: adassp, output."),
]
DataNorm = Annotated[float | None, typer.Option(metavar="NUMBER", help="Of logistic: the longest that a row can be.")]
XBounds = Annotated[str | None, typer.Option(metavar="LOW,HIGH", help="Of linear and theil-sen: the features' range.")]
YBounds = Annotated[str | None, typer.Option(metavar="LOW,HIGH", help="Of linear and theil-sen: the target's range.")]
Classes = Annotated[str | None, typer.Option(metavar="A,B,...", help="Of logistic without a schema: the classes.")]
Features = Annotated[str | None, typer.Option(metavar="A,B,...", help="Columns to learn from; all but the target.")]


@dataclass(frozen=True)
class Fitted:
    """What came out."""

    model: Any
    folder: Path
    score: tuple[str, float]
    twin: float | None
    seconds: float


def is_asked(params: dict[str, Any]) -> bool:
    """Whether the model is one of these; "linear" is, where bounds are given and nothing speaks of steps."""
    given = any(params[name] is not None for name in ("x_bounds", "y_bounds", "data_norm"))
    if params["model"] == "linear":
        return given or params["method"] is not None
    if params["model"] not in MODELS and given:
        raise InvalidValue(f"--data-norm, --x-bounds and --y-bounds are for --model {', '.join(MODELS)}.")
    return params["model"] in MODELS


def run(params: dict[str, Any], place: Path) -> None:
    """Read the rows, charge, fit, test, save, print."""
    from hush import linear
    from hush.privacy import Budget

    _refuse_stepwise(params)
    if params["method"] is not None:
        _check.one_of("--method", params["method"], METHODS.get(params["model"], ()))
    rows = _rows(params)
    model = _model(params, rows)
    start = time.perf_counter()
    budget = Budget(epsilon=model.epsilon, delta=getattr(model, "delta", None) or 0.0)
    account, books = open_account(params, budget, rows.name, place)
    model.fit(*_targets(model, rows.x, rows.y, rows), account=account)
    score = _score(model, rows)
    twin = (
        None if params["no_twin"] else _score(_twin(params["model"]).fit(*_targets(model, rows.x, rows.y, rows)), rows)
    )
    linear.save(model, place, account=account, ledger=books)
    fitted = Fitted(model, place, score, None if twin is None else twin[1], time.perf_counter() - start)
    _describe(params, rows, fitted)
    facts = _facts(params, rows, fitted)
    print_json(facts) if params["json"] else _print(facts)


def _describe(params: dict[str, Any], rows: Any, fitted: Fitted) -> None:
    from hush import report
    from hush.cli.task import is_table

    name, value = fitted.score
    scores = None if value != value else report.Scores(name=name, private=value, twin=fitted.twin)
    report.describe(
        fitted.folder,
        data=rows.name,
        model=params["model"],
        public_data=not is_table(params["data"]),
        scores=scores,
        notes=rows.notes,
    )


def _refuse_stepwise(params: dict[str, Any]) -> None:
    if params["data"] is None:
        raise InvalidValue("name what to train on: --data adult, or --data table.csv.")
    given = [name for name in _STEPWISE if params[name] not in (None, False, OF_STEPS.get(name))]
    if given == ["steps"] and params["method"] == "gradient":
        return
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise InvalidValue(f"{flags} is for models that are trained in steps, not for --model {params['model']}.")


def _rows(params: dict[str, Any]) -> Any:
    from hush.cli import linear_data, task

    name, model = params["data"], params["model"]
    described = params["schema"] is not None or params["public_schema"]
    if model == "theil-sen" or (task.is_table(name) and not described):
        _ask_for_bounds(params)
        return linear_data.by_columns(name, params, numeric=model != "logistic")
    rows = linear_data.by_schema(name, params)
    if (rows.classes is None) != (model == "linear"):
        kind = "a number: use --model linear" if rows.classes is None else "a category: use --model logistic"
        raise InvalidValue(f"the target of {rows.name} is {kind}.")
    return rows


def _ask_for_bounds(params: dict[str, Any]) -> None:
    wanted = ("data_norm",) if params["model"] == "logistic" else ("x_bounds", "y_bounds")
    missing = ["--" + name.replace("_", "-") for name in wanted if params[name] is None]
    if missing:
        raise InvalidValue(
            f"--model {params['model']} needs {' and '.join(missing)}, from public knowledge and never from the rows"
            + ("; or give a --schema." if params["model"] != "theil-sen" else ".")
        )


def bounds(name: str, text: str) -> tuple[float, float]:
    """Two numbers with a comma between them.

    >>> bounds("--x-bounds", "0,10")
    (0.0, 10.0)
    """
    parts = text.split(",")
    try:
        low, high = (float(part) for part in parts)
    except ValueError:
        raise InvalidValue(
            f"{name} must be two numbers with a comma between them, such as 0,10; got {text!r}."
        ) from None
    return low, high


def _model(params: dict[str, Any], rows: Any) -> Any:
    from hush import linear
    from hush.cli.recipes import default_delta

    if params["epsilon"] is None:
        raise InvalidValue("--epsilon is needed: it has no default, because it is what the promise says.")
    delta = params["delta"]
    if delta is None and rows.num_examples is not None:
        delta = default_delta(rows.num_examples)
    common = {"epsilon": params["epsilon"], "relation": params["relation"], "random_state": params["seed"]}
    if params["model"] == "theil-sen":
        x, y = (bounds(f"--{name}-bounds", params[f"{name}_bounds"]) for name in ("x", "y"))
        return linear.PrivateTheilSen(x_bounds=x, y_bounds=y, **common)
    if params["model"] == "logistic":
        steps = {} if params["steps"] is None else {"steps": params["steps"]}
        norm = rows.data_norm if params["data_norm"] is None else params["data_norm"]
        settings = {
            "method": params["method"] or "objective",
            "data_norm": norm,
            "classes": list(rows.classes),
            **steps,
        }
        return linear.PrivateLogisticRegression(delta=delta, **settings, **common)
    limits: Any = (1.0, 0.5)  # a schema's rows are in the unit ball; its targets, less 1/2, within 1/2
    if rows.data_norm is None:
        limits = tuple(bounds(f"--{name}-bounds", params[f"{name}_bounds"]) for name in ("x", "y"))
    return linear.PrivateLinearRegression(delta=delta, method=params["method"] or "adassp", bounds=limits, **common)


def _targets(model: Any, x: Any, y: Any, rows: Any) -> tuple[Any, Any]:
    """Targets that a schema put into [0, 1] are centred; others are as they are."""
    return x, y - 0.5 if rows.classes is None and rows.data_norm is not None else y


def _twin(name: str) -> Any:
    from sklearn import linear_model

    if name == "logistic":
        return linear_model.LogisticRegression(max_iter=2000)
    return linear_model.LinearRegression() if name == "linear" else linear_model.TheilSenRegressor(random_state=0)


def _score(model: Any, rows: Any) -> tuple[str, float]:
    name = "test_r2" if rows.classes is None else "test_accuracy"
    if len(rows.test_x) < 2:
        return name, float("nan")
    return name, float(model.score(*_targets(model, rows.test_x, rows.test_y, rows)))


def open_account(params: dict[str, Any], budget: Any, data: str, place: Path) -> tuple[Any, str | None]:
    """The account to charge, and the shared ledger it is in; None for the run's own."""
    from hush.ledger import Ledger
    from hush.privacy import check_relation

    relation = check_relation(params["relation"])
    if params["ledger"] is None:
        place.mkdir(parents=True, exist_ok=True)
        return Ledger(place / "ledger.db").account("training", cap=budget, relation=relation), None
    ledger = Ledger(params["ledger"])
    name = params["account"] or data
    known = any(account.name == name for account in ledger.accounts())
    return ledger.account(name, cap=None if known else budget, relation=relation), params["ledger"]


def _facts(params: dict[str, Any], rows: Any, fitted: Fitted) -> dict[str, Any]:
    model, (name, value) = fitted.model, fitted.score
    result: dict[str, Any] = {"data": rows.name, "model": params["model"]}
    if value == value:  # not NaN: there were test rows
        result[name] = value
        if fitted.twin is not None:
            result[f"twin_{name}"] = fitted.twin
    guarantee = model.guarantee_.to_dict()
    return {
        **result,
        **guarantee,
        "fit_method": getattr(model, "method", "theil-sen"),
        "coef": model.coef_.tolist(),
        "intercept": model.intercept_ if isinstance(model.intercept_, float) else model.intercept_.tolist(),
        "randomness": model.randomness_,
        "seconds": round(fitted.seconds, 2),
        "out": str(fitted.folder),
        "notes": [*guarantee["notes"], *rows.notes],
    }


def _print(facts: dict[str, Any]) -> None:
    from hush.privacy import round_up

    print_lines(f"{facts['data']}; model: {facts['model']} by {facts['fit_method']}")
    name = next((key for key in ("test_accuracy", "test_r2") if key in facts), None)
    if name is not None:
        shown = [f"{facts[key]:.4f}" if key in facts else "-" for key in (name, f"twin_{name}")]
        columns = ("", "private", "without privacy")
        print_table("on the test rows", columns, [(name.replace("_", " "), *shown)], numbers=columns[1:])
    relation = facts["relation"].replace("_", " ")
    claim = (
        f"({round_up(facts['epsilon'])}, {facts['delta']:.3g})-differential privacy, {relation}, by {facts['method']}"
    )
    lines = [f"proven: {claim}", *(f"note: {note}" for note in facts["notes"])]
    print_lines(*lines, f"saved: {facts['out']} ({facts['seconds']:.1f} s)")

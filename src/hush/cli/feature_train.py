"""`hush train --recipe NAME`: fixed features, some noisy sums of them, and a private softmax."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from hush.cli.feature_recipes import RECIPES, FeatureRecipe, recipe
from hush.cli.linear_train import OF_STEPS, open_account
from hush.cli.output import print_json, print_lines, print_table, waiting
from hush.errors import InvalidValue

FEATURES_FILE = "features.safetensors"
RecipeName = Annotated[
    str | None, typer.Option("--recipe", metavar="NAME", help=f"Fixed features and a softmax: {', '.join(RECIPES)}.")
]
_OTHERS = (
    *("data", "model", "epochs", "expected_batch_size", "num_examples", "learning_rate", "unit", "physical_batch_size"),
    *("module", "target", "schema", "write_schema", "test", "method", "data_norm", "x_bounds", "y_bounds", "classes"),
    *("features", "resume", "live", "secure", "public_schema", *OF_STEPS),
)
_OF_HEAD = 2_000_000  # added to a seed: no two releases of a run have the same noise


def run(params: dict[str, Any], place: Path) -> None:
    """Compute the features, charge for each release, fit, test, save, print."""
    from hush import features, linear
    from hush.privacy import Budget

    _refuse_others(params)
    chosen = recipe(params["recipe"])
    start = time.perf_counter()
    train, test, num_classes = (_texts if chosen.texts else _pictures)(chosen.data, params["folder"])
    transformers = chosen.make(params["seed"])
    head = _head(params, chosen, num_classes, transformers)
    _check_delta(head.delta, len(train[1]))
    head.plan()  # so that settings which cannot be are refused before anything is charged
    account, books = open_account(params, Budget(epsilon=head.epsilon, delta=head.delta), chosen.data, place)
    rows, test_rows = _transformed(transformers, train[0], test[0], account)
    head.fit(rows, train[1], account)
    score, twin = _scores(head, rows, train[1], test_rows, test[1], params["no_twin"])
    features.save(transformers, place / FEATURES_FILE)
    linear.save(head, place, account=account, ledger=books, files=[FEATURES_FILE])
    _describe(place, chosen, params["recipe"], score, twin)
    facts = _facts(params, chosen, head, score, twin, time.perf_counter() - start, place)
    print_json(facts) if params["json"] else _print(facts)


def _refuse_others(params: dict[str, Any]) -> None:
    given = ["--" + name.replace("_", "-") for name in _OTHERS if params[name] not in (None, False, OF_STEPS.get(name))]
    if given:
        raise InvalidValue(f"{', '.join(given)} does not go with --recipe, which settles that.")
    if params["epsilon"] is None:
        raise InvalidValue("--epsilon is needed: it has no default, because it is what the promise says.")


def _pictures(name: str, folder: Path | None) -> tuple[Any, Any, int]:
    from hush.data import load

    dataset = load(name, folder=folder)
    assert dataset.test is not None
    assert dataset.num_classes is not None
    parts = [
        (part.tensors[0].reshape(-1, *dataset.input_shape), part.tensors[1].numpy())
        for part in (dataset.train, dataset.test)
    ]
    return parts[0], parts[1], dataset.num_classes


def _texts(name: str, folder: Path | None) -> tuple[Any, Any, int]:
    """A fifth of the texts is for testing: each by its own words, so that no text decides about another."""
    import numpy

    from hush.data import load_labelled_texts
    from hush.data.encoding import in_test_part

    found = load_labelled_texts(name, folder=folder)
    texts, labels, held = numpy.array(found.texts, dtype=object), numpy.array(found.labels), in_test_part(found.texts)
    return (texts[~held], labels[~held]), (texts[held], labels[held]), len(found.label_names)


def _check_delta(delta: float, num_rows: int) -> None:
    if not 0 < delta < 1 / num_rows:
        raise InvalidValue(f"--delta must be above 0 and below 1 / {num_rows:,}, the number of rows; got {delta:g}.")


def _transformed(transformers: list[Any], train: Any, test: Any, account: Any) -> tuple[Any, Any]:
    from hush.features import PrivateTransformer

    for one in transformers:
        with waiting(f"{type(one).__name__} of {train.shape[0]} rows"):
            one.fit(train, **({"account": account} if isinstance(one, PrivateTransformer) else {}))
            train, test = one.transform(train), one.transform(test)
    return train, test


def _head(params: dict[str, Any], chosen: FeatureRecipe, num_classes: int, transformers: list[Any]) -> Any:
    from hush import events
    from hush.features import PrivateTransformer
    from hush.linear import PrivateSoftmaxHead

    paid = [one.event() for one in transformers if isinstance(one, PrivateTransformer)]
    seed = params["seed"]
    return PrivateSoftmaxHead(
        params["epsilon"],
        1e-5 if params["delta"] is None else params["delta"],
        classes=list(range(num_classes)),
        data_norm=1.0,
        clip_norm=chosen.clip_norm if params["clip_norm"] is None else params["clip_norm"],
        steps=chosen.steps if params["steps"] is None else params["steps"],
        spent=events.Composed(*paid) if paid else None,
        relation=params["relation"],
        random_state=None if seed is None else seed + _OF_HEAD,
    )


def _scores(head: Any, rows: Any, labels: Any, test: Any, truth: Any, no_twin: bool) -> tuple[float, float | None]:
    """The accuracy on test rows, and that of the same softmax without noise and clipping."""
    from hush.linear import softmax_head
    from hush.rng import Rng

    private = float(head.score(test, truth))
    if no_twin:
        return private, None
    twin = head.plan().without_privacy(rows)
    weights = softmax_head.descend(rows, labels, len(head.classes_), [twin], Rng.from_seed(0))[0]
    return private, float(((test @ weights).argmax(axis=1) == truth).mean())


def _describe(place: Path, chosen: FeatureRecipe, name: str, score: float, twin: float | None) -> None:
    from hush import report

    scores = report.Scores(name="test_accuracy", private=score, twin=twin)
    report.describe(place, data=chosen.data, model=f"{name}: features and a softmax", public_data=True, scores=scores)


def _facts(
    params: dict[str, Any],
    chosen: FeatureRecipe,
    head: Any,
    score: float,
    twin: float | None,
    seconds: float,
    out: Path,
) -> dict[str, Any]:
    scores = {"test_accuracy": score} | ({} if twin is None else {"twin_test_accuracy": twin})
    return {
        "data": chosen.data,
        "recipe": params["recipe"],
        **scores,
        **head.guarantee_.to_dict(),
        "randomness": head.randomness_,
        "seconds": round(seconds, 2),
        "out": str(out),
    }


def _print(facts: dict[str, Any]) -> None:
    from hush.privacy import round_up

    twin = facts.get("twin_test_accuracy")
    row = ("test accuracy", f"{facts['test_accuracy']:.4f}", "-" if twin is None else f"{twin:.4f}")
    columns = ("", "private", "without privacy, same steps")
    print_table("on the test rows", columns, [row], numbers=columns[1:])
    claim = f"({round_up(facts['epsilon'])}, {facts['delta']:.3g})-differential privacy"
    lines = [f"proven: {claim}, {facts['relation'].replace('_', ' ')}, by {facts['method']}"]
    print_lines(*lines, *(f"note: {note}" for note in facts["notes"]), f"saved: {facts['out']} ({facts['seconds']} s)")

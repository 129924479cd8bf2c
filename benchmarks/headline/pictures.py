"""The figures of docs/guides/results.md, drawn from benchmarks/results/headline/figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.headline.result import RESULTS

FIGURES = RESULTS / "figures"
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "guides" / "pictures"
WORDS = {
    "clip norm": "clip_norm",
    "lot size": "lot",
    "noise": "noise",
}


def parts() -> list[str]:
    """The figures that there are numbers for, as parts of the page."""
    return [text for name, (text, _) in _KINDS.items() if (FIGURES / f"{name}.json").exists()]


def draw() -> None:
    for name, (_, drawing) in _KINDS.items():
        if (FIGURES / f"{name}.json").exists():
            drawing(json.loads((FIGURES / f"{name}.json").read_text()))


def _axes(columns: int) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(1, columns, figsize=(4.2 * columns, 3.2), layout="constrained")


def _save(figure: Any, name: str) -> None:
    from matplotlib import pyplot

    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / name, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def _abadi(points: list[dict[str, Any]]) -> None:
    figure, places = _axes(4)
    curves = [point for point in points if point["figure"] == "epsilon"]
    for delta in reversed(list(curves[0]["epsilons"])):
        pairs = sorted((point["epsilons"][delta], 100 * point["accuracy"]) for point in curves)
        best = [(epsilon, max(score for other, score in pairs if other <= epsilon)) for epsilon, _ in pairs]
        places[0].plot(*zip(*best, strict=True), label=f"delta {delta}")
    places[0].set_xscale("log")
    places[0].set_xlabel("epsilon")
    places[0].set_ylabel("accuracy on test pictures, %")
    places[0].legend()
    for place, (name, key) in zip(places[1:], WORDS.items(), strict=True):
        pairs = [(point[key], 100 * point["accuracy"]) for point in points if point["figure"] == name]
        place.plot(*zip(*pairs, strict=True), marker="o")
        place.set_xlabel(f"{name}, at epsilon 2")
    _save(figure, "headline-abadi.png")


def _regressions(points: list[dict[str, Any]]) -> None:
    figure, places = _axes(4)
    for row, task in enumerate(("logistic", "linear")):
        of_task = [point for point in points if point["task"] == task]
        most = max(point["samples"] for point in of_task)
        for column, key in enumerate(("epsilon", "samples")):
            place = places[2 * row + column]
            for method in dict.fromkeys(point["method"] for point in of_task):
                chosen = [
                    point
                    for point in of_task
                    if point["method"] == method
                    and (point["samples"] == most if key == "epsilon" else point["epsilon"] in (None, 1.0))
                ]
                twin = method == "without privacy"
                if key == "epsilon" and twin:
                    place.axhline(chosen[0]["mean"], color="grey", linestyle=":")
                    continue
                pairs = sorted((point[key], point["mean"]) for point in chosen)
                how = {"color": "grey", "linestyle": ":"} if twin else {"marker": "o"}
                place.plot(*zip(*pairs, strict=True), label=method, **how)
            place.set_xscale("log")
            place.set_xlabel("epsilon" if key == "epsilon" else "rows, at epsilon 1")
            place.set_title(f"{task}: {'log loss' if task == 'logistic' else 'squared error / variance'}", fontsize=9)
            if task == "linear":
                place.set_ylim(0, 1.2)
        places[2 * row + 1].legend(fontsize=7)
    _save(figure, "headline-regressions.png")


_KINDS = {
    "1-abadi": (
        "### Accuracy of Abadi et al.'s network against epsilon, delta, clip norm, lot size and noise\n\n"
        "One seed for each point (`benchmarks/headline/abadi_figures.py`).\n\n"
        "![Accuracy against epsilon for four deltas, and against clip norm, lot size and noise]"
        "(pictures/headline-abadi.png)",
        _abadi,
    ),
    "7-regressions": (
        "### Loss of logistic and linear regression against epsilon and against rows\n\n"
        "Adult and California housing, test rows, mean of five seeds (`benchmarks/headline/regressions.py`). At\n"
        'larger epsilons the method "gradient" gives chances that are too sure of themselves: its log loss rises.\n\n'
        "![Loss falls with epsilon and with the number of rows](pictures/headline-regressions.png)",
        _regressions,
    ),
}

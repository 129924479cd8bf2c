"""Curves of membership attacks on logarithmic axes, where the few people that an attack is sure of can be seen."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hush.errors import InvalidValue, MissingExtra

if TYPE_CHECKING:
    from hush.attacks.result import AttackResult, Floats

PAGES, PICTURES = (".html",), (".png", ".svg", ".pdf")
_COLOURS = ("#0b5394", "#cc4125", "#38761d", "#b45f06", "#674ea7", "#45818e")


def draw_curves(
    results: Mapping[str, AttackResult],
    path: str | os.PathLike[str],
    *,
    title: str = "Membership inference",
    limit: tuple[float, float] | None = None,
) -> None:
    """Draw the curves of several attacks; `limit` is an (epsilon, delta) that no curve of a private model may pass."""
    place = Path(path)
    if place.suffix.lower() not in PAGES + PICTURES:
        raise InvalidValue(f"a plot is {', '.join(PAGES + PICTURES)}; got {str(place)!r}.")
    if not results:
        raise InvalidValue("there is no result to draw.")
    lowest = min(1 / max(result.num_nonmembers, result.num_members) for result in results.values())
    (_page if place.suffix.lower() in PAGES else _picture)(results, place, title, limit, max(lowest, 1e-5))


def _points(result: AttackResult, lowest: float) -> tuple[Floats, Floats]:
    """The curve from the smallest rate shown; a rate of 0 has no place on a logarithm."""
    fpr, tpr = result.roc.false_positive_rate, result.roc.true_positive_rate
    return np.maximum(fpr, lowest), np.maximum(tpr, lowest / 10)


def _line_of(limit: tuple[float, float], lowest: float) -> tuple[Floats, Floats]:
    rates = np.geomspace(lowest, 1, 200)
    return rates, np.minimum(1.0, math.exp(limit[0]) * rates + limit[1])


def _picture(
    results: Mapping[str, AttackResult], path: Path, title: str, limit: tuple[float, float] | None, lowest: float
) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib is not installed; run: pip install 'hush[report]'") from None
    figure = Figure(figsize=(6.4, 5.2), dpi=110, layout="constrained")
    axes: Any = figure.add_subplot()
    for colour, (name, result) in zip(_cycle(len(results)), results.items(), strict=True):
        axes.step(*_points(result, lowest), where="post", color=colour, label=f"{name} (AUC {result.auc:.3f})")
    if limit is not None:
        axes.plot(*_line_of(limit, lowest), color="#777777", linestyle=":", label=f"allowed at epsilon {limit[0]:g}")
    axes.plot([lowest, 1], [lowest, 1], color="#999999", linestyle="--", linewidth=0.9, label="guessing")
    axes.set(xscale="log", yscale="log", xlim=(lowest, 1), ylim=(lowest, 1.05))
    axes.set(xlabel="false positive rate", ylabel="true positive rate")
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_title(title, loc="left", fontweight="bold")
    axes.legend(fontsize=8, loc="lower right")
    figure.savefig(path)


def _page(
    results: Mapping[str, AttackResult], path: Path, title: str, limit: tuple[float, float] | None, lowest: float
) -> None:
    try:
        from plotly import graph_objects
    except ImportError:
        raise MissingExtra("plotly is not installed; run: pip install 'hush[report]'") from None
    figure = graph_objects.Figure()
    for colour, (name, result) in zip(_cycle(len(results)), results.items(), strict=True):
        fpr, tpr = _points(result, lowest)
        line = {"color": colour, "shape": "hv"}
        figure.add_scatter(x=fpr, y=tpr, name=f"{name} (AUC {result.auc:.3f})", mode="lines", line=line)
    if limit is not None:
        x, y = _line_of(limit, lowest)
        figure.add_scatter(x=x, y=y, name=f"allowed at epsilon {limit[0]:g}", mode="lines", line={"dash": "dot"})
    figure.add_scatter(x=[lowest, 1], y=[lowest, 1], name="guessing", mode="lines", line={"dash": "dash"})
    figure.update_layout(title=title, template="plotly_white")
    figure.update_xaxes(type="log", title="false positive rate", range=[math.log10(lowest), 0])
    figure.update_yaxes(type="log", title="true positive rate", range=[math.log10(lowest), 0.02])
    figure.write_html(path, include_plotlyjs=True, full_html=True)


def _cycle(count: int) -> list[str]:
    return [_COLOURS[number % len(_COLOURS)] for number in range(count)]

"""The plots of several kinds of report: epsilon over the steps, delta over epsilon, what attacks can reach, labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hush.events import Event
from hush.privacy import Guarantee, Relation
from hush.report.curves import Curve, step_curves
from hush.report.subject import Line, Plot, Style

# Readable on white and on black, and with colour-blindness.
EXACT, GREY, ORANGE, GREEN, PINK, SKY, BROWN, RED = (
    *("#2f7fd6", "#8b8b8b", "#d98200", "#159a6c", "#c4609f", "#38a3c7", "#a17c2e", "#d9482b"),
)
_FEW = 20  # canaries of both kinds for one false alarm; a measured curve begins at ten of them
_BOUNDS = 2  # lines of the attacker's plot before the measured ones
_REACH = "The share of members found, against the share of others wrongly accused, on logarithmic axes."
_MEASURED = " A measured curve wobbles by chance; it begins where that is not all there is."
_COLOURS = {
    "basic": GREY,
    "advanced": ORANGE,
    "optimal": BROWN,
    "moments": PINK,
    "rdp": SKY,
    "exact": EXACT,
    "gdp_clt": GREEN,
}


def steps_plot(event: Event, steps: int, delta: float, relation: Relation, word: str) -> Plot | None:
    """Epsilon after each step, by every method that bounds the event; None where there is nothing to follow."""
    if steps < 2 or delta <= 0:
        return None
    curves = [curve for curve in step_curves(event, steps, delta, relation) if curve.method in _COLOURS]
    lines = [_line(curve) for curve in curves]
    exact = next((curve for curve in curves if curve.method == "exact"), None)
    if exact is not None:
        lines.append(
            Line(name="exact, lower end", x=exact.steps, y=_logarithmic(exact.lowers), style="dash", colour=EXACT)
        )
    if not lines:
        return None
    return Plot(
        key="steps",
        title=f"Epsilon over the {word}",
        caption="The same events by every theorem. The lower end of the exact interval lies under its line. "
        "The Gaussian limit is an approximation, not a bound.",
        x_title=word,
        y_title="epsilon",
        lines=tuple(lines),
        x_log=True,
        y_log=True,
    )


def _line(curve: Curve) -> Line:
    style: Style = "dot" if curve.method == "gdp_clt" else "solid"
    return Line(
        name=curve.label,
        x=curve.steps,
        y=_logarithmic(curve.epsilons),
        style=style,
        colour=_COLOURS[curve.method],
    )


def _logarithmic(values: tuple[float, ...]) -> tuple[float | None, ...]:
    """What has a place on a logarithmic axis."""
    return tuple(value if 0 < value < float("inf") else None for value in values)


def delta_plot(curve: Any, guarantee: Guarantee) -> Plot:
    """Every (epsilon, delta) that holds at once."""
    claim = Line(
        name="this claim", x=(guarantee.epsilon,), y=_logarithmic((guarantee.delta,)), style="points", colour=RED
    )
    return Plot(
        key="delta",
        title="Every pair that holds",
        caption="A guarantee is a whole curve: at each epsilon the least delta, as an interval that holds the truth.",
        x_title="epsilon",
        y_title="delta",
        lines=(
            Line(name="delta", x=curve.epsilons, y=_logarithmic(curve.deltas), colour=EXACT),
            Line(name="lower end", x=curve.epsilons, y=_logarithmic(curve.lowers), style="dash", colour=EXACT),
            claim,
        ),
        y_log=True,
    )


def trade_off_plot(trade_off: tuple[tuple[float, float], ...], evidence: tuple[dict[str, Any], ...]) -> Plot:
    """The most that any attack can reach, and what audits measured."""
    inside = [point for point in trade_off if point[0] > 0]
    lines = [
        Line(name="no attack is above", x=_column(inside, 0), y=_column(inside, 1), colour=EXACT),
        Line(name="guessing", x=_column(inside, 0), y=_column(inside, 0), style="dash", colour=GREY),
    ]
    for number, item in enumerate(evidence, start=1):
        least = _FEW / (item.get("num_guesses") or _FEW)
        points = [(point[0], point[1]) for point in item.get("roc") or () if point[0] >= least and point[1] > 0]
        if points:
            name = "measured by audit" if len(evidence) == 1 else f"measured by audit {number}"
            lines.append(Line(name=name, x=_column(points, 0), y=_column(points, 1), style="stairs", colour=ORANGE))
    return Plot(
        key="attacks",
        title="What an attacker can reach",
        caption=_REACH + (_MEASURED if len(lines) > _BOUNDS else ""),
        x_title="false positive rate",
        y_title="true positive rate",
        lines=tuple(lines),
        x_log=True,
        y_log=True,
    )


def label_plot(labels: Sequence[int], names: Sequence[str], what: str) -> tuple[Plot, ...]:
    """How often each label was released; the labels are what the guarantee is about, so they may be shown."""
    counts = Counter(label for label in labels if label >= 0)
    if not counts:
        return ()
    classes = range(max(max(counts) + 1, len(names)))
    line = Line(
        name="labels",
        x=tuple(names[label] if label < len(names) else str(label) for label in classes),
        y=tuple(counts[label] for label in classes),
        style="bars",
        colour=EXACT,
    )
    caption = "How often each label was released, noise included."
    return (Plot(key="labels", title="Labels", caption=caption, x_title="label", y_title=what, lines=(line,)),)


def _column(points: list[tuple[float, float]], place: int) -> tuple[float, ...]:
    return tuple(point[place] for point in points)

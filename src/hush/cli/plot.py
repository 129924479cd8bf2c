"""`hush epsilon --plot FILE`: epsilon against steps for all methods, as a page (plotly) or a picture (matplotlib)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hush.cli.curves import curves, spread
from hush.errors import InvalidValue, MissingExtra
from hush.report.curves import STYLES, Curve

if TYPE_CHECKING:
    from hush.events import Event
    from hush.privacy import Relation

PAGES, PICTURES = (".html",), (".png", ".svg", ".pdf")
_GAP = 0.052  # between two labels, as a share of the picture's height
_DASHES = {"solid": "-", "dash": (0, (5, 3)), "dot": (0, (1, 1.6))}


def check_target(path: Path) -> None:
    """Refuse a file that cannot be drawn, before anything is computed."""
    if path.suffix.lower() not in PAGES + PICTURES:
        raise InvalidValue(f"--plot writes {', '.join(PAGES + PICTURES)}; got {str(path)!r}.")
    if not path.parent.is_dir():
        raise InvalidValue(f"--plot {path}: there is no folder {path.parent}.")
    if path.is_dir():
        raise InvalidValue(f"--plot {path} is a folder; name a file.")


def check_event(event: Event, delta: float) -> None:
    """Refuse what has no curve: the steps are varied, and without a delta most methods say nothing."""
    from hush.events import Repeated

    if not isinstance(event, Repeated) or event.times < 2:
        raise InvalidValue('--plot varies the steps: it needs 2 or more, and a file\'s outermost event as "Repeated".')
    if delta == 0:
        raise InvalidValue("--plot needs a delta above 0; got 0.")


def draw(event: Event, delta: float, relation: Relation, *paths: Path) -> list[Curve]:
    """Compute the curves once and write each file; a page or a picture by its ending."""
    from hush.events import Repeated

    for path in paths:
        check_target(path)
    check_event(event, delta)
    assert isinstance(event, Repeated)
    drawn = curves(event, delta, relation)
    if not drawn:
        raise InvalidValue("no method gives a finite epsilon above 0 for this event, so there is nothing to draw.")
    title = ("What the steps cost, by accountant", subtitle(event, delta, relation))
    for path in paths:
        (_page if path.suffix.lower() in PAGES else _picture)(drawn, title, path)
    return drawn


def subtitle(event: Event, delta: float, relation: str) -> str:
    """The setting in one line.

    >>> from hush.accounting.calibrate import sampled_gaussian
    >>> subtitle(sampled_gaussian(4.0, 0.01, 10_000), 1e-5, "add_remove")
    'sampling_prob 0.01, noise_multiplier 4, delta 1e-05, add_remove'
    """
    from hush.accounting.explain import setting

    sampled = setting(event)
    start = "" if sampled is None else f"sampling_prob {sampled[1]:g}, noise_multiplier {sampled[0]:g}, "
    return f"{start}delta {delta:g}, {relation}"


def _limits(drawn: Sequence[Curve]) -> tuple[float, float]:
    """The vertical range as powers of ten, with a little room; values of 0 have no place on it."""
    values = [value for curve in drawn for value in curve.epsilons if 0 < value < math.inf]
    low, high = math.log10(min(values)), math.log10(max(values))
    room = 0.04 * (high - low) + 0.05
    return low - room, high + room


def _labels(drawn: Sequence[Curve]) -> list[tuple[Curve, float, str]]:
    """Each curve with the power of ten at which its label stands, and its text: the value first, rounded up."""
    from hush.privacy import round_up

    low, high = _limits(drawn)
    gap = _GAP * (high - low)
    places = spread([math.log10(curve.end) for curve in drawn], gap)
    lift = max(0.0, low + gap / 2 - places[-1])  # the lowest label stays inside
    return [
        (curve, place + lift, f"{round_up(curve.end, 3)}  {curve.label}")
        for curve, place in zip(drawn, places, strict=True)
    ]


def _width(curve: Curve) -> float:
    return 2.8 if curve.method == "exact" else 1.6


def _picture(drawn: Sequence[Curve], title: tuple[str, str], path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib is not installed; run: pip install 'hush[report]'") from None
    figure = Figure(figsize=(11, 6), dpi=150, layout="constrained")
    axes: Any = figure.add_subplot()
    for curve in drawn:
        _, colour, dash = STYLES[curve.method]
        axes.plot(curve.steps, curve.epsilons, color=colour, linestyle=_DASHES[dash], linewidth=_width(curve))
    axes.set(xscale="log", yscale="log", xlabel="steps (number of releases)", ylabel="epsilon (privacy cost, no unit)")
    axes.set_ylim(*(10**limit for limit in _limits(drawn)))
    axes.set_xlim(drawn[0].steps[0], drawn[0].steps[-1])
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    _write_labels(axes, drawn)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    note = f"{title[1]}; values at {drawn[0].steps[-1]:,} steps"
    axes.set_title(f"{title[0]}\n", fontsize=14, fontweight="bold", loc="left")
    axes.text(0, 1.02, note, transform=axes.transAxes, fontsize=10, color="#444444")
    figure.savefig(path)


def _write_labels(axes: Any, drawn: Sequence[Curve]) -> None:
    """Direct labels right of the curves' ends, joined to them by a thin line."""
    last = drawn[0].steps[-1]
    for curve, place, text in _labels(drawn):
        axes.annotate(
            text,
            xy=(last, curve.end),
            xytext=(1.035, 10**place),
            textcoords=axes.get_yaxis_transform(),
            color=STYLES[curve.method][1],
            fontsize=9.5,
            fontweight="bold" if curve.method == "exact" else "normal",
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": STYLES[curve.method][1], "linewidth": 0.7, "relpos": (0, 0.5)},
        )


def _page(drawn: Sequence[Curve], title: tuple[str, str], path: Path) -> None:
    try:
        from plotly import graph_objects
    except ImportError:
        raise MissingExtra("plotly is not installed; run: pip install 'hush[report]'") from None
    figure = graph_objects.Figure()
    for curve in drawn:
        label, colour, dash = STYLES[curve.method]
        line = {"color": colour, "dash": dash, "width": _width(curve)}
        hover = "%{x:,} steps: epsilon %{y:.6g}"
        figure.add_scatter(x=curve.steps, y=curve.epsilons, name=label, mode="lines", line=line, hovertemplate=hover)
    for curve, place, text in _labels(drawn):
        figure.add_annotation(**_page_label(curve, place, text))
    low, high = _limits(drawn)
    heading = f"<b>{title[0]}</b><br><sup>{title[1]}; values at {drawn[0].steps[-1]:,} steps</sup>"
    figure.update_layout(title=heading, template="plotly_white", showlegend=False, margin={"r": 400, "t": 90})
    figure.update_xaxes(type="log", title="steps (number of releases)", dtick=1, tickformat=",")
    figure.update_yaxes(type="log", title="epsilon (privacy cost, no unit)", range=[low, high], dtick=1)
    figure.write_html(path, include_plotlyjs=True, full_html=True)


def _page_label(curve: Curve, place: float, text: str) -> dict[str, Any]:
    """A label right of the axis; on a logarithmic axis plotly wants the power of ten."""
    font = {"color": STYLES[curve.method][1], "size": 13}
    shown = f"<b>{text}</b>" if curve.method == "exact" else text
    place_x = {"xref": "paper", "x": 1.01, "xanchor": "left"}
    return {**place_x, "yref": "y", "y": place, "yanchor": "middle", "text": shown, "font": font, "showarrow": False}

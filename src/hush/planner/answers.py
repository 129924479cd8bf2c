"""What the page shows: the numbers at once, and what may come a moment later (methods, what-if, curves).

Everything here is plain values for JSON. Numbers come with the text that is shown, rounded to their safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_FLOOR, Context
from functools import lru_cache
from typing import Any

from hush import accounting
from hush.accounting.calibrate import MOST_STEPS, sampled_gaussian
from hush.errors import HushError, UnsupportedEvent
from hush.planner.lines import command, python_lines
from hush.planner.question import Question, together
from hush.planner.solve import cost, exact_cost, settle
from hush.privacy import Guarantee, Relation, round_up

LATER = ("gdp_clt", "basic", "rdp", "moments", "advanced")
AT_REST = ("optimal",)  # up to seconds with very many steps
_POINTS_PER_DECADE = 8
_POINTS_PER_OCTAVE = 4

# name, what to change: each a factor on one field
WHAT_IFS: tuple[tuple[str, str, float], ...] = (
    ("half the batch", "expected_batch_size", 0.5),
    ("twice the batch", "expected_batch_size", 2),
    ("half the epochs", "epochs", 0.5),
    ("twice the epochs", "epochs", 2),
    ("half the data", "num_examples", 0.5),
    ("twice the data", "num_examples", 2),
    ("a quarter more noise", "noise_multiplier", 1.25),
    ("a tenth of delta", "delta", 0.1),
)


def numbers(asked: Question, data: str = "digits") -> dict[str, Any]:
    """The plan with its unknown found, what it costs, and the lines that carry it out."""
    found, answer = settle(asked)
    warnings = _warnings(found)
    return {
        "plan": found.to_dict(),
        "found": asked.find,
        "found_text": _shown(asked.find, answer.epsilon if asked.find == "epsilon" else getattr(found, asked.find)),
        "guarantee": answer.to_dict(),
        "epsilon_text": round_up(answer.epsilon),
        "interval_text": [round_down(answer.epsilon_lower), round_up(answer.epsilon)],
        "delta_text": _short(answer.delta),
        "inside": answer.epsilon <= found.epsilon,
        "methods": [row(found, "exact", answer)],
        "warnings": warnings,
        "command": "" if warnings else command(found, answer, data),
        "python": python_lines(found),
    }


def _warnings(found: Question) -> dict[str, str]:
    if found.delta < 1 / found.num_examples:
        return {}
    limit = round_down(1 / found.num_examples, 3)
    return {"delta": f"hush train takes a delta below 1/num_examples, {limit}; this one promises nothing to somebody."}


def _short(value: float) -> str:
    """Three digits where they say it all, or else six, rounded up."""
    return text if float(text := f"{value:.3g}") == value else round_up(value)


def _shown(field: str, value: float) -> str:
    """A number that was found, rounded to where the training stays inside its target."""
    if field in ("num_examples", "expected_batch_size"):
        return str(int(value))
    if field == "delta":
        return _short(value)
    return round_down(value) if field == "epochs" else round_up(value)


def row(found: Question, method: str, known: Guarantee | None = None) -> dict[str, Any]:
    """One method's epsilon at the plan's delta, or why it has none."""
    try:
        answer = known or accounting.guarantee(found.event, delta=found.delta, relation=found.relation, method=method)
    except UnsupportedEvent as error:
        return {"method": method, "epsilon": None, "text": "-", "kind": "does not apply", "notes": [str(error)]}
    except (ValueError, ArithmeticError) as error:  # far outside of what a method is for
        return {"method": method, "epsilon": None, "text": "-", "kind": "no number", "notes": [str(error)]}
    kind = "no bound" if not answer.proven else "interval" if answer.epsilon_lower > 0 else "upper bound"
    plain = answer.to_dict()
    # A cost at the plan's delta also where the exact method was asked for the delta.
    return {
        "method": method,
        "epsilon": plain["epsilon"],
        "text": round_up(answer.epsilon),
        "kind": kind,
        "notes": plain["notes"],
    }


def methods(found: Question) -> dict[str, Any]:
    """The methods that take some milliseconds."""
    return {"methods": [row(found, name) for name in LATER]}


def slow_methods(found: Question) -> dict[str, Any]:
    """The methods that can take a second."""
    return {"methods": [row(found, name) for name in AT_REST]}


def what_if(found: Question) -> dict[str, Any]:
    """Other plans, one thing changed at a time: what they cost, or the unknown found anew for each."""
    changes = [change for change in WHAT_IFS if change[1] != found.find]
    return {"find": found.find, "rows": [_changed(found, *change) for change in changes]}


def _changed(found: Question, name: str, field: str, factor: float) -> dict[str, Any]:
    value = getattr(found, field)
    changed = max(1, round(value * factor)) if isinstance(value, int) else value * factor
    other = found.changed(field, changed)
    label = {"name": name, "field": field, "value": changed}
    wrong = together(other)
    if wrong:
        return {**label, "result": None, "text": "-", "change": "", "reason": next(iter(wrong.values()))}
    try:
        before, after = _result(found), _result(other)
    except HushError as error:
        return {**label, "result": None, "text": "-", "change": "", "reason": str(error)}
    change = f"{100 * (after / before - 1):+.0f} %" if 0 < before < math.inf and after < math.inf else ""
    return {**label, "result": _finite(after), "text": _shown(found.find, after), "change": change, "reason": ""}


@lru_cache(maxsize=256)
def _result(asked: Question) -> float:
    """The cost, or the number that was to be found."""
    if asked.find == "epsilon":
        return cost(asked).epsilon
    return float(getattr(settle(asked)[0], asked.find))


def curves(found: Question) -> dict[str, Any]:
    """Epsilon against steps and against noise; the points lie on fixed grids, so that most are known already."""
    return {"steps": _steps_curve(found), "noise_multiplier": _noise_curve(found)}


def _steps_curve(found: Question) -> dict[str, Any]:
    decade = math.floor(math.log10(found.steps))
    first, last = max(0, decade - 2), decade + 1
    points = sorted(
        {
            min(round(10 ** (first + index / _POINTS_PER_DECADE)), MOST_STEPS)
            for index in range((last - first) * _POINTS_PER_DECADE + 1)
        }
    )
    return _lines(found, points, lambda steps: (found.noise_multiplier, found.sampling_prob, int(steps)))


def _noise_curve(found: Question) -> dict[str, Any]:
    octave = math.floor(math.log2(found.noise_multiplier))
    points = [2 ** (octave - 2 + index / _POINTS_PER_OCTAVE) for index in range(5 * _POINTS_PER_OCTAVE + 1)]
    return _lines(
        found, [point for point in points if point >= 0.05], lambda noise: (noise, found.sampling_prob, found.steps)
    )


def _lines(
    found: Question, points: list[int] | list[float], setting: Callable[[float], tuple[float, float, int]]
) -> dict[str, Any]:
    def line(method: str, places: list[int] | list[float]) -> dict[str, Any]:
        values = [_finite(_cost(*setting(place), found.delta, found.relation, method)) for place in places]
        return {"method": method, "x": places, "epsilon": values}

    coarse = [*points[:-1:4], points[-1]]  # the Rényi curve is smooth, and dearer
    return {"lines": [line("exact", points), line("rdp", coarse)]}


def _cost(
    noise_multiplier: float, sampling_prob: float, steps: int, delta: float, relation: Relation, method: str
) -> float:
    setting = noise_multiplier, sampling_prob, steps, delta, relation
    return exact_cost(*setting).epsilon if method == "exact" else _renyi_cost(*setting)


@lru_cache(maxsize=4096)
def _renyi_cost(noise_multiplier: float, sampling_prob: float, steps: int, delta: float, relation: Relation) -> float:
    event = sampled_gaussian(noise_multiplier, sampling_prob, steps)
    return accounting.guarantee(event, delta=delta, relation=relation, method="rdp").epsilon


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def round_down(value: float, digits: int = 6) -> str:
    """`value` (0 or above) to some significant digits, never above it.

    >>> round_down(0.94686680076438)
    '0.946866'
    """
    if not math.isfinite(value):
        return f"{value:g}"
    return f"{float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(repr(value))):.{digits}g}"

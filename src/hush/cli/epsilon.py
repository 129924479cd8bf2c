"""`hush epsilon`: what an event costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hush.cli import options
from hush.cli.output import kind_of, print_json, print_lines, print_table
from hush.errors import InvalidValue, UnsupportedEvent

if TYPE_CHECKING:
    from hush.privacy import Guarantee, Relation

ORDER = ("basic", "advanced", "optimal", "moments", "rdp", "exact", "gdp_clt")  # from the loosest theorem
NOT_A_THEOREM = "strong composition as published (not a theorem)"

MethodName = Annotated[
    str,
    typer.Option(
        "--method", metavar="NAME", help="exact, rdp, moments, basic, advanced, optimal, gdp_clt (no bound), or all."
    ),
]
PlotFile = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw epsilon against steps for all methods: .html .png .svg .pdf"),
]


def epsilon(
    *,
    noise_multiplier: options.NoiseMultiplier = None,
    sampling_prob: options.SamplingProb = None,
    steps: options.Steps = None,
    delta: options.Delta,
    relation: options.RelationName = "add_remove",
    method: MethodName = "exact",
    event: options.EventFile = None,
    json: options.Json = False,
    plot: PlotFile = None,
) -> None:
    """The epsilon that a training run, or any event, costs at a delta."""
    setting = options.setting_of(noise_multiplier, sampling_prob, steps, event)
    from hush import _check
    from hush.privacy import check_relation

    neighbours, delta = check_relation(relation), _check.delta(delta)
    if plot is not None:
        from hush.cli.plot import check_event, check_target

        check_target(plot)
        check_event(setting.event, delta)
    answer = _one if method != "all" else _all
    result = answer(setting, delta, neighbours, method, as_json=json)
    if plot is not None:
        from hush.cli.plot import draw

        draw(setting.event, delta, neighbours, plot)
        result["plot"] = str(plot)
        typer.echo(f"wrote {plot}", err=True)
    if json:
        print_json(result)


def _one(setting: options.Setting, delta: float, relation: Relation, method: str, *, as_json: bool) -> dict[str, Any]:
    from hush import accounting

    if method not in accounting.METHODS:
        raise InvalidValue(f"method must be one of {', '.join(accounting.METHODS)} or all; got {method!r}.")
    answer = accounting.guarantee(setting.event, delta=delta, relation=relation, method=method)
    if not as_json:
        _print([_row(method, answer)], setting, delta, relation)
    return {**answer.to_dict(), **_asked(setting)}


def _all(setting: options.Setting, delta: float, relation: Relation, method: str, *, as_json: bool) -> dict[str, Any]:
    answers = {name: _try(setting, delta, relation, name) for name in ORDER}
    published = _published(setting, delta, relation)
    if not as_json:
        rows = [_row(name, answer) for name, answer in answers.items()]
        _print(rows, setting, delta, relation)
        if published is not None:
            from hush.privacy import round_up

            print_lines(f"For comparison, {NOT_A_THEOREM}: {round_up(published)}")
    methods = [
        {"method": name, "epsilon": None, "reason": answer} if isinstance(answer, str) else answer.to_dict()
        for name, answer in answers.items()
    ]
    asked = {"delta": delta, "relation": relation, **_asked(setting)}
    return {**asked, "methods": methods, "published_strong_composition": published}


def _asked(setting: options.Setting) -> dict[str, Any]:
    from hush import events

    return {**setting.to_dict(), "event": events.to_dict(setting.event)}


def _try(setting: options.Setting, delta: float, relation: Relation, method: str) -> Guarantee | str:
    from hush import accounting

    try:
        return accounting.guarantee(setting.event, delta=delta, relation=relation, method=method)
    except UnsupportedEvent as error:
        return str(error)


def _published(setting: options.Setting, delta: float, relation: Relation) -> float | None:
    from hush.accounting.explain import published_for

    return published_for(setting.event, delta, relation)


def _row(method: str, answer: Guarantee | str) -> tuple[str, str, str, str]:
    from hush.privacy import round_up

    if isinstance(answer, str):
        return method, "-", "does not apply", answer
    return method, round_up(answer.epsilon), kind_of(answer), "; ".join(answer.notes)


def _print(rows: list[tuple[str, str, str, str]], setting: options.Setting, delta: float, relation: str) -> None:
    title = f"epsilon at delta {delta:g}, {relation}: {setting}"
    print_table(title, ("method", "epsilon", "what it is", "notes"), rows, numbers=("epsilon",))

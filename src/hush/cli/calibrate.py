"""`hush calibrate`: the noise, the steps or the sampling probability that a budget allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hush.cli import options
from hush.cli.output import kind_of, print_json, print_table, round_down
from hush.errors import BudgetExceeded, InvalidValue

if TYPE_CHECKING:
    from hush.privacy import Budget, Relation

Epsilon = Annotated[float, typer.Option(metavar="NUMBER", help="The most that may be spent.")]
MethodName = Annotated[str, typer.Option("--method", metavar="NAME", help="exact or rdp.")]


def calibrate(
    *,
    epsilon: Epsilon,
    delta: options.Delta,
    noise_multiplier: options.NoiseMultiplier = None,
    sampling_prob: options.SamplingProb = None,
    steps: options.Steps = None,
    relation: options.RelationName = "add_remove",
    method: MethodName = "exact",
    json: options.Json = False,
) -> None:
    """Find the one of noise multiplier, sampling prob and steps that is left out, inside a budget."""
    from hush.privacy import Budget, check_relation

    given = {"noise_multiplier": noise_multiplier, "sampling_prob": sampling_prob, "steps": steps}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) != 1:
        names = ", ".join("--" + name.replace("_", "-") for name in (missing or given))
        problem = f"missing {names}; leave out exactly one" if missing else f"leave out exactly one of {names}"
        raise InvalidValue(f"{problem}, the one to be found.")
    budget = Budget(epsilon=epsilon, delta=delta)
    result, kind = _solve(budget, given, missing[0], check_relation(relation), method)
    if json:
        print_json(result)
    else:
        _print(result, kind)


def _solve(
    budget: Budget, given: dict[str, Any], wanted: str, relation: Relation, method: str
) -> tuple[dict[str, Any], str]:
    from hush import accounting, events

    searches: dict[str, Any] = {
        "noise_multiplier": accounting.noise_for,
        "sampling_prob": accounting.sampling_prob_for,
        "steps": accounting.steps_for,
    }
    known = {name: value for name, value in given.items() if name != wanted}
    values = {**given, wanted: searches[wanted](budget, relation=relation, method=method, **known)}
    step = events.PoissonSampled(events.Gaussian(values["noise_multiplier"]), values["sampling_prob"])
    answer = accounting.guarantee(
        events.Repeated(step, values["steps"]), delta=budget.delta, relation=relation, method=method
    )
    if not budget.allows(answer):
        raise BudgetExceeded(f"{wanted} {values[wanted]!r} gives {answer}, over {budget}; please report this.")
    slack = budget.epsilon - answer.epsilon
    limits = {"epsilon": budget.epsilon, "delta": budget.delta}
    result = {"found": wanted, **values, **answer.to_dict(), "budget": limits, "slack": slack}
    return result, kind_of(answer)


def _print(result: dict[str, Any], kind: str) -> None:
    from hush.privacy import round_up

    found = result["found"]
    budget = result["budget"]
    shown = {
        "noise_multiplier": round_up(result["noise_multiplier"]),
        "sampling_prob": round_down(result["sampling_prob"]),
        "steps": f"{result['steps']:,}",
    }
    kept = {name: text if name == found else f"{result[name]:,.15g}" for name, text in shown.items()}
    rows = [(name, text, "found" if name == found else "given") for name, text in kept.items()]
    rows += [
        ("epsilon", round_up(result["epsilon"]), f"by {result['method']}; {kind}"),
        ("slack", f"{result['slack']:.3g}", f"left under the budget's {budget['epsilon']:g}"),
    ]
    title = f"{found} for epsilon {budget['epsilon']:g} at delta {budget['delta']:g}, {result['relation']}"
    print_table(title, ("", "value", ""), rows, numbers=("value",))

"""The sentences of a report: the claim, what it rests on, and what it does not speak of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hush.privacy import Guarantee, Relation
from hush.report.numbers import shown

_NEIGHBOURS: dict[str, str] = {
    "add_remove": "add or remove any one {unit}",
    "replace_one": "replace any one {unit} by another",
    "zero_out": "blank out any one {unit}",
}
_UNITS = {"person": "person with all their rows", "example": "example (one row)"}
NOT_COVERED = (
    "Tuning: other settings that were tried on these data, unless they were charged to the same account.",
    "Metrics: losses and accuracies are read from rows without noise. Those shown here are not part of the claim.",
    "Early stopping, or choosing a checkpoint, by such metrics.",
    "Test rows, and rows that were used before this run to choose features, bounds or models.",
    "What can be learned about a person from everybody else's data: that is the use of the model, and stays.",
)
_SAMPLING = {
    "poisson": "Each {unit} joins each step by an independent coin that nobody sees (Poisson sampling).",
    "truncated_poisson": "Each {unit} joins each step by an independent coin that nobody sees; batches are cut at a "
    "cap that is part of the event.",
    "full_batch": "All data take part in every step; nothing rests on sampling.",
    "ordered": "Examples come in a fixed order; a neighbour's missing example leaves its place empty.",
}
_FLOATS = (
    "Noise is drawn in ordinary floating point. Attacks on its last bits are not covered; --secure trains without them."
)


def neighbours(relation: Relation, unit: str) -> str:
    """What a neighbour is, in words."""
    return _NEIGHBOURS[relation].format(unit=_UNITS.get(unit, unit))


def sentence(guarantee: Guarantee | None, relation: Relation, unit: str, released: str, *, tested: bool) -> str:
    """The claim in one plain sentence; `tested` says that an audit attacked it and nothing proves it here."""
    if guarantee is None:
        return "Nothing is proven here: an attack was carried out, and what it found is below."
    if not guarantee.proven or math.isinf(guarantee.epsilon):
        return "Nothing is proven here: no finite epsilon holds for what was done."
    factor = shown(math.exp(guarantee.epsilon) * (1 + 1e-12))
    beside = "" if guarantee.delta == 0 else f", plus a chance of {shown(guarantee.delta)}"
    changed = neighbours(relation, unit).capitalize()
    text = f"{changed}: whatever may come of releasing {released} becomes at most {factor} times as likely{beside}."
    return f"The claim that was tested, and is not proven here: {text}" if tested else text


def symbols(guarantee: Guarantee | None) -> str:
    """The claim as a formula."""
    if guarantee is None or not guarantee.proven or math.isinf(guarantee.epsilon):
        return ""
    rest = "" if guarantee.delta == 0 else f" + {shown(guarantee.delta)}"
    return f"P[M(D) ∈ S] ≤ e^{shown(guarantee.epsilon)} · P[M(D′) ∈ S]{rest} for all S and all neighbours D, D′"


def of_training(plan: Mapping[str, Any], randomness: str) -> tuple[str, ...]:
    """What the guarantee of a training in steps rests on."""
    unit = plan["unit"]
    found = [
        _SAMPLING.get(plan["sampling"], f"Sampling is {plan['sampling']}.").format(unit=unit),
        "The settings of the plan, the number of examples among them, are public and were not read from these data.",
        "The model treats each example for itself; this was checked on the first batch.",
    ]
    return (*found, *of_everything(unit, randomness), *(() if plan["secure"] else (_FLOATS,)))


def of_everything(unit: str, randomness: str) -> tuple[str, ...]:
    """What every guarantee rests on."""
    rows = "The claim is for one row. A person with several rows is protected less." if unit == "example" else ""
    people = "Rows are said rightly to belong to which person." if unit == "person" else ""
    noise = f"Noise and sampling come from {source(randomness)}, which nobody can repeat."
    if is_seeded(randomness):
        noise = "Nobody who sees the release knows the seed that noise and sampling came from."
    charged = (
        "Every release was charged to the ledger before it left, and the charges shown here are all that there are."
    )
    return tuple(line for line in (rows, people, noise, charged) if line)


def is_seeded(randomness: str) -> bool:
    """Whether somebody can repeat the noise."""
    return "seed" in randomness


def source(randomness: str) -> str:
    """Where noise came from; a seed's number is kept out of reports, since whoever has it can take the noise away."""
    if is_seeded(randomness):
        return "a seed, which is not shown"
    return randomness or "a source that was not recorded"


def warnings_of(randomness: str, guarantee: Guarantee | None, evidence: tuple[dict[str, Any], ...]) -> tuple[str, ...]:
    """What a reader must know before anything else."""
    found = []
    if is_seeded(randomness):
        found.append("The noise came from a seed: whoever knows it can take the noise away. Do not release this run.")
    if guarantee is not None and (not guarantee.proven or math.isinf(guarantee.epsilon)):
        found.append("There is no privacy guarantee.")
    if any(item.get("contradicts") for item in evidence):
        found.append("CONTRADICTION: an audit found more than the guarantee allows. Something is not as claimed.")
    return tuple(found)

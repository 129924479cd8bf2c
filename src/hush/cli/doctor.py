"""`hush doctor`: which rule serves each parameter of a model, what is refused, the fix, and what it will cost."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hush.cli import options
from hush.cli.output import print_json, print_lines, print_table
from hush.errors import InvalidValue

if TYPE_CHECKING:
    from hush.gradients import Diagnosis

Factory = Annotated[str, typer.Argument(metavar="MODULE:FACTORY", help="file.py:function or package.module:function.")]
_COLUMNS = ("parameter", "shape", "served by", "refused", "fix")


def doctor(factory: Factory, *, json: options.Json = False) -> None:
    """Look at a model before any budget is spent. The factory returns (model, loss_fn, batch).

    The batch may be made up: nothing is trained and nothing is charged.
    """
    diagnosis = _diagnosis(factory)
    if json:
        print_json(to_dict(diagnosis))
    else:
        _print(diagnosis, factory)
    if not diagnosis.is_fine:
        raise typer.Exit(1)


def _diagnosis(factory: str) -> Diagnosis:
    from torch import nn

    from hush import gradients
    from hush.cli.user_code import made_by

    made = made_by(factory)
    if not isinstance(made, tuple) or len(made) != 3 or not isinstance(made[0], nn.Module) or not callable(made[1]):
        raise InvalidValue(f"{factory} must return (model, loss_fn, batch); got {type(made).__name__}.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* is not served by ")  # the table says so, with the fix
        return gradients.doctor(*made)


def to_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """What is printed with --json."""
    return {
        "fine": diagnosis.is_fine,
        "method": diagnosis.method,
        "time_ratio": _number(diagnosis.time_ratio),
        "memory_ratio": _number(diagnosis.memory_ratio),
        "not_isolated": diagnosis.not_isolated,
        "fix": diagnosis.fix,
        "parameters": [
            {
                "parameter": finding.parameter,
                "shape": list(finding.shape),
                "trainable": finding.trainable,
                "rule": finding.rule,
                "refused": finding.refused,
                "fix": finding.fix,
            }
            for finding in diagnosis.findings
        ],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _print(diagnosis: Diagnosis, factory: str) -> None:
    rows, before = [], ("", "")
    for finding in diagnosis.findings:
        shape = " x ".join(map(str, finding.shape)) or "number"
        told = (finding.refused, finding.fix)
        again = finding.refused and told == before
        served = diagnosis.method if finding.refused else finding.rule
        rows.append((finding.parameter, shape, served, *(("as above", "as above") if again else told)))
        before = told
    print_table(factory, _COLUMNS, rows, numbers=())
    if diagnosis.is_fine:
        print_lines(
            "Examples do not mix: this model can be trained as it is.",
            f"method {diagnosis.method}: a private gradient takes {diagnosis.time_ratio:.2f} x the time and "
            f"{diagnosis.memory_ratio:.2f} x the memory of an ordinary one, on this batch and machine.",
        )
    else:
        print_lines(f"Refused: {diagnosis.not_isolated.partition('; ')[0]}.", f"Fix: {diagnosis.fix}")

"""`hush audit`: is there an attack that contradicts a guarantee? Of a saved run, or of the user's own code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hush.cli import options
from hush.cli.output import print_json, print_lines, waiting
from hush.errors import InvalidValue

if TYPE_CHECKING:
    from hush.audit import AuditResult
    from hush.events import Event
    from hush.privacy import Evidence

Target = Annotated[str, typer.Argument(metavar="RUN_OR_MODULE", help="A run's folder, or file.py:factory.")]
NumCanaries = Annotated[
    int | None, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Coins to guess; more are tighter.")
]
Significance = Annotated[float, typer.Option(metavar="NUMBER", help="Chance that the evidence is above the truth.")]
Again = Annotated[bool, typer.Option("--again", help="Of an audited run: audit its plan anew.")]
Epsilon = Annotated[float | None, typer.Option(metavar="NUMBER", help="Of a train function: the epsilon it claims.")]
Delta = Annotated[float | None, typer.Option(metavar="NUMBER", help="Of a train function: the delta it claims.")]
Method = Annotated[
    str, typer.Option(metavar="NAME", help="Of a train function: one_run, one_run_fdp, clopper_pearson or gdp.")
]
Canaries = Annotated[str, typer.Option(metavar="NAME", help="Of a train function: mislabelled or blank.")]
NumGuesses = Annotated[
    int | None,
    typer.Option(parser=options.whole_number, metavar="WHOLE", help="Of a train function: how many coins to guess."),
]
NumRuns = Annotated[
    int, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Trainings of clopper_pearson and gdp.")
]
Seed = Annotated[
    int | None, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Repeat an audit, for tests.")
]

_NUM_RUNS = 200
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Keep what was found there, or in the run, for hush report.")
]


def audit(
    target: Target,
    *,
    num_canaries: NumCanaries = None,
    significance: Significance = 0.05,
    again: Again = False,
    epsilon: Epsilon = None,
    delta: Delta = None,
    method: Method = "one_run",
    canaries: Canaries = "mislabelled",
    num_guesses: NumGuesses = None,
    num_runs: NumRuns = _NUM_RUNS,
    seed: Seed = None,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """Attack a training and hold what is found against its guarantee; exit code 1 is a CONTRADICTION.

    A run's folder: the audit of that training, if it had one; else its plan is carried out anew by this installation
    with canaries, on made-up rows and a stand-in model. A factory: (plan, model, loss_fn, dataset) is trained with
    canaries, the white-box way; (train_fn, dataset) the black-box way.
    """
    from hush.rng import Rng

    rng = Rng.from_entropy() if seed is None else Rng.from_seed(seed)
    black_box = {
        "--epsilon": epsilon is not None, "--delta": delta is not None, "--num-guesses": num_guesses is not None,
        "--method": method != "one_run", "--canaries": canaries != "mislabelled", "--num-runs": num_runs != _NUM_RUNS,
    }  # fmt: skip
    given = [name for name, is_given in black_box.items() if is_given]
    if Path(target).is_dir():
        _refuse(given)
        result, source, event = _of_run(Path(target), num_canaries, significance, again, rng)
        _keep(out, result, source, event)
        _report(result, source, json)
        return
    made = _made(target)
    if len(made) == 4:
        _refuse(given)
        with waiting("training with canaries"):
            result = _white_box(*made, num_canaries, significance, rng)
        _keep(out, result, "a training of your model and data", made[0].event)
        _report(result, "a training of your model and data", json)
        return
    if delta is None:
        raise InvalidValue("--delta is needed for a train function: no plan says it.")
    with waiting("training with canaries"):
        evidence = _black_box(made, delta, canaries, method, num_canaries, num_guesses, num_runs, significance, rng)
    _keep(out, evidence, "a training of your own code, by its model alone", None)
    _report_black_box(evidence, epsilon, json)


def _refuse(given: list[str]) -> None:
    if given:
        raise InvalidValue(f"{', '.join(given)} is for a train function; the plan of a training says it otherwise.")


def _made(target: str) -> tuple[Any, ...]:
    from hush.cli.user_code import made_by

    if ":" not in target:
        raise InvalidValue(f"{target} is no folder of a run; for your own code say file.py:factory.")
    made = made_by(target)
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        return made
    if isinstance(made, tuple) and len(made) == 4:
        from torch import nn

        from hush.training import TrainingPlan

        if isinstance(made[0], TrainingPlan) and isinstance(made[1], nn.Module) and callable(made[2]):
            return made
    raise InvalidValue(
        f"{target} must return (plan, model, loss_fn, dataset) or (train_fn, dataset); got {type(made).__name__}."
    )


def _of_run(
    folder: Path, num_canaries: int | None, significance: float, again: bool, rng: Any
) -> tuple[AuditResult, str, Event]:
    from hush.training import Run

    run = Run.load(folder)
    if run.audit is not None and not again:
        return run.audit, "the training itself, when it ran", run.event
    from dataclasses import replace

    with waiting("carrying out the plan with canaries"):
        result = _stand_in(replace(run.plan, budget=None, spare_steps=0), num_canaries, significance, rng)
    return result, "the plan, carried out anew on made-up rows: your model and data were not touched", run.plan.event


def _keep(out: Path | None, found: AuditResult | Evidence, source: str, event: Event | None) -> None:
    if out is not None:
        from hush.report import save_audit

        save_audit(out, found, source=source, event=event)


def _stand_in(plan: Any, num_canaries: int | None, significance: float, rng: Any) -> AuditResult:
    """The plan on a small model and rows of zeros; whatever is wrong with sampling, clipping or noise shows there."""
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.data import TensorDataset

    rows = TensorDataset(torch.zeros(32, 4), torch.arange(32) % 2)

    def loss_fn(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(x), y, reduction="none")

    return _white_box(plan, nn.Linear(4, 2), loss_fn, rows, num_canaries, significance, rng)


def _white_box(
    plan: Any, model: Any, loss_fn: Any, dataset: Any, num_canaries: int | None, significance: float, rng: Any
) -> AuditResult:
    import torch

    from hush.audit import WhiteBox
    from hush.training import fit

    usual = WhiteBox()
    run = fit(
        plan,
        model,
        dataset,
        loss_fn=loss_fn,
        optimizer=torch.optim.SGD([value for value in model.parameters() if value.requires_grad], lr=1e-3),
        people=torch.arange(len(dataset)) if plan.unit == "person" else None,
        augment=(lambda batch: batch) if plan.augmentations > 1 else None,
        rng=rng,
        audit=WhiteBox(
            num_canaries=usual.num_canaries if num_canaries is None else num_canaries, significance=significance
        ),
        progress=False,
        guard_steps=0,
    )
    assert run.audit is not None
    return run.audit


def _black_box(
    made: tuple[Any, ...],
    delta: float,
    canaries: Any,
    method: Any,
    num_canaries: int | None,
    num_guesses: int | None,
    num_runs: int,
    significance: float,
    rng: Any,
) -> Evidence:
    from hush.audit import audit as black_box

    train_fn, dataset = made
    return black_box(
        train_fn,
        dataset,
        delta=delta,
        canaries=canaries,
        method=method,
        num_canaries=num_canaries,
        num_guesses=num_guesses,
        num_runs=num_runs,
        significance=significance,
        rng=rng,
    )


def _report(result: AuditResult, source: str, as_json: bool) -> None:
    if as_json:
        print_json({**result.to_dict(), "source": source})
    else:
        print_lines(f"audited: {source}", *str(result).splitlines())
    if result.contradicts:
        raise typer.Exit(1)


def _report_black_box(evidence: Evidence, epsilon: float | None, as_json: bool) -> None:
    from hush import _check

    claimed = None if epsilon is None else _check.positive("epsilon", epsilon)
    contradicts = claimed is not None and evidence.epsilon_at_least > claimed
    verdict = "CONTRADICTION" if contradicts else "nothing was claimed" if claimed is None else "no contradiction"
    if as_json:
        print_json({"verdict": verdict, "contradicts": contradicts, "epsilon": claimed, "evidence": evidence.to_dict()})
    else:
        claim = [] if claimed is None else [f"claimed: epsilon {claimed:g} at delta {evidence.delta:g}"]
        print_lines(*claim, f"measured: {evidence}", *(f"note: {note}" for note in evidence.notes), verdict)
    if contradicts:
        raise typer.Exit(1)

"""`hush train`: train privately, and see the accuracy, the guarantee, and where the run was saved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hush.cli import feature_train, linear_train, options
from hush.cli.output import print_json, print_lines, print_table, round_down
from hush.errors import InvalidValue

if TYPE_CHECKING:
    from hush.cli.job import Outcome, Settled
    from hush.cli.task import Task

Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="NAME|FILE",
        help="digits, mnist, fashion-mnist, cifar10, adult, ...; or a CSV or Parquet file.",
    ),
]
Epsilon = Annotated[float | None, typer.Option(metavar="NUMBER", help="The most that may be spent. Needed.")]
Delta = Annotated[
    float | None,
    typer.Option(metavar="NUMBER", help="Accepted chance of failure; for public data sets 1e-5 unless said."),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="linear, kernel, mlp or cnn; logistic, linear, theil-sen at once."),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where the run goes; runs/... unless said.")]
Epochs = Annotated[float | None, typer.Option(metavar="NUMBER", help="Passes over the data, instead of --steps.")]
BatchSize = Annotated[
    int | None,
    typer.Option(parser=options.whole_number, metavar="WHOLE", help="Examples in a batch, on average; the divisor."),
]
NumExamples = Annotated[
    int | None,
    typer.Option(parser=options.whole_number, metavar="WHOLE", help="Public figure for the size of your own data."),
]
ClipNorm = Annotated[float | None, typer.Option(metavar="NUMBER", help="Bound on one example's gradient.")]
LearningRate = Annotated[float | None, typer.Option(metavar="NUMBER", help="At the start; it falls along a cosine.")]
OptimizerName = Annotated[str, typer.Option("--optimizer", metavar="NAME", help="sgd (with momentum) or adam.")]
Average = Annotated[str, typer.Option(metavar="NAME", help="Average the weights over the steps: none, ema or mean.")]
Unit = Annotated[str | None, typer.Option(metavar="NAME", help="What is protected: an example, or a person's rows.")]
PhysicalBatchSize = Annotated[
    int | None, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Rows in memory at once.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        parser=options.whole_number, metavar="WHOLE", help="Repeat a run, for tests. Never release such a run."
    ),
]
Secure = Annotated[bool, typer.Option("--secure", help="Noise from a cryptographic generator, safe in floats.")]
NoTwin = Annotated[bool, typer.Option("--no-twin", help="Do not train the twin without privacy.")]
LedgerPlace = Annotated[
    str | None,
    typer.Option("--ledger", metavar="PATH_OR_URL", envvar="HUSH_LEDGER", help="A ledger shared by runs."),
]
AccountName = Annotated[str | None, typer.Option("--account", metavar="NAME", help="Its account; the data's name.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, after a crash.")]
LivePage = Annotated[bool, typer.Option("--live", help="Write a page that shows epsilon as the steps are taken.")]
Module = Annotated[
    str | None,
    typer.Option("--module", metavar="FILE:FACTORY", help="Your own model, or (model, loss_fn, dataset)."),
]
Target = Annotated[str | None, typer.Option(metavar="COLUMN", help="Of a table: the column to learn.")]
SchemaFile = Annotated[Path | None, typer.Option("--schema", metavar="FILE", help="Of a table: public ranges.")]
WriteSchema = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a schema to fill in, and stop.")]
PublicSchema = Annotated[
    bool, typer.Option("--public-schema", help="Of a table: its ranges and categories are public; read them from it.")
]
TestFile = Annotated[Path | None, typer.Option("--test", metavar="FILE", help="Of a table: rows to test on.")]
Folder = Annotated[Path | None, typer.Option("--folder", metavar="DIR", help="Where the data set's files are.")]


_WISHES = (
    *("epsilon", "delta", "model", "steps", "epochs", "expected_batch_size", "num_examples", "clip_norm", "seed"),
    *("learning_rate", "optimizer", "average", "unit", "physical_batch_size", "secure"),
)  # options that are fields of `job.Wishes`


def train(
    context: typer.Context,
    *,
    data: Data = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    model: ModelName = None,
    out: Out = None,
    steps: options.Steps = None,
    epochs: Epochs = None,
    expected_batch_size: BatchSize = None,
    num_examples: NumExamples = None,
    clip_norm: ClipNorm = None,
    learning_rate: LearningRate = None,
    optimizer: OptimizerName = "sgd",
    average: Average = "none",
    relation: options.RelationName = "add_remove",
    unit: Unit = None,
    physical_batch_size: PhysicalBatchSize = None,
    seed: Seed = None,
    secure: Secure = False,
    no_twin: NoTwin = False,
    ledger: LedgerPlace = None,
    account: AccountName = None,
    resume: Resume = False,
    live: LivePage = False,
    module: Module = None,
    target: Target = None,
    schema: SchemaFile = None,
    write_schema: WriteSchema = None,
    public_schema: PublicSchema = False,
    test: TestFile = None,
    folder: Folder = None,
    method: linear_train.Method = None,
    data_norm: linear_train.DataNorm = None,
    x_bounds: linear_train.XBounds = None,
    y_bounds: linear_train.YBounds = None,
    classes: linear_train.Classes = None,
    features: linear_train.Features = None,
    recipe: feature_train.RecipeName = None,
    json: options.Json = False,
) -> None:
    """Train privately: a data set by name, a table with a public schema, or your own code."""
    if account is not None and ledger is None:
        raise InvalidValue("--account is an account of a shared ledger: name that by --ledger, or leave --account out.")
    if recipe is not None:
        feature_train.run(context.params, _place(out, recipe, resume))
        return
    if write_schema is None and linear_train.is_asked(context.params):
        linear_train.run(context.params, _place(out, str(data), resume))
        return
    at_once = [f"--{name}" for name in ("method", "classes", "features") if context.params[name] is not None]
    if at_once:
        raise InvalidValue(f"{', '.join(at_once)} is for --model logistic, linear or theil-sen.")
    # Sampled batches differ in size, and oneDNN keeps code and memory for each: without a limit, gigabytes.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    from hush.cli import job
    from hush.privacy import check_relation

    if write_schema is not None:
        _write_schema(data, target, write_schema, json)
        return
    if epsilon is None:
        raise InvalidValue("--epsilon is needed: it has no default, because it is what the promise says.")
    wishes = job.Wishes(
        relation=check_relation(relation), twin=not no_twin, **{name: context.params[name] for name in _WISHES}
    )
    place = _place(out, data or str(module), resume)
    task = _task(data, module, target, schema, public_schema, test, folder)
    settled = job.settle(task, wishes)
    if not json:
        print_plan(task, settled)
    outcome = job.carry_out(task, wishes, settled, place, ledger=ledger, account=account, resume=resume, live=live)
    if json:
        print_json(to_dict(task, outcome))
    else:
        print_outcome(outcome)


def _task(
    data: str | None,
    module: str | None,
    target: str | None,
    schema: Path | None,
    public_schema: bool,
    test: Path | None,
    folder: Path | None,
) -> Task:
    from hush.cli import task

    if data is None and module is None:
        raise InvalidValue("name what to train on: --data digits, --data table.csv, or --module file.py:factory.")
    of_table = {"--target": target, "--schema": schema, "--public-schema": public_schema, "--test": test}
    given = None
    if data is not None and task.is_table(data):
        given = task.table(data, target, schema, public_schema, test)
    elif extra := [name for name, value in of_table.items() if value]:
        raise InvalidValue(f"{', '.join(extra)} is for a table of your own: --data FILE.csv or FILE.parquet.")
    elif data is not None:
        given = task.known(data, folder)
    return given if module is None and given is not None else task.from_code(str(module), given)


def _write_schema(data: str | None, target: str | None, place: Path, json: bool) -> None:
    from hush.cli import task

    if data is None or not task.is_table(data):
        raise InvalidValue("--write-schema needs a table of your own: --data FILE.csv or FILE.parquet.")
    task.write_template(data, target, place)
    if json:
        print_json({"data": data, "schema": str(place)})
        return
    print_lines(
        f"Written: {place}, with the names and types of the columns and no value of any row.",
        "Fill in bounds, values and num_examples from public knowledge; set the type of a column to",
        f'"ignore" to leave it out. Then: hush train --data {data} --schema {place} --epsilon ... --delta ...',
    )


def _place(out: Path | None, name: str, resume: bool) -> Path:
    """The run's folder: the one asked for, or the first free runs/NAME-NUMBER."""
    if out is None:
        if resume:
            raise InvalidValue("--resume needs --out, the folder of the run that was interrupted.")
        stem = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in Path(name).stem)
        return next(path for number in range(1, 10**6) if not (path := Path("runs") / f"{stem}-{number}").exists())
    if resume and not out.is_dir():
        raise InvalidValue(f"there is no run in {out} to go on with.")
    if not resume and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidValue(f"{out} is not empty; choose another folder, or go on with that run by --resume.")
    return out


def to_dict(task: Task, outcome: Outcome) -> dict[str, Any]:
    """What is printed with --json: public facts and the test result, under the glossary's words."""
    settled, plan = outcome.settled, outcome.settled.plan
    result: dict[str, Any] = {"data": task.name, "model": settled.model, "parameters": outcome.parameters}
    if outcome.score is not None:
        result[outcome.score[0]] = outcome.score[1]
    if outcome.twin_score is not None:
        result[f"twin_{outcome.twin_score[0]}"] = outcome.twin_score[1]
    return {
        **result,
        **outcome.run.guarantee.to_dict(),
        "noise_multiplier": plan.noise_multiplier,
        "sampling": plan.sampling,
        "sampling_prob": plan.sampling_prob,
        "expected_batch_size": plan.expected_batch_size,
        "steps": outcome.run.steps,
        "clip_norm": plan.clip_norm,
        "learning_rate": settled.learning_rate,
        "unit": plan.unit,
        "complete": outcome.run.complete,
        "randomness": outcome.run.randomness,
        "seconds": round(outcome.seconds, 2),
        "out": str(outcome.folder),
        "notes": [*outcome.run.guarantee.notes, *outcome.notes],
    }


def print_plan(task: Task, settled: Settled) -> None:
    """What will be done, before it is done."""
    plan = settled.plan
    size = "full batches" if plan.sampling == "full_batch" else f"batches of about {plan.expected_batch_size:,}"
    units = "people" if plan.unit == "person" else "examples"
    assert plan.budget is not None
    print_lines(
        f"{task.name}: {settled.num_examples:,} {units}; model: {settled.model}",
        f"budget: epsilon {plan.budget.epsilon:g} at delta {plan.delta:g} ({plan.relation})",
        f"plan: {plan.steps:,} steps, {size}, clip norm {plan.clip_norm:g}, noise multiplier "
        f"{plan.noise_multiplier:.6g}, learning rate {settled.learning_rate:g}",
    )


def print_outcome(outcome: Outcome) -> None:
    """Accuracy beside the twin's, the guarantee, the place of the run."""
    rows = [(_words(outcome.score), _shown(outcome.score), _shown(outcome.twin_score))]
    if outcome.score is not None:
        print_lines("")
        print_table(
            "on the test rows", ("", "private", "without privacy"), rows, numbers=("private", "without privacy")
        )
    lines = [f"proven: {outcome.run.guarantee}"]
    lines += [f"note: {note}" for note in (*outcome.run.guarantee.notes, *outcome.notes)]
    if not outcome.run.complete:
        lines.append(f"The run ended early, after {outcome.run.steps:,} of {outcome.settled.plan.steps:,} steps.")
    print_lines(*lines, f"saved: {outcome.folder} ({outcome.seconds:.1f} s)")


def _words(score: tuple[str, float] | None) -> str:
    return "" if score is None else score[0].replace("_", " ")


def _shown(score: tuple[str, float] | None) -> str:
    if score is None:
        return "-"
    return f"{100 * score[1]:.2f} %" if score[0] == "test_accuracy" else round_down(score[1])

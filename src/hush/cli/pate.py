"""`hush pate`: teachers on disjoint private rows vote on public ones, and a student learns from the noisy votes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hush.cli import options
from hush.cli.output import print_json, print_lines, print_table
from hush.errors import InvalidValue

if TYPE_CHECKING:
    from hush.cli.pate_job import Outcome, Parts, Settled, Wishes

Whole = int | None
Data = Annotated[str | None, typer.Option("--data", metavar="NAME", help="digits, mnist, fashion-mnist, adult, ...")]
NumTeachers = Annotated[
    int, typer.Option("--teachers", parser=options.whole_number, metavar="WHOLE", help="How many; each has its shard.")
]
Epsilon = Annotated[float | None, typer.Option(metavar="NUMBER", help="The most that may be spent. Needed.")]
Delta = Annotated[float | None, typer.Option(metavar="NUMBER", help="Accepted chance of failure; 1e-5 unless said.")]
Queries = Annotated[
    Whole, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Public rows to ask about; else what fits.")
]
Mechanism = Annotated[str, typer.Option(metavar="NAME", help="gnmax, confident (may abstain) or lnmax.")]
Stddev = Annotated[
    float | None, typer.Option(metavar="NUMBER", help="Gaussian noise on each count; else teachers / 5.")
]
Threshold = Annotated[float | None, typer.Option(metavar="NUMBER", help="Of confident: the votes that a label needs.")]
ThresholdStddev = Annotated[float | None, typer.Option(metavar="NUMBER", help="Of confident: the noise of that test.")]
Scale = Annotated[float | None, typer.Option(metavar="NUMBER", help="Of lnmax: Laplace noise on each count; else 20.")]
TeacherName = Annotated[str, typer.Option("--teacher", metavar="NAME", help="kernel, linear, mlp or cnn.")]
StudentName = Annotated[str | None, typer.Option("--student", metavar="NAME", help="plain, rounds, fixmatch or gan.")]
StudentSteps = Annotated[
    Whole, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Steps of the student's training.")
]
Seed = Annotated[
    Whole, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Repeat a run, for tests. Never release it.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where the run goes; runs/... unless said.")]
TeachersFolder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Keep the votes there, private, to go on after an interruption.")
]
LedgerPlace = Annotated[str | None, typer.Option("--ledger", metavar="PATH_OR_URL", help="A ledger shared by runs.")]
AccountName = Annotated[str | None, typer.Option("--account", metavar="NAME", help="Its account; the data's name.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="DIR", help="Draw what the queries cost, there.")]
ShowPrivate = Annotated[
    bool, typer.Option("--show-private", help="Also draw the votes, and accuracy by teachers and noise: not private!")
]
Folder = Annotated[Path | None, typer.Option("--folder", metavar="DIR", help="Where the data set's files are.")]


def pate(
    *,
    data: Data = None,
    teachers: NumTeachers = 250,
    epsilon: Epsilon = None,
    delta: Delta = None,
    relation: options.RelationName = "add_remove",
    queries: Queries = None,
    mechanism: Mechanism = "gnmax",
    stddev: Stddev = None,
    threshold: Threshold = None,
    threshold_stddev: ThresholdStddev = None,
    scale: Scale = None,
    teacher: TeacherName = "kernel",
    student: StudentName = None,
    student_steps: StudentSteps = None,
    seed: Seed = None,
    out: Out = None,
    teachers_folder: TeachersFolder = None,
    ledger: LedgerPlace = None,
    account: AccountName = None,
    plot: Plot = None,
    show_private: ShowPrivate = False,
    folder: Folder = None,
    json: options.Json = False,
) -> None:
    """Label public rows by a noisy vote of teachers, and train a student on them that may be published."""
    from hush.cli import pate_job
    from hush.privacy import check_relation

    if data is None:
        raise InvalidValue("name the data: --data mnist.")
    if epsilon is None:
        raise InvalidValue("--epsilon is needed: it has no default, because it is what the promise says.")
    if show_private and plot is None:
        raise InvalidValue("--show-private draws pictures: name their folder by --plot DIR.")
    wishes = pate_job.Wishes(
        epsilon=epsilon,
        delta=delta,
        teachers=teachers,
        relation=check_relation(relation),
        mechanism=mechanism,
        queries=queries,
        stddev=stddev,
        threshold=threshold,
        threshold_stddev=threshold_stddev,
        scale=scale,
        teacher=teacher,
        student=student,
        student_steps=student_steps,
        seed=seed,
    )
    place = _place(out, data)
    parts = pate_job.load(data, folder)
    settled = pate_job.settle(parts, wishes)
    if not json:
        print_plan(parts, wishes, settled)
    outcome = pate_job.carry_out(
        parts, wishes, settled, place, ledger=ledger, account=account, teachers_folder=teachers_folder
    )
    drawn = _draw(plot, parts, wishes, outcome, show_private)
    if json:
        print_json(to_dict(parts, wishes, outcome, drawn))
    else:
        print_outcome(outcome, wishes, drawn)


def _place(out: Path | None, name: str) -> Path:
    """The run's folder: the one asked for, or the first free runs/pate-NAME-NUMBER."""
    if out is None:
        free = (Path("runs") / f"pate-{Path(name).stem}-{number}" for number in range(1, 10**6))
        return next(path for path in free if not path.exists())
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidValue(f"{out} is not empty; choose another folder.")
    return out


def _draw(plot: Path | None, parts: Parts, wishes: Wishes, outcome: Outcome, show_private: bool) -> list[Path]:
    if plot is None:
        return []
    from hush.cli import pate_plots

    plot.mkdir(parents=True, exist_ok=True)
    drawn = [pate_plots.draw_cost(outcome, wishes, plot / "cost.png")]
    if show_private:
        drawn.append(pate_plots.draw_votes(outcome, plot / "votes-not-private.png"))
        drawn.append(pate_plots.draw_accuracy(parts, wishes, plot / "accuracy-not-private.png"))
    return drawn


def to_dict(parts: Parts, wishes: Wishes, outcome: Outcome, drawn: list[Path]) -> dict[str, Any]:
    """What is printed with --json: nothing that would have to be kept secret."""
    answers = outcome.answers
    return {
        "data": parts.dataset.name,
        "teachers": wishes.teachers,
        "mechanism": wishes.mechanism,
        **{name: value for name, value in vars(outcome.settled.aggregator).items() if name != "noise"},
        "queries": len(answers.labels),
        "asked": int(answers.asked.sum()),
        "answered": int(answers.answered.sum()),
        "label_accuracy": outcome.label_accuracy,
        "test_accuracy": outcome.test_accuracy,
        "test_rows": outcome.test_rows,
        **outcome.cost.data_independent.to_dict(),
        "sanitised": None if outcome.cost.sanitised is None else outcome.cost.sanitised.to_dict(),
        "student": outcome.settled.method,
        "randomness": "operating-system entropy" if wishes.seed is None else f"seed {wishes.seed}",
        "seconds": round(outcome.seconds, 2),
        "out": str(outcome.folder),
        "plots": [str(path) for path in drawn],
    }


def print_plan(parts: Parts, wishes: Wishes, settled: Settled) -> None:
    """What will be done, before it is done."""
    budget = settled.budget
    print_lines(
        f"{parts.dataset.name}: {wishes.teachers:,} teachers ({wishes.teacher}) on disjoint shards; "
        f"{len(parts.public):,} public rows without labels, {len(parts.test):,} to test on",
        f"budget: epsilon {budget.epsilon:g} at delta {budget.delta:g} ({wishes.relation})",
        f"vote: {settled.aggregator}, at most {settled.queries:,} queries; student: {settled.method}",
    )


def print_outcome(outcome: Outcome, wishes: Wishes, drawn: list[Path]) -> None:
    """Accuracies, labels, the three epsilons, the place of the run."""
    answers = outcome.answers
    rows = [
        ("labels of the vote", f"{answers.answered.sum():,}", f"{100 * outcome.label_accuracy:.2f} %"),
        ("student", f"{outcome.test_rows:,}", f"{100 * outcome.test_accuracy:.2f} %"),
    ]
    print_lines("")
    print_table("on public rows", ("", "rows", "right"), rows, numbers=("rows", "right"))
    print_lines(
        f"{answers.asked.sum():,} of {len(answers.labels):,} queries asked, {answers.answered.sum():,} answered"
    )
    print_lines(*str(outcome.cost).splitlines())
    if wishes.seed is not None:
        print_lines(f"note: drawn from seed {wishes.seed}, which anybody can repeat: never release this run.")
    print_lines(*(f"drawn: {path}" for path in drawn), f"saved: {outcome.folder} ({outcome.seconds:.1f} s)")

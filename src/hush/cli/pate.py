"""`hush pate`: teachers on disjoint private rows vote on public ones, and a student learns from the noisy votes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hush.cli import options
from hush.cli.output import print_json, print_lines, print_table
from hush.errors import InvalidValue

if TYPE_CHECKING:
    from hush.cli.pate_job import Outcome, Parts, Settled
    from hush.cli.pate_vote import Wishes

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
LedgerPlace = Annotated[
    str | None,
    typer.Option("--ledger", metavar="PATH_OR_URL", envvar="HUSH_LEDGER", help="A ledger shared by runs."),
]
AccountName = Annotated[str | None, typer.Option("--account", metavar="NAME", help="Its account; the data's name.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="DIR", help="Draw what the queries cost, there.")]
ShowPrivate = Annotated[
    bool, typer.Option("--show-private", help="Also the data-dependent epsilon and plots of the votes: not private!")
]
Sanitise = Annotated[
    float | None,
    typer.Option(metavar="EPSILON", help="Pay so much of --epsilon to release the data-dependent one, with noise."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, after an interruption.")]
Folder = Annotated[Path | None, typer.Option("--folder", metavar="DIR", help="Where the data set's files are.")]
EngineName = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="Where teachers train: local, or ray (RAY_ADDRESS names it).")
]


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
    sanitise: Sanitise = None,
    teacher: TeacherName = "kernel",
    student: StudentName = None,
    student_steps: StudentSteps = None,
    seed: Seed = None,
    out: Out = None,
    resume: Resume = False,
    teachers_folder: TeachersFolder = None,
    ledger: LedgerPlace = None,
    account: AccountName = None,
    plot: Plot = None,
    show_private: ShowPrivate = False,
    folder: Folder = None,
    engine: EngineName = "local",
    json: options.Json = False,
) -> None:
    """Label public rows by a noisy vote of teachers, and train a student on them that may be published."""
    from hush.cli import pate_job, pate_vote
    from hush.engines import engine_of as check_engine
    from hush.privacy import check_relation

    check_engine(engine)
    if data is None:
        raise InvalidValue("name the data: --data mnist.")
    if epsilon is None:
        raise InvalidValue("--epsilon is needed: it has no default, because it is what the promise says.")
    wishes = pate_vote.Wishes(
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
        sanitise=sanitise,
        teacher=teacher,
        student=student,
        student_steps=student_steps,
        seed=seed,
    )
    place = _place(out, data, resume)
    parts = pate_job.load(data, folder)
    settled = pate_job.settle(parts, wishes)
    begun = pate_job.begin(parts, wishes, place, ledger=ledger, account=account, resume=resume, with_votes=show_private)
    if not json:
        print_plan(parts, wishes, settled)
    outcome = pate_job.carry_out(parts, wishes, settled, begun, teachers_folder=teachers_folder, engine=engine)
    drawn = _draw(plot, parts, wishes, outcome, show_private)
    if json:
        print_json(to_dict(parts, wishes, outcome, drawn, show_private))
    else:
        print_outcome(outcome, wishes, drawn, show_private)


def _place(out: Path | None, name: str, resume: bool) -> Path:
    """The run's folder: the one asked for, or the first free runs/pate-NAME-NUMBER."""
    if out is None:
        if resume:
            raise InvalidValue("--resume needs --out, the folder of the run that was interrupted.")
        free = (Path("runs") / f"pate-{Path(name).stem}-{number}" for number in range(1, 10**6))
        return next(path for path in free if not path.exists())
    if not resume and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidValue(f"{out} is not empty; choose another folder, or go on with that run by --resume.")
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


def to_dict(
    parts: Parts, wishes: Wishes, outcome: Outcome, drawn: list[Path], show_private: bool = False
) -> dict[str, Any]:
    """What is printed with --json: without `show_private` nothing that would have to be kept secret."""
    released, release = outcome.released, outcome.settled.release
    result = {
        "data": parts.dataset.name,
        "teachers": wishes.teachers,
        "mechanism": wishes.mechanism,
        **{name: value for name, value in vars(outcome.settled.aggregator).items() if name != "noise"},
        "queries": len(released.labels),
        "asked": released.asked,
        "answered": int(released.answered.sum()),
        "label_accuracy": outcome.label_accuracy,
        "test_accuracy": outcome.test_accuracy,
        "test_rows": outcome.test_rows,
        **outcome.promise().to_dict(),
        "data_independent": released.data_independent.to_dict(),
        "sanitised": None if released.sanitised is None else released.sanitised.to_dict(),
        "sanitised_price": None
        if release is None
        else {"epsilon": release.price.epsilon, "delta": release.price.delta},
        "student": outcome.settled.method,
        "randomness": "operating-system entropy" if wishes.seed is None else f"seed {wishes.seed}",
        "seconds": round(outcome.seconds, 2),
        "out": str(outcome.folder),
        "plots": [str(path) for path in drawn],
    }
    if show_private and outcome.data_dependent is not None:
        value = outcome.data_dependent.private_value()
        result["do_not_publish"] = {"data_dependent_epsilon": value, "delta": outcome.data_dependent.delta}
    return result


def print_plan(parts: Parts, wishes: Wishes, settled: Settled) -> None:
    """What will be done, before it is done."""
    budget = settled.budget
    print_lines(
        f"{parts.dataset.name}: {wishes.teachers:,} teachers ({wishes.teacher}) on disjoint shards; "
        f"{len(parts.public):,} public rows without labels, {len(parts.test):,} to test on",
        f"budget: epsilon {budget.epsilon:g} at delta {budget.delta:g} ({wishes.relation})",
        f"vote: {settled.aggregator}, at most {settled.queries:,} queries; student: {settled.method}",
    )


def print_outcome(outcome: Outcome, wishes: Wishes, drawn: list[Path], show_private: bool = False) -> None:
    """Accuracies, labels, the three epsilons, the place of the run."""
    released, answered = outcome.released, int(outcome.released.answered.sum())
    rows = [
        ("labels of the vote", f"{answered:,}", f"{100 * outcome.label_accuracy:.2f} %"),
        ("student", f"{outcome.test_rows:,}", f"{100 * outcome.test_accuracy:.2f} %"),
    ]
    print_lines("")
    print_table("on public rows", ("", "rows", "right"), rows, numbers=("rows", "right"))
    print_lines(f"{released.asked:,} of {len(released.labels):,} queries asked, {answered:,} answered", "")
    promise = outcome.promise()
    title = f"epsilon of the labels at delta {released.data_independent.delta:.3g}, {wishes.relation.replace('_', ' ')}"
    print_table(title, ("", "epsilon", "may it be published?"), epsilons(outcome, show_private), numbers=("epsilon",))
    if outcome.settled.release is not None:
        print_lines(f"labels and release together: {promise}")
    if wishes.seed is not None:
        print_lines(f"note: drawn from seed {wishes.seed}, which anybody can repeat: never release this run.")
    print_lines(*(f"drawn: {path}" for path in drawn), f"saved: {outcome.folder} ({outcome.seconds:.1f} s)")


def epsilons(outcome: Outcome, show_private: bool) -> list[tuple[str, str, str]]:
    """The three epsilons: name, number, and whether it may be published."""
    from hush.privacy import round_up

    released, dependent = outcome.released, outcome.data_dependent
    independent = round_up(released.data_independent.epsilon)
    if dependent is None:
        gone = "the votes are gone after an interruption" if outcome.votes is None else "no bound at delta 0"
        private = ("-", f"no: {gone}")
    elif show_private:
        private = (round_up(dependent.private_value()), "NO, DO NOT PUBLISH: computed from private votes")
    else:
        private = ("hidden", "no: computed from private votes; --show-private shows it to you")
    return [
        ("data-independent", independent, "yes: it holds whatever the votes were"),
        ("data-dependent", *private),
        ("sanitised", *_sanitised(outcome)),
    ]


def _sanitised(outcome: Outcome) -> tuple[str, str]:
    from hush.privacy import round_up

    sanitised, release = outcome.released.sanitised, outcome.settled.release
    if sanitised is None or release is None:
        if hasattr(outcome.settled.aggregator, "scale"):
            return "-", "not possible with Laplace noise"
        return "-", "not released: --sanitise EPSILON pays for it"
    price = f"its release cost {round_up(release.price.epsilon)} at delta {release.price.delta:.3g}, included here"
    if sanitised.epsilon >= outcome.released.data_independent.epsilon:
        return round_up(sanitised.epsilon), f"yes, but it is no better here; {price}"
    return round_up(sanitised.epsilon), f"yes, for this data and its neighbours; {price}"

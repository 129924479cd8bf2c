"""`hush attack membership|exposure|extract|link`: what a model or a release tells about people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hush.cli import options
from hush.cli.output import print_json, print_lines, print_table
from hush.errors import InvalidValue

if TYPE_CHECKING:
    from hush.attacks import Linkage, Ratings
    from hush.cli.attack_membership import Found

app = typer.Typer(help="Attack a model or a release, to see what it tells about people.", rich_markup_mode=None)

DataName = Annotated[str | None, typer.Option("--data", metavar="NAME", help="A data set by name, such as location30.")]
Module = Annotated[str | None, typer.Option("--module", metavar="FILE:FACTORY", help="What your own code returns.")]
Factory = Annotated[str, typer.Argument(metavar="MODULE:FACTORY", help="file.py:function or package.module:function.")]
Epsilon = Annotated[float | None, typer.Option(metavar="NUMBER", help="Train privately; without it, with no privacy.")]
Delta = Annotated[float | None, typer.Option(metavar="NUMBER", help="Of that budget.")]
ModelName = Annotated[str | None, typer.Option("--model", metavar="NAME", help="linear, kernel, mlp (default) or cnn.")]
Method = Annotated[
    str,
    typer.Option(metavar="NAME", help="loss_threshold, shadow_models, lira, lira_offline, rmia, or all."),
]
ShadowCount = Annotated[int, typer.Option("--shadows", parser=options.whole_number, metavar="WHOLE", help="How many.")]
Rows = Annotated[int, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Rows to take at most.")]
Epochs = Annotated[int, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Passes without privacy.")]
Seed = Annotated[int | None, typer.Option(parser=options.whole_number, metavar="WHOLE", help="For tests.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="The curves as .png, .svg, .pdf or .html.")]
Folder = Annotated[Path | None, typer.Option("--folder", metavar="DIR", help="Where the data set's files are.")]
PrefixLength = Annotated[
    int, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Tokens in front that are known.")
]
KnownLength = Annotated[
    int | None, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Tokens in front that are known.")
]
Samples = Annotated[
    int | None, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Let the model write so many texts.")
]
Length = Annotated[
    int, typer.Option(parser=options.whole_number, metavar="WHOLE", help="With --samples: tokens of each.")
]
MatchLength = Annotated[
    int, typer.Option(parser=options.whole_number, metavar="WHOLE", help="With --samples: characters by heart.")
]
Window = Annotated[
    int | None,
    typer.Option(parser=options.whole_number, metavar="WHOLE", help="Tokens that the model can look back on."),
]
Released = Annotated[Path | None, typer.Option(metavar="FILE", help="CSV: record, item, rating, perhaps day.")]
Known = Annotated[Path | None, typer.Option("--auxiliary", metavar="FILE", help="CSV: what the attacker knows.")]


@app.command()
def membership(
    *,
    data: DataName = None,
    module: Module = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    model: ModelName = None,
    method: Method = "all",
    shadows: ShadowCount = 16,
    rows: Rows = 5_000,
    epochs: Epochs = 30,
    plot: Plot = None,
    seed: Seed = None,
    folder: Folder = None,
    json: options.Json = False,
) -> None:
    """Who was trained on? Exit code 1 if an attack is surely better than the epsilon allows."""
    from hush.cli import attack_membership as inner

    if (data is None) == (module is None):
        raise InvalidValue("name what to attack: --data NAME, or --module FILE:FACTORY of your own.")
    wishes = inner.Wishes(
        epsilon=epsilon,
        delta=delta,
        model=model,
        shadows=shadows,
        rows=rows,
        epochs=epochs,
        methods=inner.methods_of(method),
        seed=seed,
    )
    _check_plot(plot)
    found = inner.on_data(data, folder, wishes) if data is not None else inner.on_code(str(module), wishes)
    limit = None if found.budget is None else (found.budget.epsilon, found.budget.delta)
    above = [name for name, result in found.results.items() if limit is not None and result.is_above(*limit)]
    if plot is not None:
        from hush.attacks.plots import draw_curves

        draw_curves(found.results, plot, title=f"Membership inference: {data or module}", limit=limit)
    if json:
        print_json(_membership_dict(data or str(module), found, above))
    else:
        _print_membership(data or str(module), found, above)
    if above:
        raise typer.Exit(1)


def _check_plot(path: Path | None) -> None:
    from hush.cli.plot import check_target

    if path is not None:
        check_target(path)


def _membership_dict(name: str, found: Found, above: list[str]) -> dict[str, Any]:
    return {
        "data": name,
        "model": found.model,
        "epsilon": float("inf") if found.budget is None else found.budget.epsilon,
        "delta": None if found.budget is None else found.budget.delta,
        "train_accuracy": found.train_accuracy,
        "test_accuracy": found.test_accuracy,
        "attacks": {name: result.to_dict() for name, result in found.results.items()},
        "above_the_limit": above,
    }


def _print_membership(name: str, found: Found, above: list[str]) -> None:
    rows = [
        (word, f"{result.auc:.3f}", str(result.tpr_at(0.001)), str(result.tpr_at(0.01)))
        for word, result in found.results.items()
    ]
    budget = "no privacy" if found.budget is None else f"epsilon {found.budget.epsilon:g} at {found.budget.delta:g}"
    columns = ("attack", "AUC", "TPR at FPR 0.1 %", "TPR at FPR 1 %")
    print_table(f"{name}, {found.model}: {budget}", columns, rows, numbers=columns[1:])
    print_lines(
        f"accuracy {found.train_accuracy:.1%} on rows that were trained on, {found.test_accuracy:.1%} on others",
        "AUC 0.5 and a TPR equal to the FPR are guessing; intervals are exact for counts, at 95 %.",
    )
    if above:
        print_lines(f"CONTRADICTION: {', '.join(above)} tells more than this epsilon allows.")


@app.command()
def exposure(
    factory: Factory, *, prefix_length: PrefixLength = 1, extrapolate: bool = False, json: options.Json = False
) -> None:
    """Does a language model hold secrets? The factory returns (model, canaries, references), as tokens."""
    from hush import attacks
    from hush.cli.user_code import made_by

    made = made_by(factory)
    if not isinstance(made, tuple) or len(made) != 3 or not callable(made[0]):
        raise InvalidValue(f"{factory} must return (model, canaries, references); got {type(made).__name__}.")
    method = "extrapolate" if extrapolate else "rank"
    found = attacks.exposure(*made, method=method, prefix_length=prefix_length)
    if json:
        print_json(found.to_dict())
    else:
        print_lines(str(found))


@app.command()
def extract(
    factory: Factory,
    *,
    prefix_length: KnownLength = None,
    samples: Samples = None,
    length: Length = 64,
    match_length: MatchLength = 50,
    window: Window = None,
    seed: Seed = None,
    json: options.Json = False,
) -> None:
    """Does a language model repeat its training texts? By their beginnings, or by letting it write.

    The factory returns (model, sequences) for --prefix-length, and (model, starts, decode, training text) for
    --samples; starts are tokens, (rows, length), used in turn.
    """
    from hush.cli import attack_extract as inner
    from hush.cli.user_code import made_by

    if (prefix_length is None) == (samples is None):
        raise InvalidValue("say how to extract: --prefix-length WHOLE, or --samples WHOLE.")
    made = made_by(factory)
    if prefix_length is not None:
        found, lines = inner.from_prefixes(factory, made, prefix_length)
    else:
        assert samples is not None
        wishes = inner.Wishes(samples=samples, length=length, match_length=match_length, window=window, seed=seed)
        found, lines = inner.by_sampling(factory, made, wishes)
    if json:
        print_json(found)
    else:
        print_lines(*lines)


@app.command()
def link(
    *,
    released: Released = None,
    auxiliary: Known = None,
    known: Annotated[int, typer.Option(help="On MovieLens: ratings that the attacker knows of each person.")] = 8,
    wrong: Annotated[int, typer.Option(help="On MovieLens: how many of them are of other films.")] = 2,
    rating_error: Annotated[float, typer.Option(metavar="NUMBER", help="Stars that they may be off.")] = 1.0,
    day_error: Annotated[float, typer.Option(metavar="NUMBER", help="Days that their dates may be off.")] = 14.0,
    eccentricity: Annotated[float, typer.Option(metavar="NUMBER", help="How far the best must stand out.")] = 1.5,
    seed: Seed = None,
    folder: Folder = None,
    json: options.Json = False,
) -> None:
    """Who is who in ratings without names? Two CSV files, or MovieLens with what an attacker might know."""
    from hush import attacks, data
    from hush.rng import Rng

    if (released is None) != (auxiliary is None):
        raise InvalidValue("give both --released and --auxiliary, or neither for MovieLens.")
    if released is None or auxiliary is None:
        ratings = attacks.Ratings(**data.load_ratings(folder=folder))  # type: ignore[arg-type]
        rng = Rng.from_entropy() if seed is None else Rng.from_seed(seed)
        errors = {"rating_error": rating_error, "day_error": day_error}
        asked = attacks.known_ratings(ratings, count=known, wrong=wrong, rng=rng, **errors)
        truth = asked.records
    else:
        ratings, asked, truth = _ratings(released), _ratings(auxiliary), None
    found = attacks.link_records(asked, ratings, eccentricity=eccentricity)
    _print_linkage(found, truth, len(ratings.records), json)


def _ratings(path: Path) -> Ratings:
    from hush.attacks import Ratings
    from hush.cli.rating_files import read_ratings

    return Ratings(**read_ratings(path))


def _print_linkage(found: Linkage, truth: Any, records: int, json: bool) -> None:
    named = int((found.matches >= 0).sum())
    rates = {} if truth is None else found.named(truth)
    if json:
        pairs = dict(zip(map(str, found.people.tolist()), found.matches.tolist(), strict=True))
        result: dict[str, Any] = {"people": len(found.people), "records": records, "named": named}
        result |= {"matches": pairs} if truth is None else {name: rate.to_dict() for name, rate in rates.items()}
        print_json(result)
        return
    print_lines(f"{len(found.people):,} people looked for among {records:,} records; {named:,} named.")
    print_lines(*(f"{name.replace('_', ' ')}: {rate}" for name, rate in rates.items()))

"""`hush prompt pate` and `hush prompt generate`: prompts that may be published, made from private texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hush import _check
from hush.cli import options
from hush.cli.output import print_json, print_lines, print_table
from hush.errors import InvalidValue

if TYPE_CHECKING:
    from hush.cli.prompt_job import Generation, Outcome, Settings
    from hush.cli.prompt_texts import Texts

Whole = int | None
_DELTA = 1e-5


def _whole(text: str) -> Any:
    return typer.Option(parser=options.whole_number, metavar="WHOLE", help=text)


Data = Annotated[str | None, typer.Option("--data", metavar="NAME", help="A known task: trec, sst2, ag-news-sample.")]
Private = Annotated[Path | None, typer.Option(metavar="FILE", help="Own private texts: a text, a tab, a label a line.")]
Public = Annotated[Path | None, typer.Option(metavar="FILE", help="Own public texts, one a line.")]
Words = Annotated[str | None, typer.Option("--label-words", metavar="A,B,...", help="The labels of the own texts.")]
Instruction = Annotated[str, typer.Option(metavar="TEXT", help="Own texts: what stands before the examples.")]
Example = Annotated[str | None, typer.Option(metavar="TEXT", help="Own texts: the frame, {text} ... {label}.")]
Model = Annotated[str, typer.Option(metavar="NAME", help="smollm2, a folder of a transformers model, or http(s)://...")]
Epsilon = Annotated[float | None, typer.Option(metavar="NUMBER", help="The most that may be spent. Needed.")]
Delta = Annotated[float | None, typer.Option(metavar="NUMBER", help="Accepted chance of failure; 1e-5 unless said.")]
Teachers = Annotated[int, _whole("Prompts, each with private texts of its own.")]
Demonstrations = Annotated[int, _whole("The most private texts in one prompt.")]
Queries = Annotated[int, _whole("Public texts to ask about.")]
Mechanism = Annotated[str, typer.Option(metavar="NAME", help="confident (may abstain), gnmax or lnmax.")]
Number = Annotated[float | None, typer.Option(metavar="NUMBER", help="Of the vote; see hush pate --help.")]
Candidates = Annotated[int, _whole("Student prompts to try, of each size.")]
Test = Annotated[int, _whole("Test texts of a known task; 0 for none.")]
Seed = Annotated[Whole, _whole("Repeat a run, for tests. Never release it.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where the run goes; runs/... unless said.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, after an interruption.")]
VotesFolder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Keep the votes there, private, to go on after an interruption.")
]
LedgerPlace = Annotated[
    str | None,
    typer.Option("--ledger", metavar="PATH_OR_URL", envvar="HUSH_LEDGER", help="A ledger shared by runs."),
]
AccountName = Annotated[str | None, typer.Option("--account", metavar="NAME", help="Its account; the data's name.")]
Preview = Annotated[bool, typer.Option("--preview", help="Say what it would cost, and stop.")]
Folder = Annotated[Path | None, typer.Option("--folder", metavar="DIR", help="Where the data set's files are.")]


def pate(
    *,
    data: Data = None,
    private: Private = None,
    public: Public = None,
    label_words: Words = None,
    instruction: Instruction = "",
    example: Example = None,
    model: Model = "smollm2",
    epsilon: Epsilon = None,
    delta: Delta = None,
    relation: options.RelationName = "add_remove",
    teachers: Teachers = 200,
    demonstrations: Demonstrations = 8,
    queries: Queries = 100,
    mechanism: Mechanism = "confident",
    threshold: Number = None,
    threshold_stddev: Number = None,
    stddev: Number = None,
    scale: Number = None,
    candidates: Candidates = 8,
    test: Test = 200,
    seed: Seed = None,
    out: Out = None,
    resume: Resume = False,
    votes_folder: VotesFolder = None,
    ledger: LedgerPlace = None,
    account: AccountName = None,
    preview: Preview = False,
    folder: Folder = None,
    json: options.Json = False,
) -> None:
    """Prompts of private texts vote on public texts; a student prompt of the answers may be published."""
    from hush.cli import prompt_job, prompt_texts
    from hush.privacy import check_relation

    _check.whole("--candidates", candidates)
    settings = prompt_job.Settings(
        epsilon=_needed(epsilon),
        delta=_DELTA if delta is None else delta,
        relation=check_relation(relation),
        model=model,
        teachers=teachers,
        demonstrations=demonstrations,
        queries=queries,
        mechanism=mechanism,
        threshold=threshold,
        threshold_stddev=threshold_stddev,
        stddev=stddev,
        scale=scale,
        candidates=candidates,
        seed=seed,
    )
    texts = prompt_texts.texts_of(
        data, private, public, label_words, instruction, example, folder, test, needs_public=True
    )
    if preview:
        _preview(texts, settings, json)
        return
    place = prompt_job.new_folder(out, "pate", texts.name, resume)
    outcome = prompt_job.label_and_choose(
        texts,
        settings,
        place,
        ledger=ledger,
        account=account,
        resume=resume,
        votes_folder=votes_folder,
        show=lambda found: None if json else print_lines(f"{texts.name}, model {model}: {found}"),
    )
    if json:
        print_json(to_dict(outcome, seed))
    else:
        print_outcome(outcome, seed)


def _preview(texts: Texts, settings: Settings, json: bool) -> None:
    from hush.prompts.known_models import load_language_model
    from hush.prompts.pate import PromptPATE

    vote, asked = settings.vote()
    found = PromptPATE(load_language_model(settings.model), texts.template, texts.words).preview(
        texts.public[:asked],
        num_teachers=settings.teachers,
        demonstrations=settings.demonstrations,
        vote=vote,
        budget=settings.budget,
    )
    if json:
        print_json(found.to_dict())
    else:
        print_lines(f"{texts.name}, model {settings.model}: {found}", f"vote: {vote}")


def _needed(epsilon: float | None) -> float:
    if epsilon is None:
        raise InvalidValue("--epsilon is needed: it has no default, because it is what the promise says.")
    return epsilon


def to_dict(outcome: Outcome, seed: int | None) -> dict[str, Any]:
    """What is printed with --json: all of it may be published."""
    released, student = outcome.released, outcome.student
    return {
        **released.data_independent.to_dict(),
        "queries": len(released.labels),
        "asked": released.asked,
        "answered": int(released.answered.sum()),
        "student_agreement": student.agreement,
        "demonstrations": [list(pair) for pair in student.demonstrations],
        "beside": [[list(pair) for pair in pairs] for pairs in student.beside],
        "test_accuracy": outcome.test_accuracy,
        "zero_shot_accuracy": outcome.zero_shot_accuracy,
        "zero_shot_by_texts_accuracy": outcome.zero_shot_by_texts_accuracy,
        "preview": outcome.preview.to_dict(),
        "randomness": _source(seed),
        "seconds": round(outcome.seconds, 2),
        "out": str(outcome.folder),
    }


def print_outcome(outcome: Outcome, seed: int | None) -> None:
    """Labels, accuracies, the guarantee, the place of the run."""
    released, student = outcome.released, outcome.student
    answered = int(released.answered.sum())
    print_lines(f"{released.asked:,} of {len(released.labels):,} queries asked, {answered:,} answered", "")
    shown = sum(map(len, (student.demonstrations, *student.beside)))
    accuracies = {
        "zero-shot, calibrated": outcome.zero_shot_accuracy,
        "zero-shot, calibrated by public texts": outcome.zero_shot_by_texts_accuracy,
        f"student prompt, {shown} examples": outcome.test_accuracy,
    }
    rows = [(name, f"{100 * share:.1f} %") for name, share in accuracies.items() if share is not None]
    if rows:
        print_table("on the test texts", ("", "right"), rows, numbers=("right",))
    print_lines(f"proven: {released.data_independent}")
    print_lines(*_seed_note(seed))
    print_lines(f"saved: {outcome.folder} ({outcome.seconds:.1f} s)")


def _seed_note(seed: int | None) -> list[str]:
    told = f"note: drawn from seed {seed}, which anybody can repeat: never release this run."
    return [] if seed is None else [told]


def _source(seed: int | None) -> str:
    return "operating-system entropy" if seed is None else f"seed {seed}"


PerLabel = Annotated[int, _whole("Made-up texts of each label.")]
MaxTokens = Annotated[int, _whole("The longest text, in tokens; each costs.")]
Prompts = Annotated[int, _whole("Prompts that the sampled texts are split over.")]
SamplingProb = Annotated[float | None, typer.Option(metavar="NUMBER", help="Chance that a text is sampled. Needed.")]
PublicChoices = Annotated[int, _whole("Only so many likely tokens can come out.")]


def generate(
    *,
    data: Data = None,
    private: Private = None,
    label_words: Words = None,
    instruction: Instruction = "",
    example: Example = None,
    model: Model = "smollm2",
    epsilon: Epsilon = None,
    delta: Delta = None,
    sampling_prob: SamplingProb = None,
    prompts: Prompts = 10,
    max_tokens: MaxTokens = 25,
    per_label: PerLabel = 1,
    public_choices: PublicChoices = 100,
    seed: Seed = None,
    out: Out = None,
    ledger: LedgerPlace = None,
    account: AccountName = None,
    folder: Folder = None,
    json: options.Json = False,
) -> None:
    """Write made-up examples, token by token, from noisy averages over private texts; they may be published."""
    from hush.cli import prompt_job, prompt_texts
    from hush.privacy import Budget
    from hush.prompts.generate import GenerationPlan

    if sampling_prob is None:
        raise InvalidValue("--sampling-prob is needed: such as 20 over the number of texts of a label.")
    budget = Budget(epsilon=_needed(epsilon), delta=_DELTA if delta is None else delta)
    texts = prompt_texts.texts_of(data, private, None, label_words, instruction, example, folder, 0, needs_public=False)
    plan = GenerationPlan.for_budget(
        budget,
        sampling_prob=sampling_prob,
        num_prompts=prompts,
        max_tokens=max_tokens,
        per_label=per_label,
        public_choices=public_choices,
    )
    if not json:
        print_lines(f"{texts.name}, model {model}: {plan}")
    place = prompt_job.new_folder(out, "generate", texts.name, False)
    found = prompt_job.generate(
        texts, plan, budget, place, model=model, per_label=per_label, ledger=ledger, account=account, seed=seed
    )
    if json:
        print_json(made_to_dict(found, seed))
        return
    print_lines(*(f"{label.strip()}: {text}" for text, label in found.made.demonstrations))
    print_lines("", f"proven: {found.guarantee}", f"saved: {found.folder} ({found.seconds:.1f} s)")
    print_lines(*_seed_note(seed))


def made_to_dict(found: Generation, seed: int | None) -> dict[str, Any]:
    """What is printed with --json: all of it may be published."""
    plan = found.plan
    return {
        **found.guarantee.to_dict(),
        "demonstrations": [list(pair) for pair in found.made.demonstrations],
        "noise_multiplier": plan.noise_multiplier,
        "sampling_prob": plan.sampling_prob,
        "max_tokens": plan.max_tokens,
        "stopped": found.made.stopped,
        "randomness": _source(seed),
        "seconds": round(found.seconds, 2),
        "out": str(found.folder),
    }

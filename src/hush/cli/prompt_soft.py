"""`hush prompt soft`: train a soft prompt privately on a data set of texts, and write it into a small file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hush.cli import options
from hush.cli.output import print_json, print_lines, print_table, round_down, waiting
from hush.errors import InvalidValue

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset

    from hush.ledger import Account, Ledger
    from hush.privacy import Budget
    from hush.prompts import SoftPrompt
    from hush.training import Run, TrainingPlan

Data = Annotated[
    str,
    typer.Option(
        "--data", metavar="NAME", help="sst2, ag-news-sample or trec; for trec, smollm2 needs other --label-words."
    ),
]
Model = Annotated[str, typer.Option("--model", metavar="NAME|DIR", help="smollm2, or a folder of transformers.")]
Classifier = Annotated[
    bool, typer.Option("--classifier", help="The folder holds an encoder: train a classifier's head with the prompt.")
]
LabelWords = Annotated[
    str | None, typer.Option(metavar="WORDS", help="One word a label, of one token, with commas; else the task's.")
]
Epsilon = Annotated[float | None, typer.Option(metavar="NUMBER", help="The most that may be spent. Needed.")]
Delta = Annotated[float | None, typer.Option(metavar="NUMBER", help="Accepted chance of failure. Needed.")]
Length = Annotated[int, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Vectors of the prompt.")]
PerLayer = Annotated[bool, typer.Option("--per-layer", help="Vectors in front of every layer.")]
BatchSize = Annotated[
    int, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Examples in a batch, on average.")
]
Steps = Annotated[int, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Noisy gradients.")]
ClipNorm = Annotated[float | None, typer.Option(metavar="NUMBER", help="Bound on one example's gradient; 0.5.")]
LearningRate = Annotated[float, typer.Option(metavar="NUMBER", help="Of Adam.")]
MostTokens = Annotated[int, typer.Option(parser=options.whole_number, metavar="WHOLE", help="A longer text is cut.")]
Limit = Annotated[
    int | None, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Only the first rows, to try it out.")
]
TestLimit = Annotated[int, typer.Option(parser=options.whole_number, metavar="WHOLE", help="Rows to test on at most.")]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the prompt goes, as safetensors.")]
RunFolder = Annotated[Path | None, typer.Option("--run", metavar="DIR", help="Keep the run here, with checkpoints.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --run, after a crash.")]
Seed = Annotated[int | None, typer.Option(parser=options.whole_number, metavar="WHOLE", help="For tests.")]
LedgerPlace = Annotated[
    str | None,
    typer.Option("--ledger", metavar="PATH_OR_URL", envvar="HUSH_LEDGER", help="A ledger shared by runs."),
]
AccountName = Annotated[str | None, typer.Option("--account", metavar="NAME", help="Its account; the data's name.")]
Folder = Annotated[Path | None, typer.Option("--folder", metavar="DIR", help="Where the data set's files are.")]
_ROWS, _CLIP_NORM = 32, 0.5  # rows in memory at once


def soft(
    *,
    data: Data,
    model: Model,
    classifier: Classifier = False,
    label_words: LabelWords = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    length: Length = 10,
    per_layer: PerLayer = False,
    expected_batch_size: BatchSize = 128,
    steps: Steps = 100,
    clip_norm: ClipNorm = None,
    learning_rate: LearningRate = 0.01,
    most_tokens: MostTokens = 64,
    limit: Limit = None,
    test_limit: TestLimit = 1_000,
    out: Out = Path("prompt.safetensors"),
    run: RunFolder = None,
    resume: Resume = False,
    ledger: LedgerPlace = None,
    account: AccountName = None,
    seed: Seed = None,
    folder: Folder = None,
    json: options.Json = False,
) -> None:
    """Train vectors in front of a frozen model by DP-SGD; the model itself does not change."""
    if epsilon is None or delta is None:
        raise InvalidValue("missing --epsilon and --delta: say what may be spent, such as --epsilon 3 --delta 1e-5.")
    if out.exists():
        raise InvalidValue(f"{out} is there already; choose another --out.")
    from hush import Budget, Rng, TrainingPlan
    from hush.prompts import fit_soft_prompt

    budget = Budget(epsilon=epsilon, delta=delta)
    rng = None if seed is None else Rng.from_seed(seed)
    with waiting("reading the model and the texts"):
        prompt, tokenizer = _prompt(data, model, classifier, label_words, length, per_layer, rng)
        train, test = _texts(data, tokenizer, classifier, most_tokens, limit, test_limit, folder)
    plan = TrainingPlan.for_budget(
        budget,
        sampling_prob=min(1.0, expected_batch_size / len(train)),
        expected_batch_size=expected_batch_size,
        steps=steps,
        clip_norm=_CLIP_NORM if clip_norm is None else clip_norm,
        spare_steps=0 if run is None else max(10, steps // 20),
        physical_batch_size=_ROWS,
    )
    books, entry = _books(ledger, account or data, budget)
    before = _accuracy(prompt, test)
    done = fit_soft_prompt(
        plan,
        prompt,
        train,
        learning_rate=learning_rate,
        ledger=books,
        account=entry,
        folder=run,
        resume=resume,
        rng=rng,
        dataset_name=data,
    )
    prompt.save(out, run=done)
    result = _result(data, model, prompt, plan, done, before, _accuracy(prompt, test))
    if run is not None:
        from hush.cli.prompt_about import describe_soft_prompt

        describe_soft_prompt(run, prompt, result, learning_rate=learning_rate, test_rows=len(test))
    _show({**result, "out": str(out)}, done, json=json)


def _books(target: str | None, name: str, budget: Budget) -> tuple[Ledger | None, Account | None]:
    """A shared ledger's account; a new one gets this run's budget as its cap."""
    if target is None:
        return None, None
    from hush import Ledger

    ledger = Ledger(target)
    is_known = any(account.name == name for account in ledger.accounts())
    return ledger, ledger.account(name, cap=None if is_known else budget)


def _prompt(
    data: str, model: str, classifier: bool, words: str | None, length: int, per_layer: bool, rng: Any
) -> tuple[SoftPrompt, Any]:
    from hush.prompts import SoftPrompt, label_tokens
    from hush.prompts.templates import TASKS

    if data not in TASKS:
        raise InvalidValue(f"--data must be one of {', '.join(TASKS)}; got {data!r}.")
    settings: dict[str, Any] = {"per_layer": per_layer, "rng": rng}
    labels = TASKS[data].labels
    if classifier:
        found, tokenizer = _encoder(model, len(labels))
        base = getattr(found, found.base_model_prefix)
        heads = [
            name for name, part in found.named_children() if part is not base and any(True for _ in part.parameters())
        ]
        return SoftPrompt(found.eval(), length, train_too=heads, **settings), tokenizer
    from hush.prompts.known_models import load_language_model
    from hush.prompts.language_model import TransformersModel

    opened = load_language_model(model)
    if not isinstance(opened, TransformersModel):
        raise InvalidValue("a soft prompt needs the model itself: --model must be smollm2 or a folder, not an address.")
    wanted = list(labels) if words is None else [f" {word.strip()}" for word in words.split(",")]
    if len(wanted) != len(labels):
        raise InvalidValue(f"--label-words must be {len(labels)} words, for {', '.join(labels)}; got {len(wanted)}.")
    try:
        tokens = label_tokens(opened.tokenizer, wanted)
    except InvalidValue as error:
        others = f"Give {len(labels)} by --label-words, or an encoder with --classifier."
        raise InvalidValue(f"{error} {others}") from None
    return SoftPrompt(opened.model, length, label_words=tokens, **settings), opened.tokenizer


def _encoder(folder: str, labels: int) -> tuple[Any, Any]:
    from hush.errors import DataMissing, MissingExtra

    try:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer
    except ImportError:
        raise MissingExtra("transformers is not installed; run: pip install 'hush[text]'") from None
    if not (Path(folder) / "config.json").is_file():
        raise DataMissing(f"{folder} is no folder of a transformers model.")
    found = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=labels)
    return found, AutoTokenizer.from_pretrained(folder)


def _texts(
    name: str, tokenizer: Any, classifier: bool, most: int, limit: int | None, test_limit: int, folder: Path | None
) -> tuple[TensorDataset, TensorDataset]:
    from hush import data
    from hush.prompts.templates import TASKS

    template = TASKS[name].template

    def rows(part: str, number: int | None) -> TensorDataset:
        found = data.load_labelled_texts(name, part, folder=folder)
        texts = list(found.texts[:number])
        shown = texts if classifier else [template.instruction + template.question(text) for text in texts]
        return _tensors(shown, found.labels[:number], tokenizer, most, classifier)

    return rows("train", limit), rows("dev" if name == "sst2" else "test", test_limit)


def _tensors(texts: list[str], labels: Any, tokenizer: Any, most: int, classifier: bool) -> TensorDataset:
    """Right-padded tokens. A question ends in the words before its label, so it is cut in front."""
    import torch
    from torch.utils.data import TensorDataset

    found = [tokenizer(text)["input_ids"] for text in texts]
    ids = [row[:most] if classifier else row[-most:] for row in found]
    width = max(map(len, ids))
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    pad = tokenizer.pad_token_id or 0
    tokens = torch.tensor([row + [pad] * (width - len(row)) for row in ids])
    return TensorDataset(tokens, mask, torch.tensor(labels))


def _accuracy(prompt: SoftPrompt, rows: TensorDataset) -> float:
    import torch

    right = 0
    with torch.no_grad():
        for ids, mask, labels in zip(*(part.split(_ROWS) for part in rows.tensors), strict=True):
            longest = int(mask.sum(1).max())
            right += int((prompt(ids[:, :longest], mask[:, :longest]).logits.argmax(1) == labels).sum())
    return right / len(rows)


def _result(
    data: str, model: str, prompt: SoftPrompt, plan: TrainingPlan, run: Run, before: float, after: float
) -> dict[str, Any]:
    return {
        "data": data,
        "model": model,
        "trained_parameters": sum(value.numel() for value in prompt.parameters() if value.requires_grad),
        "accuracy_before": before,
        "accuracy": after,
        "noise_multiplier": plan.noise_multiplier,
        "sampling_prob": plan.sampling_prob,
        "expected_batch_size": plan.expected_batch_size,
        "steps": run.steps,
        "clip_norm": plan.clip_norm,
        **run.guarantee.to_dict(),
        "notes": list(run.notes),
    }


def _show(result: dict[str, Any], run: Run, *, json: bool) -> None:
    if json:
        print_json(result)
        return
    rows = [
        ("accuracy with the first, random vectors", round_down(result["accuracy_before"], 4)),
        ("accuracy with the trained ones", round_down(result["accuracy"], 4)),
        ("trained numbers", f"{result['trained_parameters']:,}"),
        ("steps", f"{result['steps']:,}"),
    ]
    print_table(f"{result['data']}, {result['model']}: a soft prompt", ("what", "value"), rows, numbers=("value",))
    print_lines(f"proven: {run.guarantee}", *run.notes, f"written: {result['out']}")

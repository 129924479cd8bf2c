"""A secret in a language model: exposure against repetitions, with and without privacy; and extraction.

    HUSH_DATA=... python -m benchmarks.attacks.memorisation [epochs]

A character model is trained on a part of Shakespeare's plays in which random six-digit numbers were planted, each once
or several times. One example is 64 characters; the guarantee is for one example, so that a number written 32 times is
protected 32 times less. Each model's numbers are kept as soon as they are there; a second call goes on from them.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import torch
from torch.utils.data import TensorDataset

from benchmarks.attacks.language_model import CharacterModel, Planted, loss_fn, planted
from benchmarks.attacks.record import PICTURES, keep, kept
from hush import Budget, Rng, TrainingPlan, attacks, data, fit

SEED, DELTA = 3, 1e-5
REPETITIONS, EACH, REFERENCES = (1, 2, 4, 8, 16, 32), 6, 16_384
EXAMPLES, ROWS = 3_000, 32


def trained(text: Planted, epsilon: float | None, epochs: float) -> tuple[CharacterModel, float]:
    torch.manual_seed(SEED)
    model = CharacterModel(len(text.alphabet))
    dataset = TensorDataset(text.examples)
    start = time.process_time()
    if epsilon is None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
        stream = torch.Generator().manual_seed(SEED)
        for _ in range(int(epochs)):
            for rows in torch.randperm(len(text.examples), generator=stream).split(ROWS):
                optimizer.zero_grad()
                loss_fn(model, text.examples[rows]).mean().backward()
                optimizer.step()
    else:
        size = 256
        plan = TrainingPlan.for_budget(
            Budget(epsilon=epsilon, delta=DELTA),
            sampling_prob=size / len(text.examples),
            expected_batch_size=size,
            epochs=epochs,
            clip_norm=0.5,
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
        fit(plan, model, dataset, loss_fn=loss_fn, optimizer=optimizer, progress=False, rng=Rng.from_seed(SEED))
    return model, time.process_time() - start


def measured(text: Planted, test: torch.Tensor, epsilon: float | None, epochs: float) -> dict[str, Any]:
    model, seconds = trained(text, epsilon, epochs)
    with torch.no_grad():
        loss = float(torch.cat([loss_fn(model, part) for part in test.split(500)]).mean())
    found = attacks.exposure(model, text.canaries, text.references, prefix_length=text.prefix_length)
    far = attacks.exposure(
        model, text.canaries, text.references, prefix_length=text.prefix_length, method="extrapolate"
    )
    prefixes = attacks.extract_from_prefixes(model, text.canaries, prefix_length=text.prefix_length + 2)
    rows = []
    for count in REPETITIONS:
        chosen = (text.repetitions == count).numpy()
        rows.append(
            {
                "repetitions": count,
                "exposure": [round(float(value), 3) for value in found.values[chosen]],
                "extrapolated": [round(float(value), 3) for value in far.values[chosen]],
                "completed_from_two_digits": int(prefixes.matches[chosen].sum()),
            }
        )
    word = "infinity" if epsilon is None else epsilon
    result = {"epsilon": word, "delta": DELTA, "test_loss": round(loss, 4), "limit": found.limit, "rows": rows}
    result |= {"fit_p_value": far.fit_p_value, "cpu_seconds": round(seconds, 1), "epochs": epochs}
    print(result, flush=True)
    return result


def draw(results: list[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.4), dpi=110, layout="constrained")
    axes: Any = figure.add_subplot()
    for result, colour in zip(results, ("#cc4125", "#b45f06", "#0b5394"), strict=False):
        label = "without privacy" if result["epsilon"] == "infinity" else f"epsilon {result['epsilon']:g}"
        medians = [statistics.median(row["exposure"]) for row in result["rows"]]
        axes.plot(REPETITIONS, medians, color=colour, marker="o", label=f"{label} (median)")
        for row in result["rows"]:
            axes.scatter([row["repetitions"]] * len(row["exposure"]), row["exposure"], color=colour, s=8, alpha=0.5)
    axes.axhline(results[0]["limit"], color="#777777", linestyle=":", linewidth=1)
    axes.text(REPETITIONS[0], results[0]["limit"] + 0.25, "the most that 16,384 references can show", fontsize=8)
    axes.set(xscale="log", xlabel="times that the number stands in the training text", ylabel="exposure (bits)")
    axes.set_ylim(-0.5, results[0]["limit"] + 1.2)
    axes.set_xticks(REPETITIONS, [str(count) for count in REPETITIONS])
    axes.minorticks_off()
    axes.set_title("A secret number in a language model", loc="left", fontweight="bold")
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.legend(fontsize=8)
    figure.savefig(PICTURES / "exposure.png")


def main(epochs: str = "12") -> None:
    whole = data.load_text("tinyshakespeare")
    text = planted(whole, examples=EXAMPLES, repetitions=REPETITIONS, each=EACH, references=REFERENCES, seed=SEED)
    place = {letter: number for number, letter in enumerate(text.alphabet)}
    rest = [place.get(letter, 0) for letter in whole[EXAMPLES * 64 : EXAMPLES * 64 + 64_000]]
    test = torch.tensor(rest).view(-1, 64)
    results = [row for row in kept("memorisation", []) if row["epochs"] == float(epochs)]  # an earlier run's
    for epsilon in (None, 8.0, 1.0):
        if ("infinity" if epsilon is None else epsilon) not in [row["epsilon"] for row in results]:
            results.append(measured(text, test, epsilon, float(epochs)))
            keep("memorisation", results)
            draw(results)


if __name__ == "__main__":
    main(*sys.argv[1:])

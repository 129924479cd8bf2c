"""How PromptPATE's teachers are calibrated, and which answers its student shows: fixed on public rows of TREC.

    python -m benchmarks.prompts.teacher_choice [--teachers 16]

Needs HUSH_DATA and SmolLM2 (docs/start/install.md). A few teachers of private rows are asked about two sets of 32 other
public rows than the real run asks about, and their answers are compared with the labels of these: by how teachers are
calibrated, and for the noisy labels that 300 of them would give, by how likely zero-shot finds a label. No test row is
looked at. What was chosen by it is not in any epsilon. Results go to prompts_teacher_choice.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy
import torch

from benchmarks.prompts.pate import parts
from hush import Rng
from hush.pate.shards import deal, new_key
from hush.prompts.demonstrations import in_turn, shown_rows
from hush.prompts.known_models import load_language_model
from hush.prompts.pate import PromptPATE
from hush.prompts.scoring import normalised, set_right
from hush.prompts.templates import TASKS

RESULTS = Path(__file__).resolve().parents[1] / "results" / "prompts_teacher_choice.json"
REAL, SET, SETS, TEACHERS, SHOWN, NOISE = 32, 32, 2, 300, 16, 29.845
Scores = numpy.ndarray


def asked(teachers: int) -> tuple[Scores, Scores, Scores, Scores]:
    """Raw scores (teachers, texts, labels), those of texts without content, zero-shot's by all public texts, truth."""
    (texts, labels), (public, truth), _ = parts("trec", 10**6, 1)
    tried, task = slice(REAL, REAL + SET * SETS), TASKS["trec"]
    pate = PromptPATE(load_language_model("smollm2"), task.template, task.labels)
    key = new_key(Rng.from_seed(5))
    shards = deal(len(labels), num_teachers=TEACHERS, key=key, groups=None, relation="add_remove").all_rows()
    raw = PromptPATE(pate.language_model, task.template, task.labels, content_free=())
    found = []
    for teacher in range(teachers):
        rows = shown_rows(shards[teacher], labels, SHOWN, key, teacher).tolist()
        prompt = raw.prompt([(texts[row], task.labels[labels[row]]) for row in rows])
        found.append(prompt.scores([*public[tried], *pate.content_free]))
        print("teacher", teacher, flush=True)
    zero_shot = raw.prompt().scores(public)
    zero_shot = normalised(zero_shot - zero_shot.mean(axis=0))[tried]
    table = numpy.array(found)
    return table[:, : SET * SETS], table[:, SET * SETS :], zero_shot, truth[tried]


def ways(scores: Scores, empty: Scores) -> dict[str, Scores]:
    """One teacher's scores of one set, by calibration."""
    return {
        "raw": scores,
        "by texts without content": scores - numpy.log(numpy.exp(empty).mean(axis=0)),
        "by the texts asked about": scores - scores.mean(axis=0),
        "by both": set_right(scores, empty),
    }


def measure(teachers: int, draws: int = 400) -> dict[str, Any]:
    scores, empty, zero_shot, truth = asked(teachers)
    result: dict[str, Any] = {"teachers": teachers, "texts": len(truth), "as_if_teachers": TEACHERS, "noise": NOISE}
    for way in ways(scores[0], empty[0]):
        votes = numpy.concatenate(
            [
                [ways(one[part], none)[way].argmax(axis=1) for one, none in zip(scores, empty, strict=True)]
                for part in numpy.split(numpy.arange(len(truth)), SETS)
            ],
            axis=1,
        )
        counts = numpy.stack([(votes == label).sum(axis=0) for label in range(scores.shape[2])], axis=1)
        result[way] = {
            "one_teacher": share(votes == truth),
            "vote_without_noise": share(counts.argmax(axis=1) == truth),
            **noisy(counts * (TEACHERS / teachers), zero_shot, truth, draws),
        }
    return result


def noisy(counts: Scores, zero_shot: Scores, truth: Scores, draws: int) -> dict[str, float]:
    """Of the labels that leave: how many are right, of all and of those that a student of 8 or 16 shows."""
    stream, right = numpy.random.default_rng(0), dict[str, list[float]]()
    for draw in range(draws):
        rows = numpy.arange(SET) + SET * (draw % SETS)
        labels = (counts[rows] + NOISE * stream.normal(size=counts[rows].shape)).argmax(axis=1)
        is_right, support = labels == truth[rows], zero_shot[rows, labels]
        right.setdefault("labels", []).append(is_right.mean())
        for name, order in (("random", stream.permutation(SET)), ("likely", numpy.argsort(-support))):
            shown = order[in_turn(labels[order])]
            for size in (8, 16):
                right.setdefault(f"{size}_{name}", []).append(is_right[shown[:size]].mean())
    return {name: share(numpy.array(values)) for name, values in right.items()}


def share(found: Scores) -> float:
    return round(100 * float(found.mean()), 1)


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teachers", type=int, default=16)
    given = parser.parse_args()
    found = measure(given.teachers)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

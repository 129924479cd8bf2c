"""Gradient norms and the clipped fraction: kept by the training, shown on request, and right."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from small_runs import loss_fn

import hush
from hush import report


def test_a_step_reports_the_norms_that_it_clipped() -> None:
    torch.manual_seed(0)
    model, batch = torch.nn.Linear(5, 2), (3 * torch.randn(64, 5), torch.arange(64) % 2)
    norms = hush.clipped_sum(model, loss_fn, batch, clip_norm=2.0).norms
    plan = hush.TrainingPlan(
        noise_multiplier=1.0, sampling_prob=0.1, expected_batch_size=64, steps=3, clip_norm=2.0, delta=1e-5
    )
    found = hush.PrivateGradients(model, plan).backward(loss_fn, batch)
    assert found.norm is not None
    assert abs(found.norm - float(norms.mean())) < 1e-5
    assert found.clipped == float((norms > 2.0).double().mean())
    assert 0 < found.clipped < 1


def test_norms_are_kept_apart_and_shown_on_request(trained: Path) -> None:
    run = hush.Run.load(trained)
    assert len(run.history.norms) == len(run.history.clipped) == 40
    public = (trained / "run.json").read_text(encoding="utf-8") + json.dumps(report.read(trained))
    assert all(str(value) not in public for value in run.history.norms[:5])
    asked = report.read(trained, include_private=True)["not_private"]["plots"]
    assert [plot["key"] for plot in asked] == ["loss", "norms", "clipped"]
    assert asked[1]["lines"][0]["y"] == run.history.norms

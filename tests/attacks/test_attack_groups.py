"""The report by group against a loop over single rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hush.attacks import group_report
from hush.errors import InvalidValue


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), y, reduction="none")


def test_rates_are_those_of_single_rows() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    x, y = torch.randn(90, 4) * torch.linspace(0.1, 3, 90)[:, None], torch.randint(0, 3, (90,))
    norms, right = [], []
    for row, label in zip(x, y, strict=True):
        model.zero_grad()
        loss_fn(model, row[None], label[None]).sum().backward()
        norms.append(torch.cat([value.grad.flatten() for value in model.parameters()]).norm().item())  # type: ignore[union-attr]
        right.append(int(model(row[None]).argmax()) == int(label))
    small = np.arange(90) < 30
    clip = float(np.median(norms))
    report = group_report(model, loss_fn, x, y, {"small": small, "large": ~small}, clip_norm=clip, rows_at_once=40)
    for group, chosen in zip(report.groups, (small, ~small), strict=True):
        assert group.accuracy.count == int(np.array(right)[chosen].sum())
        assert abs(group.clipped.count - int((np.array(norms)[chosen] > clip).sum())) <= 1  # one norm is the limit
        assert group.median_gradient_norm == pytest.approx(np.median(np.array(norms)[chosen]), rel=1e-4)
    assert report.groups[0].clipped.value < report.groups[1].clipped.value
    assert "NOT private" in report.to_dict()["warning"]
    assert report.accuracy_gap >= 0


@pytest.mark.parametrize("chosen", [np.zeros(5, bool), np.ones(4, bool), np.ones(5)])
def test_bad_groups_are_refused(chosen: np.ndarray) -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(InvalidValue, match="group 'few'"):
        group_report(
            model, loss_fn, torch.zeros(5, 2), torch.zeros(5, dtype=torch.int64), {"few": chosen}, clip_norm=1.0
        )

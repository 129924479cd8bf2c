"""Python functions of torch that the tape follows from outside give the gradients of single examples."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hush.gradients import clipped_sum

COUNT, CLASSES = 6, 6  # as many as examples: a layout that was guessed by sizes would be wrong
LABELS = torch.arange(COUNT) % 3
SOFT = torch.softmax(torch.randn(COUNT, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), 1)
WEIGHTS = torch.linspace(0.5, 2.0, CLASSES, dtype=torch.float64)

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu, "relu in place": lambda x: F.relu(x, inplace=True), "leaky_relu": F.leaky_relu, "elu": F.elu,
    "silu": F.silu, "mish": F.mish, "hardtanh": F.hardtanh, "hardswish": F.hardswish, "selu": F.selu, "celu": F.celu,
    "sigmoid": F.sigmoid, "tanh": F.tanh, "power": lambda x: 2.0**x, "from": lambda x: 1.0 - x,
    "of a turned batch": lambda x: F.relu(x.t()).t(),
}  # fmt: skip
LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {  # of outputs, classes and probabilities
    "cross_entropy": lambda z, y, _: F.cross_entropy(z, y, reduction="none"),
    "of probabilities": lambda z, _, p: F.cross_entropy(z, p, reduction="none"),
    "weighted": lambda z, y, _: F.cross_entropy(z, y, WEIGHTS, reduction="none", label_smoothing=0.1),
    "of places": lambda z, y, _: F.cross_entropy(z.view(-1, 3, 2), y[:, None].expand(-1, 2), reduction="none").sum(1),
    "mse": lambda z, _, p: F.mse_loss(z, p, reduction="none").sum(1),
    "mse to a constant": lambda z, _, p: F.mse_loss(z, WEIGHTS.expand(len(p), -1), reduction="none").sum(1),
    "kl_div": lambda z, _, p: F.kl_div(F.log_softmax(z, 1), p, reduction="none").sum(1),
    "bce": lambda z, _, p: F.binary_cross_entropy_with_logits(z, p, pos_weight=WEIGHTS, reduction="none").mean(1),
    "huber": lambda z, _, p: F.huber_loss(z, p, reduction="none").sum(1),
    "smooth_l1": lambda z, _, p: F.smooth_l1_loss(z, p, reduction="none").sum(1),
}


def check(loss: Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, CLASSES)).double()
    batch = torch.randn(COUNT, 4, dtype=torch.float64), LABELS, SOFT
    found, truth = (clipped_sum(model, loss, batch, 0.5, method=method) for method in ("tape", "looped"))
    assert torch.allclose(found.norms, truth.norms, rtol=1e-10)
    for name, value in truth.gradients.items():
        assert torch.allclose(found.gradients[name], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        first, second = model.children()
        return second(ACTIVATIONS[name](first(x))).square().sum(1)

    check(loss)


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    check(lambda model, x, y, p: LOSSES[name](model(x), y, p))

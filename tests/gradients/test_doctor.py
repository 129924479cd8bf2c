"""What the doctor says of a model: the rule, the refusal and the fix of each parameter, what mixes, and the cost."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import cycle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hush.gradients import doctor


def cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, reduction="none")


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(8, 12, generator=generator), torch.randint(0, 3, (8,), generator=generator)


class Odd(nn.Module):
    """A weight on the wrong side of a product."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.odd = nn.Linear(12, 3), nn.Parameter(torch.ones(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return (self.odd @ self.layer(x).T).T


class Own(torch.autograd.Function):
    """A product that the tape does not see."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, odd: Tensor) -> Tensor:
        ctx.save_for_backward(x, odd)
        return x @ odd

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, odd = ctx.saved_tensors
        return gradients[0] @ odd.T, x.T @ gradients[0]


class Unseen(Odd):
    def forward(self, x: Tensor) -> Tensor:
        return Own.apply(self.layer(x), self.odd)


class Twice(Odd):
    """Seen by the tape once, and once not."""

    def forward(self, x: Tensor) -> Tensor:
        return Own.apply(self.layer(x), self.odd) @ self.odd


class Hooked(Odd):
    def __init__(self) -> None:
        super().__init__()
        self.odd.register_hook(lambda gradient: 2 * gradient)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) @ self.odd


class Inner(Odd):
    """A gradient inside the model."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x) @ self.odd
        slope = torch.autograd.grad(hidden.sum(), self.odd, create_graph=True)[0]
        return hidden + 0 * slope.sum()


REFUSED: list[tuple[type[Odd], str, str]] = [
    (Odd, "no rule for matmul", "functions that have a rule"),
    (Unseen, "a function that the tape does not see", "with torch's own"),
    (Twice, "a function that the tape does not see", "with torch's own"),
    (Hooked, "a hook on a parameter's gradient", "remove the hook"),
    (Inner, "a backward pass inside the model", "take the inner backward pass out"),
]


@pytest.mark.filterwarnings("ignore:.* is not served by vectorized")
@pytest.mark.parametrize(("make", "why", "fix"), REFUSED, ids=[row[0].__name__ for row in REFUSED])
def test_rule_refusal_and_fix_of_each_parameter_are_named(make: type[Odd], why: str, fix: str) -> None:
    with pytest.warns(UserWarning, match="odd"):
        found = doctor(make(), cross_entropy, batch())
    rows = {finding.parameter: finding for finding in found.findings}
    assert why in rows["odd"].refused
    assert fix in rows["odd"].fix
    assert f"{found.method} serves it" in rows["odd"].fix
    if make is not Inner:  # which ends the tape's pass
        assert "linear" in rows["layer.weight"].rule
        assert not rows["layer.weight"].refused
        assert not rows["layer.weight"].fix
    assert found.is_fine
    assert not found.fix
    assert found.method != "tape"
    assert found.time_ratio > 0


def shared(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(model, x, y) / (y > 0).sum()


class Learning(Odd):
    """Its buffer keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(12))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.detach().mean(0))
        return self.layer(x) @ self.odd


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


MIXING: list[tuple[Callable[[], nn.Module], Callable[..., Tensor], str, str]] = [
    (normalised, cross_entropy, "1 (BatchNorm1d)", "use GroupNorm"),
    (Learning, cross_entropy, "buffer seen", "put that module into eval mode"),
    (lambda: nn.Linear(12, 3), shared, "loss_fn", "compute each example's loss from that example alone"),
]


@pytest.mark.parametrize(("make", "loss_fn", "what", "fix"), MIXING, ids=["layer", "buffer", "loss"])
def test_the_fix_of_what_mixes_is_named(
    make: Callable[[], nn.Module], loss_fn: Callable[..., Tensor], what: str, fix: str
) -> None:
    found = doctor(make(), loss_fn, batch())
    assert not found.is_fine
    assert what in found.not_isolated
    assert found.fix.startswith(fix)
    assert found.not_isolated.endswith(f"; {found.fix}")
    assert all(finding.fix == (found.fix if finding.refused else "") for finding in found.findings)


def test_the_cost_is_that_of_the_quickest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    module, now = import_module("hush.gradients.doctor"), [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])

    def takes(*seconds: float) -> Callable[[], None]:
        following = cycle(seconds)
        return lambda: now.append(now.pop() + next(following))

    assert module._ratio(takes(2.0, 90.0), takes(70.0, 80.0, 1.0)) == 2.0

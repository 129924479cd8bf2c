"""Checkpoints, dropout, and precision below double: what is promised there, with the tolerance stated."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from gradient_models import BY_NAME, CLASSES, FEW, WIDTH, Checkpointed, Example, cross_entropy
from naive_loop import METHODS, assert_equal, middle, naive
from torch import Tensor, nn

from hush.errors import InvalidValue, NoRule
from hush.gradients import ClippedSum, clipped_sum

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # said by vmap
NO_TF32 = pytest.mark.filterwarnings("ignore:TF32 acceleration:UserWarning")  # said by the switch for oneDNN


def names(example: Example) -> str:
    return example.name


class InnerCheckpoint(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.rest = nn.Linear(WIDTH, WIDTH), Checkpointed(reentrant=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.first(x))


def test_reentrant_checkpoints_are_refused_aloud_and_leave_no_gradient() -> None:
    """Their inner backward pass would write into `.grad`, and torch refuses them with `autograd.grad`."""
    model, batch = InnerCheckpoint().double(), BY_NAME["mlp"].batch()
    for method in METHODS:
        with pytest.raises(
            (InvalidValue, NoRule, RuntimeError), match=r"use_reentrant|setup_context|CheckpointFunction"
        ):
            clipped_sum(model, cross_entropy, batch, 1.0, method=method)
        assert all(value.grad is None for value in model.parameters())


@pytest.mark.parametrize("method", METHODS)
def test_dropout_draws_for_each_example(method: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.Dropout(0.5), nn.Linear(64, CLASSES)).double()
    x = torch.randn(1, WIDTH, dtype=torch.float64).expand(6, -1).clone()
    got = clipped_sum(model, cross_entropy, (x, torch.zeros(6, dtype=torch.long)), 1.0, method=method)
    assert got.gradients["0.weight"].shape == (64, WIDTH)
    assert torch.isfinite(got.norms).all()
    assert len(set(got.norms.tolist())) == 6  # equal examples, different masks


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("example", FEW, ids=names)
def test_single_precision(example: Example, method: str) -> None:
    """Within 1e-4 of double precision, in the model's own precision."""
    model, (x, y) = example.model(), example.batch()
    truth = naive(model, cross_entropy, (x, y))
    got = clipped_sum(
        model.float(), cross_entropy, (x.float() if x.is_floating_point() else x, y), middle(truth), method=method
    )
    assert all(value.dtype == torch.float32 for value in got.gradients.values())
    double = {name: value.double() for name, value in got.gradients.items()}
    assert_equal(ClippedSum(double, got.norms.double(), 0, method), truth.clipped(middle(truth)), truth.norms, 1e-4)


@pytest.fixture
def _plain_kernels() -> Iterator[None]:
    """Some processors announce bfloat16 units that the system does not let programs use."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


def in_bfloat16(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(x)
    return F.cross_entropy(logits.float(), y, reduction="none")


@NO_TF32
@pytest.mark.usefixtures("_plain_kernels")
@pytest.mark.parametrize(("example", "method"), [
    pytest.param(example, method, id=f"{example.name}, {method}",
                )
    for example in FEW for method in METHODS
])  # fmt: skip
def test_bfloat16_autocast(example: Example, method: str) -> None:
    """Within 5 % of the loop in bfloat16 (8 bits of precision); gradients come in the parameters' precision."""
    model, (x, y) = example.model().float(), example.batch()
    batch = (x.float() if x.is_floating_point() else x, y)
    truth = naive(model, in_bfloat16, batch)
    got = clipped_sum(model, in_bfloat16, batch, middle(truth), method=method)
    assert all(value.dtype == torch.float32 for value in got.gradients.values())
    assert_equal(got, truth.clipped(middle(truth)), truth.norms, 5e-2)


@NO_TF32
@pytest.mark.usefixtures("_plain_kernels")
@pytest.mark.parametrize(
    "method",
    [
        "tape",
        "vectorized",
        "looped",
    ],
)
def test_in_bfloat16_no_example_gives_more_than_clip_norm(method: str) -> None:
    """The norm must be that of what is added: to a part in a thousand, although each product is rounded to 1/256."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    for seed in range(8):
        x = torch.randn(1, 5, 64, generator=torch.Generator().manual_seed(seed)).repeat(2, 1, 1)

        def loss(model: nn.Module, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return model(x).float().square().mean((1, 2))

        got = clipped_sum(model, loss, (x,), 1e-3, method=method)
        size = math.sqrt(sum(float(value.double().square().sum()) for value in got.gradients.values()))
        assert size <= 2 * 1e-3 * 1.001


@pytest.mark.parametrize(
    "method",
    [
        "tape",
        "vectorized",
        "looped",
    ],
)
def test_cancelling_tokens_cannot_hide_a_gradient(method: str) -> None:
    """Two tokens of size 1e3 whose gradients nearly cancel; what remains must be clipped like any other gradient."""
    torch.manual_seed(0)
    model, signs, read = nn.Linear(256, 256, bias=False), torch.tensor([1.0, -1.0]), torch.randn(256)

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        return ((model(x) @ read) * signs).sum(1)

    for _ in range(8):
        token = torch.randn(256) * 1e3
        x = torch.stack([token, token + 0.1 * torch.randn(256)])[None].repeat(2, 1, 1)
        got = clipped_sum(model, loss, (x,), 1.0, method=method)
        assert got.nonfinite == 0
        assert float(got.gradients["weight"].double().norm()) <= 2 * 1.01

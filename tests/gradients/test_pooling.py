"""Max pooling in another layout gives what torch gives, bit by bit: maxima, places and gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from hush.gradients import clipped_sum, pooling, tape

SHAPES = ((3, 16, 9, 7), (1, 16, 4, 4), (70, 33, 13, 14), (5, 20, 6, 6))
SETTINGS = [
    {"kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil}
    for kernel, stride, padding, dilation, ceil in itertools.product(
        (2, (3, 2), [3]), (1, (2, 1), ()), (0, 1), (1, (1, 2)), (False, True)
    )
    if not (dilation != 1 and kernel != 2)
]


def maps(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Few different values, so that most maxima are met twice; NaN, both infinities and both zeros among them."""
    stream = torch.Generator().manual_seed(1)
    values = torch.randint(-3, 3, shape, generator=stream).to(dtype)
    odd = torch.rand(shape, generator=stream)
    for share, value in ((0.02, torch.nan), (0.04, torch.inf), (0.3, -torch.inf), (0.35, -0.0)):
        values[(odd < share) & (odd > share - 0.02)] = value
    return values.requires_grad_()


def same(one: Tensor, other: Tensor) -> bool:
    """Equal numbers, NaN where the other has NaN, and zeros of the same sign."""
    return torch.equal(one.isnan(), other.isnan()) and (
        torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0)) and torch.equal(one.signbit(), other.signbit())
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_pooling_is_torchs_own(shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooling, "_PIECE", 4000)  # so that some have a last piece of another size
    inputs = maps(shape, dtype)
    assert pooling._is_quicker(inputs)
    for settings in SETTINGS:
        found, truth = pooling.max_pool2d(inputs, **settings), torch.max_pool2d(inputs, **settings)
        assert same(found, truth), settings
        assert found.is_contiguous()
        upstream = torch.rand(truth.shape, generator=torch.Generator().manual_seed(2), dtype=dtype)
        (mine,), (theirs,) = (torch.autograd.grad(value, inputs, upstream) for value in (found, truth))
        assert torch.equal(mine, theirs), settings  # which element of equal ones gets the gradient shows here


def test_pooling_twice_differentiated() -> None:
    inputs = torch.randn(2, 16, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: pooling.max_pool2d(x.square(), 2), inputs)


@pytest.mark.parametrize(
    "inputs",
    [
        torch.randn(4, 3, 8, 8),  # few channels
        torch.randn(16, 8, 8),  # one picture
        torch.randn(4, 16, 8, 8).to(memory_format=torch.channels_last),  # quick already
        torch.randn(4, 16, 8, 8, dtype=torch.bfloat16),
        torch.zeros(0, 16, 8, 8),
        nn.Parameter(torch.randn(4, 16, 8, 8)),
    ],
)
def test_other_tensors_go_to_torch(inputs: Tensor) -> None:
    assert not pooling._is_quicker(inputs)
    assert torch.equal(pooling.max_pool2d(inputs, 2), torch.max_pool2d(inputs, 2))
    found, truth = (pool(inputs, 2, return_indices=True) for pool in (pooling.max_pool2d, nn.functional.max_pool2d))
    assert all(map(torch.equal, found, truth))


def test_wrong_settings_are_torchs_errors() -> None:
    inputs = torch.randn(2, 16, 4, 4)
    for settings in ({"kernel_size": 9}, {"kernel_size": 2, "padding": 3}, {"kernel_size": 2, "stride": 0}):
        with pytest.raises(RuntimeError):
            pooling.max_pool2d(inputs, **settings)


def test_the_tape_pools_so_and_clips_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 4),
    )  # fmt: skip
    batch = torch.randn(9, 1, 9, 9), torch.arange(9) % 4

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(x), y, reduction="none")

    def found() -> dict[str, Tensor]:
        total = clipped_sum(model, loss_fn, batch, clip_norm=0.7, method="tape")
        assert total.method == "tape"
        return total.gradients

    times = []
    pooled = pooling._pooled
    monkeypatch.setattr(pooling, "_pooled", lambda *a: times.append(1) or pooled(*a))
    quick = found()
    assert len(times) == 2
    monkeypatch.setattr(tape, "_QUICKER", {})
    times.clear()
    plain = found()
    assert not times
    for name, value in plain.items():
        torch.testing.assert_close(quick[name], value, rtol=1e-6, atol=1e-7)

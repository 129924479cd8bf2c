"""Every way to a convolution's norms and sums gives what torch's own gradient of one example at a time gives."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import Tensor

from hush.gradients import pixel_pairs
from hush.gradients.correlation import Correlation, Settings, Way, grouped, windows
from hush.gradients.shared import Shared


class Shifted(Correlation):
    """Pairs without a matrix, as of larger maps."""

    def _is_small(self) -> bool:
        return False


WAYS: dict[str, Way] = {
    "grouped": grouped, "windows": windows, "pairs": Correlation, "shifted": Shifted,
    "pieces": partial(Correlation, in_pieces=True),
}  # fmt: skip
SIZES = st.tuples(st.integers(1, 9), st.integers(1, 9))
PADDINGS = st.one_of(st.just("same"), st.tuples(st.integers(0, 3), st.integers(0, 3)))


def one_by_one(inputs: Tensor, outputs: Tensor, weight: Tensor, stride: tuple[int, int], padding: object) -> Tensor:
    """Each example's gradient, by autograd."""
    rows = []
    for x, g in zip(inputs, outputs, strict=True):
        own = weight.clone().requires_grad_()
        rows.append(torch.autograd.grad(F.conv2d(x[None], own, None, stride, padding), own, g[None])[0])  # type: ignore[arg-type]
    return torch.stack(rows)


@given(
    pixels=SIZES,
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=PADDINGS,
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
@example(pixels=(7, 7), kernel=(3, 3), stride=(2, 2), padding=(1, 1), channels=(3, 2))
@example(pixels=(2, 2), kernel=(1, 1), stride=(1, 1), padding=(2, 1), channels=(1, 1))  # some outputs see zeros alone
@example(pixels=(1, 1), kernel=(5, 1), stride=(4, 3), padding=(2, 0), channels=(1, 2))
def test_norms_and_weighted_sums_are_those_of_one_example_at_a_time(
    pixels: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: str | tuple[int, int],
    channels: tuple[int, int],
) -> None:
    assume(
        padding != "same" or (stride == (1, 1) and all(size % 2 for size in kernel))
    )  # as torch asks, without copies
    sides = (0, 0) if isinstance(padding, str) else padding
    assume(padding == "same" or all(p + 2 * s >= k for p, s, k in zip(pixels, sides, kernel, strict=True)))
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(4, channels[0], *pixels, dtype=torch.float64, generator=draws)
    weight = torch.randn(channels[1], channels[0], *kernel, dtype=torch.float64, generator=draws)
    made = F.conv2d(inputs, weight, None, stride, padding)
    outputs = torch.randn(made.shape, dtype=torch.float64, generator=draws)
    truth = one_by_one(inputs, outputs, weight, stride, padding)
    settings = Settings.of(weight, 2, transposed=False, stride=stride, padding=padding, dilation=1, groups=1)
    factors = torch.tensor([0.5, 0.0, 1.0, 0.25], dtype=torch.float64)
    for name, way in WAYS.items():
        squares, terms = way(inputs, outputs, settings).measure(Shared())
        assert torch.allclose(squares, truth.flatten(1).square().sum(1), rtol=1e-9, atol=1e-9), name
        assert terms is None or torch.allclose(terms, _sizes(inputs) * _sizes(outputs)), name
        got = way(inputs, outputs.clone(), settings).weighted(factors)
        assert torch.allclose(got, torch.einsum("b,b...->...", factors, truth), rtol=1e-9, atol=1e-9), name


def _sizes(maps: Tensor) -> Tensor:
    return maps.flatten(1).square().sum(1)


def test_larger_maps_have_no_matrix() -> None:
    assert pixel_pairs.is_small((7, 7), (4, 4))
    assert not pixel_pairs.is_small((28, 28), (14, 14))
    pairs = torch.arange(9.0).reshape(1, 3, 3)
    assert pixel_pairs.once(pairs).tolist() == [[0, 1, 2, 4, 5, 8]]
    assert pixel_pairs.count((3,)) == 6

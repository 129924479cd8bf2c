"""A layer's weight and bias taken together are the two taken one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from gradient_models import cross_entropy
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from hush.gradients import clipped_sum, correlation, graph
from hush.gradients.correlation import Correlation, Settings
from hush.gradients.layers import BiasedCorrelation, Dense, apart, biases, join
from hush.gradients.norms import measure
from hush.gradients.shared import Shared
from hush.gradients.sums import weighted
from hush.gradients.uses import Outer, Rows, Sums, Use

FACTORS = torch.tensor([0.5, 0.0, 1.0, 0.25], dtype=torch.float64)


class Shifted(BiasedCorrelation):
    """Pairs without a matrix, as of larger maps."""

    def _is_small(self) -> bool:
        return False


def squares_of(*gradients: Tensor) -> Tensor:
    return torch.stack([rows.flatten(1).square().sum(1) for rows in gradients]).sum(0)


@given(
    pixels=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
@example(pixels=(7, 7), kernel=(3, 3), stride=(2, 2), padding=(1, 1), channels=(3, 2))
@example(pixels=(4, 4), kernel=(1, 1), stride=(1, 1), padding=(0, 0), channels=(2, 3))
@example(pixels=(2, 2), kernel=(1, 1), stride=(1, 1), padding=(2, 1), channels=(1, 1))  # some outputs see zeros alone
def test_a_convolution_with_its_bias_is_one_example_at_a_time(
    pixels: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    channels: tuple[int, int],
) -> None:
    assume(all(p + 2 * s >= k for p, s, k in zip(pixels, padding, kernel, strict=True)))
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(4, channels[0], *pixels, dtype=torch.float64, generator=draws)
    weight = torch.randn(channels[1], channels[0], *kernel, dtype=torch.float64, generator=draws)
    bias = torch.zeros(channels[1], dtype=torch.float64)
    outputs = torch.randn(F.conv2d(inputs, weight, bias, stride, padding).shape, dtype=torch.float64, generator=draws)
    rows = []
    for x, g in zip(inputs, outputs, strict=True):
        own = weight.clone().requires_grad_(), bias.clone().requires_grad_()
        rows.append(torch.autograd.grad(F.conv2d(x[None], *own, stride, padding), own, g[None]))
    truth = [torch.stack(some) for some in zip(*rows, strict=True)]
    settings = Settings.of(weight, 2, transposed=False, stride=stride, padding=padding, dilation=1, groups=1)
    for kind in (BiasedCorrelation, Shifted):
        use = kind(inputs, outputs.clone(), settings, bias="bias")
        squares, terms = use.measure(Shared())
        torch.testing.assert_close(squares, squares_of(*truth))
        sizes = (squares_of(inputs) + outputs[0, 0].numel()) * squares_of(outputs)
        torch.testing.assert_close(terms, sizes)
        for got, own in zip(use.weighted_both(FACTORS), truth, strict=True):
            torch.testing.assert_close(got, torch.einsum("b,b...->...", FACTORS, own))


def pairs() -> dict[str, list[Use]]:
    """A linear layer, a convolution, and a bias that belongs to neither."""
    draws = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=draws)

    settings = Settings.plain((2, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1, False, (0, 0))
    rows, maps, linear = normal(4, 1, 5), normal(4, 2, 4, 4), normal(4, 1, 3)
    return {
        "line.weight": [Outer(rows, linear)],
        "line.bias": [Rows(linear[:, 0])],
        "map.weight": [Correlation(normal(4, 3, 4, 4), maps, settings)],
        "map.bias": [Sums(maps)],
        "other.bias": [Rows(normal(4, 3))],
    }


def test_joined_and_apart_again_are_what_they_were() -> None:
    uses, before = pairs(), pairs()
    join(uses)
    assert dict(biases(uses)) == {"line.weight": "line.bias", "map.weight": "map.bias"}
    assert [type(found[0]) for found in uses.values()] == [Dense, BiasedCorrelation, Rows]
    apart(uses)
    assert uses.keys() == before.keys()
    for name, found in before.items():
        assert type(uses[name][0]) is type(found[0])
        torch.testing.assert_close(uses[name][0].rows(), found[0].rows())


def test_examples_of_joined_layers_are_not_grouped_without_their_bias() -> None:
    uses = pairs()
    join(uses)
    for name, _ in biases(uses):
        with pytest.raises(AssertionError, match="taken apart"):
            uses[name][0].grouped(torch.zeros(1, 2, dtype=torch.int64), torch.ones(1, 2, dtype=torch.bool))


def test_norms_and_sums_of_joined_layers_are_those_of_each() -> None:
    uses, alone = pairs(), pairs()
    join(uses)
    truth = {name: found[0].rows() for name, found in alone.items()}
    squares = measure(uses)
    torch.testing.assert_close(squares["line.weight"], squares_of(truth["line.weight"], truth["line.bias"]))
    torch.testing.assert_close(squares["map.weight"], squares_of(truth["map.weight"], truth["map.bias"]))
    assert "map.bias" not in squares
    shapes = {name: nn.Parameter(rows[0].clone()) for name, rows in truth.items()}
    got = weighted(shapes, uses, dict.fromkeys(truth, FACTORS), set)
    for name, rows in truth.items():
        torch.testing.assert_close(got[name], torch.einsum("b,b...->...", FACTORS, rows))


@pytest.mark.parametrize("layer", ["line", "map"])
def test_a_bias_of_another_layer_a_copy_or_a_second_use_is_not_joined(layer: str) -> None:
    for change in ("layer", "copy", "second"):
        uses = pairs()
        if change == "layer":
            uses["elsewhere.bias"] = uses.pop(f"{layer}.bias")
        elif change == "copy":
            (use,) = uses[f"{layer}.bias"]
            uses[f"{layer}.bias"] = [type(use)(use.held()[0].clone())]  # type: ignore[call-arg]
        else:
            uses[f"{layer}.bias"] *= 2
        join(uses)
        assert f"{layer}.weight" not in dict(biases(uses)), change


def test_norms_that_cancel_are_taken_from_the_gradients_of_both() -> None:
    """Output gradients of equal size and opposite sign on an even map: nearly nothing is left of weight and bias."""
    settings = Settings.plain((1, 2, 1, 1), (1, 1), (0, 0), (1, 1), 1, False, (0, 0))
    signs = torch.ones(4, 4)
    signs.view(-1)[::2] = -1
    inputs, outputs = torch.ones(3, 2, 4, 4), torch.stack([signs, torch.ones(4, 4), signs])[:, None] * 1e3
    outputs[0, 0, 0, 0] += 1e-3
    uses: dict[str, list[Use]] = {
        "map.weight": [Correlation(inputs, outputs, settings)],
        "map.bias": [Sums(outputs)],
    }
    truth = {name: found[0].rows().double() for name, found in uses.items()}
    join(uses)
    squares = measure(uses)
    torch.testing.assert_close(squares["map.weight"].double(), squares_of(*truth.values()), rtol=1e-3, atol=0)
    assert len(uses["map.weight"]) == 2
    factors = torch.tensor([1.0, 1e-6, 1.0])
    shapes = {name: nn.Parameter(rows[0].float()) for name, rows in truth.items()}
    got = weighted(shapes, uses, dict.fromkeys(truth, factors), set)
    for name, rows in truth.items():
        expected = torch.einsum("b,b...->...", factors.double(), rows)
        torch.testing.assert_close(got[name].double(), expected, rtol=1e-3, atol=1e-9)


def network(kind: str) -> nn.Module:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(200, 6), nn.ReLU())
    model.extend([nn.Linear(6, 6), nn.Linear(6, 6)])
    if kind == "a bias of two layers":
        model[6].bias = model[5].bias
    if kind == "a weight of two layers":
        model[6].weight = model[5].weight
    if kind == "no bias":
        model[5].bias = None
    return model.double()


@pytest.mark.parametrize("kind", ["plain", "a bias of two layers", "a weight of two layers", "no bias"])
@pytest.mark.parametrize("clipping", ["flat", "per_layer", "automatic"])
@pytest.mark.parametrize("of_people", [False, True])
def test_models_are_served_as_by_the_loop(
    kind: str, clipping: Any, of_people: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the first batch by the tape, on the second off the graph; with broken rows, and with several rows a person."""
    monkeypatch.setattr(correlation, "_quickest", {})
    monkeypatch.setattr(correlation, "_raced", lambda ways, *rest: "pairs")
    model = network(kind)
    for turn in range(2):
        x, y = torch.randn(7, 4, 5, 5, dtype=torch.float64), torch.randint(6, (7,))
        x[3, 0, 0, 0] = torch.nan
        groups = torch.tensor([0, 1, 1, 2, 0, 3, 3]) if of_people else None
        assert graph.may_serve(model, cross_entropy) == bool(turn)
        truth, got = (
            clipped_sum(model, cross_entropy, (x, y), 0.4, method=method, clipping=clipping, groups=groups)
            for method in ("looped", "tape")
        )
        torch.testing.assert_close(got.norms, truth.norms, equal_nan=True)
        assert got.nonfinite == truth.nonfinite == 1
        for name, value in truth.gradients.items():
            torch.testing.assert_close(got.gradients[name], value)

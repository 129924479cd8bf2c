"""Force each rare branch of the gradient code in every clipping mode: it is taken, and the sum is the naive loop's.

A branch that ordinary batches do not reach hides its defects. With the factor of a fused convolution's bias replaced
by 1 in the branch of weak norms, a sum of four clipped gradients had length 1600 instead of 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from naive_loop import Naive, naive, relative_error
from torch import Tensor, nn

from hush.gradients import clipped, clipped_sum, correlation, graph, layers, methods, norms, pixel_pairs, sums, uses

CLIPPINGS = ("flat", "per_layer", "automatic")
COUNT = 6
GROUPS = torch.tensor([4, 1, 4, 9, 1, 4])
TIGHT = 1e-9
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")

Patch = pytest.MonkeyPatch


# Models --------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    """Embedding and output share one table."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.table = nn.Embedding(11, width)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.table(x).tanh(), self.table.weight).mean(1)


class Twice(nn.Module):
    """One linear layer on two depths, weight and bias."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.layer(x).tanh()))


class TwoKinds(nn.Module):
    """One matrix in a product and in a sum: uses of kinds that cannot be merged."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.randn(8, 8)), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(((x @ self.weight) + (x[..., None] * self.weight.tanh()).sum(-2)).sum(1))


class Tokens(nn.Module):
    """Linear layers on the tokens of an example."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(24, width), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x).tanh()).mean(1)


def convolution(**settings: Any) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, **settings), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3))


def perceptron(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 3))


def pictures() -> Tensor:
    return torch.randn(COUNT, 2, 5, 5, dtype=torch.float64)


def rows(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(COUNT, *shape, dtype=torch.float64)


def words() -> Tensor:
    return torch.randint(0, 11, (COUNT, 4))


# Branches ------------------------------------------------------------------------------------------------------

Spy = tuple[Any, str]


@dataclass(frozen=True)
class Branch:
    """A model that reaches a branch, the patch that forces it, and the functions that only it calls."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]
    force: Callable[[Patch], Any]
    taken: tuple[Spy, ...]
    options: dict[str, Any] = field(default_factory=dict)
    apart: bool = False  # a person's examples take another way: the branch is then not looked for


def only_way(way: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(correlation, "_ways", lambda *_: {"only": way})


def all_weak(patch: Patch) -> None:
    only_way(correlation.Correlation)(patch)
    patch.setattr(norms, "_WEAK", math.inf)


def some_weak(patch: Patch) -> None:
    only_way(correlation.Correlation)(patch)
    mask = torch.arange(COUNT) % 2 == 0
    patch.setattr(norms, "_weak", lambda squares, terms: {name: mask[: len(squares[name])] for name in terms})


def shifted(patch: Patch) -> None:
    only_way(correlation.Correlation)(patch)
    patch.setattr(pixel_pairs, "is_small", lambda *_: False)


def several_pieces(patch: Patch) -> None:
    only_way(correlation.Correlation)(patch)
    patch.setattr(correlation, "_PIECE", 25 * 25 * 2)


def few_groups(patch: Patch) -> None:
    only_way(correlation.grouped)(patch)
    patch.setattr(correlation, "_MOST_GROUPS", 4)


def no_ghosts(patch: Patch) -> None:
    patch.setattr(norms, "GHOST_AT", 0.0)
    patch.setattr(uses, "GHOST_AT", 0.0)


def cut(patch: Patch) -> None:
    patch.setattr(clipped, "_MOST_HELD", 1)
    patch.setattr(clipped, "_LEAST_SHARE", 0)
    patch.setattr(clipped, "_LEAST_PIECE", 2)


def scratch(patch: Patch) -> None:
    patch.setattr(sums, "_LARGE", 1)


def nothing(_: Patch) -> None:
    """The model alone reaches the branch."""


BIASED = (layers.BiasedCorrelation, "of_bias")
BRANCHES: dict[str, Branch] = {
    "weak norms of a fused convolution": Branch(convolution, pictures, all_weak, ((norms, "Few"), BIASED), apart=True),
    "weak norms of some examples": Branch(convolution, pictures, some_weak, ((norms, "Few"), BIASED), apart=True),
    "weak norms of a convolution without bias": Branch(
        partial(convolution, bias=False), pictures, all_weak, ((norms, "Few"),), apart=True
    ),
    "weak ghost norms": Branch(Tokens, rows(2, 24), all_weak, ((norms, "Few"),)),
    "weak norms of tied weights": Branch(Tied, words, all_weak, ((norms, "_cross"), (norms, "Few"))),
    "fused convolution by pairs": Branch(
        convolution, pictures, only_way(correlation.Correlation), ((layers.BiasedCorrelation, "weighted_both"),),
        apart=True,
    ),
    "fused convolution by shifted maps": Branch(
        convolution, pictures, shifted, ((layers.BiasedCorrelation, "_over_offsets"),), apart=True
    ),
    "pairs in several pieces": Branch(
        convolution, pictures, several_pieces, ((layers.BiasedCorrelation, "_from_pairs"),), apart=True
    ),
    "convolution in pieces": Branch(
        convolution, pictures, only_way(partial(correlation.Correlation, in_pieces=True)),
        ((correlation.Correlation, "_from_pieces"),), apart=True,
    ),
    "convolution by windows": Branch(
        convolution, pictures, only_way(correlation.windows), ((correlation.LastRows, "weighted"),)
    ),
    "convolution with more examples than groups": Branch(
        convolution, pictures, few_groups, ((correlation, "_side_by_side"),)
    ),
    "dilated convolution": Branch(
        partial(convolution, dilation=2), pictures, nothing, ((correlation, "_side_by_side"),)
    ),
    "convolution in groups": Branch(partial(convolution, groups=2), pictures, nothing, ((correlation, "backward"),)),
    "padding of two sizes": Branch(
        lambda: nn.Sequential(nn.Conv2d(2, 4, 2, padding="same"), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3)),
        pictures, only_way(correlation.grouped), ((correlation.Settings, "padded"),),
    ),
    "ghost norms": Branch(Tokens, rows(2, 24), nothing, ((uses, "_paired"),)),
    "ghost norms by blocks": Branch(
        Tokens, rows(2, 24), lambda patch: patch.setattr(uses, "_BLOCKWISE", 1), ((uses, "_paired_by_blocks"),)
    ),
    "gradients written out": Branch(Tokens, rows(2, 24), no_ghosts, ((uses.Outer, "rows"),)),
    "tied embedding": Branch(Tied, words, nothing, ((norms, "_cross"),)),
    "tied embedding, written out": Branch(Tied, words, no_ghosts, ((norms, "_cross"),)),
    "one layer twice": Branch(Twice, rows(8), nothing, ((uses, "_joined"),)),
    "one layer twice on tokens": Branch(
        lambda: nn.Sequential(Twice(), nn.Flatten(), nn.LazyLinear(3)), rows(4, 8), nothing, ((uses, "_joined"),)
    ),
    "uses of two kinds": Branch(TwoKinds, rows(4, 8), nothing, ((uses.Outer, "rows"),)),
    "fused layer, outputs scaled": Branch(
        lambda: perceptron(4), rows(8), nothing, ((layers.Dense, "weighted_both"),), apart=True
    ),
    "fused layer, inputs scaled": Branch(
        lambda: perceptron(40), rows(8), nothing, ((layers.Dense, "weighted_both"),), apart=True
    ),
    "fused convolution in place": Branch(
        convolution, pictures, lambda patch: (only_way(correlation.Correlation)(patch), scratch(patch)),
        ((sums, "is_dense"),), apart=True,
    ),
    "tokens in place": Branch(Tokens, rows(2, 24), scratch, ((sums, "is_dense"),)),
    "micro-batches of one": Branch(
        convolution, pictures, all_weak, ((clipped, "_added"),), {"physical_batch_size": 1}
    ),
    "micro-batches of four": Branch(
        convolution, pictures, all_weak, ((clipped, "_added"), BIASED), {"physical_batch_size": 4}, apart=True
    ),
    "micro-batches by memory": Branch(convolution, pictures, cut, ((clipped, "_added"),), apart=True),
    "vectorized": Branch(convolution, pictures, nothing, ((methods.vectorized, "uses"),), {"method": "vectorized"}),
    "looped": Branch(convolution, pictures, nothing, ((clipped._Job, "_looped"),), {"method": "looped"}),
}  # fmt: skip


def loss_fn(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs), targets, reduction="none")


def case(branch: Branch) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    torch.manual_seed(7)
    model, inputs = branch.make().double(), branch.inputs()
    with torch.no_grad():
        model(inputs)  # lazy layers take their size
        for value in model.parameters():
            value.copy_(torch.randn_like(value) * 0.7)
    return model, (inputs, torch.arange(COUNT) % 3)


def clipped_by_hand(truth: Naive, clip_norm: float, clipping: str) -> dict[str, Tensor]:
    """Clip by the definitions alone."""
    if clipping == "flat":
        return truth.clipped(clip_norm)
    if clipping == "automatic":
        return truth.weighted(clip_norm / (truth.norms + 0.01))
    layer_of = {name: name.rpartition(".")[0] for name in truth.rows}
    share = clip_norm / math.sqrt(len(set(layer_of.values())))
    result = {}
    for name, values in truth.rows.items():
        square = sum(truth.squares[other] for other in truth.rows if layer_of[other] == layer_of[name])
        factors = torch.clamp(share / torch.as_tensor(square).sqrt(), max=1.0)
        result[name] = torch.einsum("b,b...->...", factors, values)
    return result


def watch(patch: Patch, spies: tuple[Spy, ...]) -> dict[Spy, int]:
    """Count the calls of each function."""
    calls = dict.fromkeys(spies, 0)
    for spy in spies:
        original = getattr(*spy)

        def counted(*args: Any, spy: Spy = spy, original: Any = original, **kwargs: Any) -> Any:
            calls[spy] += 1
            return original(*args, **kwargs)

        patch.setattr(*spy, counted)
    return calls


@pytest.fixture
def patch() -> Iterator[Patch]:
    with pytest.MonkeyPatch.context() as found:
        yield found


@pytest.mark.parametrize("people", [False, True], ids=["examples", "people"])
@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("name", BRANCHES)
def test_branch_is_taken_and_gives_the_naive_sum(patch: Patch, name: str, clipping: str, people: bool) -> None:
    branch = BRANCHES[name]
    model, batch = case(branch)
    truth = naive(model, loss_fn, batch)
    truth = truth.grouped(GROUPS) if people else truth
    branch.force(patch)
    calls = watch(patch, branch.taken)
    # Some, all, and none of the gradients are shortened.
    for clip_norm in (float(truth.norms.median()) * 0.999, 1e-3, 1e6):
        expected = clipped_by_hand(truth, clip_norm, clipping)
        for _ in range(2):  # the second pass may be served by torch's own graph
            total = clipped_sum(
                model, loss_fn, batch, clip_norm, clipping=clipping, groups=GROUPS if people else None, **branch.options
            )  # type: ignore[arg-type]
            assert relative_error(total.gradients, expected) < TIGHT
            scale = max(float(value.abs().max()) for value in expected.values())
            assert relative_error(
                {key: value / scale for key, value in total.gradients.items()},
                {key: value / scale for key, value in expected.items()},
            ) < 1e-7  # fmt: skip
            assert torch.sort(total.norms)[0] == pytest.approx(torch.sort(truth.norms)[0], rel=1e-7)
    if not (people and branch.apart):
        assert all(calls.values()), f"not taken: {[spy for spy, count in calls.items() if not count]}"


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("name", BRANCHES)
def test_an_example_that_is_not_finite_counts_as_zero(patch: Patch, name: str, clipping: str) -> None:
    branch = BRANCHES[name]
    model, (inputs, targets) = case(branch)
    truth = naive(model, loss_fn, (inputs, targets))
    clip_norm = float(truth.norms.median()) * 0.999
    others = torch.arange(COUNT) != 2
    expected = clipped_by_hand(Naive({key: value[others] for key, value in truth.rows.items()}), clip_norm, clipping)

    def broken(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return loss_fn(model, inputs, targets.abs()) * torch.where(targets < 0, math.inf, 1.0)

    targets = targets.clone()
    targets[2] = -targets[2]
    assert targets[2] < 0
    branch.force(patch)
    total = clipped_sum(model, broken, (inputs, targets), clip_norm, clipping=clipping, **branch.options)  # type: ignore[arg-type]
    assert total.nonfinite == 1
    assert relative_error(total.gradients, expected) < TIGHT


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("name", BRANCHES)
def test_an_example_moves_the_sum_by_the_clip_norm_at_most(patch: Patch, name: str, clipping: str) -> None:
    branch = BRANCHES[name]
    model, (inputs, targets) = case(branch)
    branch.force(patch)

    def steep(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return loss_fn(model, inputs, targets) * 1e3

    totals = [
        clipped_sum(model, steep, (inputs[:count], targets[:count]), 1.0, clipping=clipping, **branch.options)  # type: ignore[arg-type]
        for count in (COUNT, COUNT - 1)
    ]
    moved = [totals[0].gradients[key] - value for key, value in totals[1].gradients.items()]
    assert math.sqrt(sum(float(value.square().sum()) for value in moved)) <= 1 + 1e-9


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_the_graph_is_read_on_the_second_pass(patch: Patch, clipping: str) -> None:
    """Both readers serve the fused layers of a plain network."""
    model, batch = case(BRANCHES["fused convolution by pairs"])
    expected = clipped_by_hand(naive(model, loss_fn, batch), 0.5, clipping)
    all_weak(patch)
    served = []
    read = graph.uses

    def recorded(*args: Any) -> Any:
        served.append(read(*args))
        return served[-1]

    patch.setattr(graph, "uses", recorded)
    for _ in range(3):
        total = clipped_sum(model, loss_fn, batch, 0.5, clipping=clipping)  # type: ignore[arg-type]
        assert relative_error(total.gradients, expected) < TIGHT
    assert [found is not None for found in served] == [True, True]

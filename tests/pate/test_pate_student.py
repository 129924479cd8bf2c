"""Students: ordinary models that learn from answered rows, and from the others where asked to."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor, nn

from hush import Rng
from hush.errors import InvalidValue
from hush.pate import augment, train_student
from hush.pate.fixmatch import FixMatch
from hush.pate.queries import choose_queries
from hush.pate.single import classes
from hush.pate.spread import kernel_scores, surest
from hush.pate.student import METHODS
from hush.pate.student_gan import student_loss
from hush.pate.student_rounds import Rounds

SHORT = FixMatch(steps=150, first_steps=40, rows_per_step=12, unlabelled_per_step=48, learning_rate=0.01)


def clouds(rows: int = 600) -> tuple[Tensor, Tensor]:
    """Two classes in ten numbers between 0 and 1; a single number tells little."""
    stream = torch.Generator().manual_seed(8)
    y = torch.randint(2, (rows,), generator=stream)
    sign = torch.tensor([1.0, -1.0] * 5) * (2 * y[:, None] - 1)
    return (0.5 + 0.15 * sign + 0.15 * torch.randn(rows, 10, generator=stream)).clamp(0, 1), y


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_an_ordinary_model(method: str) -> None:
    X, y = clouds()
    labels = y.numpy().copy()
    labels[60:] = -1  # not answered
    settings = Rounds(shares=(0.5, 0.9), steps=(30, 60)) if method == "rounds" else SHORT
    student = train_student(network, X, labels, method=method, settings=settings, rng=Rng.from_seed(1))
    assert isinstance(student, nn.Module)
    assert not student.training
    assert (classes(student, X) == y.numpy()).mean() > 0.95


@pytest.mark.parametrize("method", ["rounds", "fixmatch"])
def test_few_labels_are_enough_where_rows_without_labels_help(method: str) -> None:
    X, y = clouds(1200)
    few = torch.cat([(y == kind).nonzero().squeeze(1)[:3] for kind in (0, 1)])
    settings = Rounds(shares=(0.5, 0.9), steps=(30, 60)) if method == "rounds" else SHORT
    student = train_student(network, X[few], y[few], X, method, settings=settings, rng=Rng.from_seed(2))
    assert (classes(student, X) == y.numpy()).mean() > 0.95


def test_the_surest_are_chosen_within_each_class() -> None:
    chances = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4], [0.45, 0.55], [0.4, 0.6]])
    assert surest(chances, 0.5, keep=torch.tensor([3])).tolist() == [0, 1, 3, 5]


def test_kernel_scores_are_the_closed_form() -> None:
    rows = torch.randn(12, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    known, targets = torch.tensor([0, 4, 7]), torch.eye(3, dtype=torch.float64)
    kernel = torch.exp(-2 * (rows[:, None] - rows[None]).square().sum(dim=2))[:, known]
    wanted = kernel @ torch.linalg.inv(kernel[known] + 0.1 * torch.eye(3)) @ targets
    assert torch.allclose(kernel_scores(rows, known, targets, ridge=0.1), wanted, atol=1e-8)


def test_estimators_learn_plainly() -> None:
    X, y = clouds()
    student = train_student(DecisionTreeClassifier, X, y)
    assert (student.predict(X.numpy()) == y.numpy()).mean() > 0.95
    with pytest.raises(InvalidValue, match="plain"):
        train_student(DecisionTreeClassifier, X, y, X, "fixmatch")


def test_rows_that_were_not_answered_are_not_learned() -> None:
    seen: list[int] = []

    class Witness:
        def fit(self, X: Any, y: Any) -> Witness:
            seen.extend(y.tolist())
            return self

    X, y = clouds(20)
    train_student(Witness, X, numpy.where(numpy.arange(20) < 5, y.numpy(), -1))
    assert seen == y[:5].tolist()


@pytest.mark.parametrize(
    ("labels", "method", "words"),
    [
        ([0.5] * 20, "plain", "whole number"),
        ([0] * 19, "plain", "whole number"),
        ([-1] * 20, "plain", "no public row"),
        ([0] * 20, "fixmatch", "unlabelled"),
        ([0] * 20, "rounds", "unlabelled"),
        ([0] * 20, "magic", "method"),
    ],
)
def test_bad_arguments_are_refused(labels: list[Any], method: str, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        train_student(network, clouds(20)[0], labels, method=method)


def test_the_discriminators_loss_is_that_of_the_paper() -> None:
    """D = Z / (Z + 1), Z = sum of exp(scores); loss = cross-entropy - (log D(real) + log(1 - D(made))) / 2."""
    module, stream = nn.Linear(2, 3), torch.Generator().manual_seed(3)
    x, real, made = (torch.randn(6, 2, generator=stream) for _ in range(3))
    y = torch.arange(6) % 3

    def real_chance(rows: Tensor) -> Tensor:
        total: Tensor = module(rows).exp().sum(dim=1)
        return total / (total + 1)

    wanted = nn.functional.cross_entropy(module(x), y) - 0.5 * (
        real_chance(real).log().mean() + (1 - real_chance(made)).log().mean()
    )
    assert torch.allclose(student_loss(module, x, y, real, made), wanted, atol=1e-5)


def test_changes_keep_the_shape_and_do_nothing_at_zero() -> None:
    pictures, stream = torch.rand(4, 1, 12, 12), torch.Generator().manual_seed(1)
    still = augment.affine(pictures, stream, turn=0, stretch=0, shear=0, shift=0)
    assert torch.allclose(still, pictures, atol=1e-5)
    assert augment.weak(pictures, stream).shape == augment.strong(pictures, stream).shape == pictures.shape
    cut = augment.cut_out(torch.ones(50, 1, 12, 12), stream)
    assert ((cut == 0).flatten(1).sum(dim=1) >= 1).all()
    assert (cut == 0).float().mean() < 0.25


def test_queries_are_spread_out() -> None:
    """Ten tight groups: ten queries touch more of them than chance would (6.5 of 10 on average)."""
    stream = torch.Generator().manual_seed(4)
    group = torch.arange(1000) % 10
    rows = 10 * torch.eye(10)[group] + 0.1 * torch.randn(1000, 10, generator=stream)
    touched = [len(set(group[choose_queries(rows, 20, rng=Rng.from_seed(seed))].tolist())) for seed in range(5)]
    assert numpy.mean(touched) > 8.5
    chosen = choose_queries(torch.zeros(30, 2), 12, rng=Rng.from_seed(0))
    assert len(set(chosen.tolist())) == 12  # also where all rows are the same
    with pytest.raises(InvalidValue, match="at most"):
        choose_queries(rows, 1001)

"""A student in rounds: two views of the public rows label each other the rows of which they are surest.

One view is kernel regression on fixed features, good with few labels; the other is the student, better with many. In
each round a new student learns from the answered rows and from the surest guesses of both, then guesses anew
(co-training, Blum, Mitchell 1998; pseudo-labels, Lee 2013).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from hush import _check
from hush.errors import InvalidValue
from hush.pate import augment
from hush.pate.recipe import Augment, Recipe, make_optimizer
from hush.pate.spread import kernel_scores, surest
from hush.pate.watching import Bar

_MOST_ROWS = 3_000  # that the kernel learns from
_VIEWS = 4


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """How much of each guessed class is trusted in each round, and how long the student then learns."""

    shares: tuple[float, ...] = (0.85, 0.93, 0.97)
    steps: tuple[int, ...] = (250, 350, 700)
    rows_per_step: int = 128
    learning_rate: float = 3e-3
    weight_decay: float = 1e-3
    change: Augment | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if len(self.shares) != len(self.steps) or not self.shares:
            raise InvalidValue("shares and steps must have an entry for each round, and there must be a round.")
        for share, steps in zip(self.shares, self.steps, strict=True):
            _check.probability("shares", share)
            _check.whole("steps", steps)
        _check.whole("rows_per_step", self.rows_per_step, least=4)
        _check.positive("learning_rate", self.learning_rate)


def change_picture(x: Tensor, stream: torch.Generator) -> Tensor:
    """What a student must not be misled by."""
    return augment.affine(x, stream, turn=0.3, stretch=0.15, shear=0.3, shift=0.15)


def train_rounds(
    make_student: Callable[[], nn.Module],
    x: Tensor,
    looks: Tensor,
    labels: Tensor,
    settings: Rounds,
    stream: torch.Generator,
    *,
    progress: bool = False,
) -> nn.Module:
    """The student of the last round. `labels` are -1 where the vote gave none; `looks` are the fixed features of x."""
    answered = (labels >= 0).nonzero().squeeze(1)
    student = make_student()
    with torch.no_grad():
        num_classes = int(student.eval()(x[:2]).shape[1])
    votes = functional.one_hot(labels[answered], num_classes).to(x.dtype)
    chances = _chances(kernel_scores(looks, answered, 2 * votes - 1, ridge=0.03))
    with Bar("student", total=sum(settings.steps), shown=progress) as bar:
        for turn, (share, steps) in enumerate(zip(settings.shares, settings.steps, strict=True)):
            trusted = surest(chances, share, keep=answered)
            targets = functional.one_hot(chances.argmax(dim=1), num_classes).to(x.dtype)
            targets[answered] = votes
            student = make_student() if turn else student
            _learn(student, x, targets, trusted, answered, settings, steps, stream)
            chances = _both(student, x, looks, targets, trusted, answered, settings, stream)
            bar.at(sum(settings.steps[: turn + 1]))
    return student


def _learn(
    student: nn.Module,
    x: Tensor,
    targets: Tensor,
    trusted: Tensor,
    answered: Tensor,
    settings: Rounds,
    steps: int,
    stream: torch.Generator,
) -> None:
    """A quarter of each step's rows have labels of the vote, the others guesses that are trusted."""
    recipe = Recipe(learning_rate=settings.learning_rate, weight_decay=settings.weight_decay)
    optimizer, schedule = make_optimizer(list(student.parameters()), recipe, steps)
    known = settings.rows_per_step // 4
    student.train()
    for _ in range(steps):
        guessed = trusted[torch.randint(len(trusted), (settings.rows_per_step - known,), generator=stream)]
        rows = torch.cat([guessed, answered[torch.randint(len(answered), (known,), generator=stream)]])
        loss = functional.cross_entropy(student(_changed(x[rows], settings, stream)), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    student.eval()


@torch.no_grad()
def _both(
    student: nn.Module,
    x: Tensor,
    looks: Tensor,
    targets: Tensor,
    trusted: Tensor,
    answered: Tensor,
    settings: Rounds,
    stream: torch.Generator,
) -> Tensor:
    """The mean of what the student says (of slightly changed rows) and of the kernel that learned from it."""
    own = torch.zeros_like(targets)
    for view in range(_VIEWS):
        rows = x if view == 0 or x.ndim != 4 else augment.weak(x, stream)
        own += torch.cat([student(part).softmax(dim=1) for part in rows.split(1_000)]) / _VIEWS
    some = trusted[torch.randperm(len(trusted), generator=stream)[:_MOST_ROWS]]
    rows = torch.cat([answered, some]).unique()
    taught = own.clone()
    taught[answered] = targets[answered]
    return (own + _chances(kernel_scores(looks, rows, 2 * taught[rows] - 1, ridge=0.3))) / 2


def _chances(scores: Tensor) -> Tensor:
    return (4 * scores).softmax(dim=1)


def _changed(rows: Tensor, settings: Rounds, stream: torch.Generator) -> Tensor:
    change = settings.change or (change_picture if rows.ndim == 4 else augment.jitter)
    return change(rows, stream)

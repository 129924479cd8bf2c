"""The student: an ordinary model that learns from public rows and the labels that the noisy vote gave them.

It never sees a private row, so it may be published, copied and asked as often as anyone likes: its privacy is that of
the labels, whatever is done with them [post-processing].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from hush import _check
from hush.errors import InvalidValue
from hush.pate import augment
from hush.pate.fixmatch import FixMatch, train_fixmatch
from hush.pate.makers import as_table, as_tensor
from hush.pate.recipe import Recipe
from hush.pate.single import train_module
from hush.pate.strokes import strokes
from hush.pate.student_rounds import Rounds, train_rounds
from hush.rng import Rng

METHODS = ("plain", "rounds", "fixmatch", "gan")
_PLAIN = Recipe(steps=600, rows_per_step=32, learning_rate=2e-3)


def train_student(
    make_student: Any,
    public_X: Any,
    labels: ArrayLike | Tensor,
    unlabelled_X: Any = None,
    method: str = "plain",
    *,
    recipe: Recipe | None = None,
    settings: FixMatch | Rounds | None = None,
    look: Callable[[Tensor], Tensor] | None = None,
    progress: bool = True,
    rng: Rng | None = None,
) -> Any:
    """Train a student on public rows; rows with label -1 (not answered) count as unlabelled.

    Args:
        make_student: Returns a new torch module, or a new estimator with `fit` and `predict` (plain only).
        public_X: The public rows that were asked about.
        labels: What the vote answered, -1 where it abstained.
        unlabelled_X: More public rows.
        method: "plain" learns from the answered rows alone, the others from all. "rounds": guesses of the student and
            of fixed features, the surest of which it then learns (`hush.pate.student_rounds`). "fixmatch": where the
            model is sure of a slightly changed row, it must say the same of a strongly changed one [Sohn et al. 2020].
            "gan": PATE-G, the discriminator of a generative adversarial network [Salimans et al. 2016].
        recipe: Of "plain": how a torch module learns.
        settings: Steps, rows and rate: `Rounds` for "rounds", `FixMatch` for "fixmatch" and "gan".
        look: Of "rounds": the fixed features; by default `strokes` for pictures, the row itself elsewhere.
        progress: A bar, if there is a terminal.
        rng: A seeded source. A student's randomness is nobody's secret.
    """
    _check.one_of("method", method, METHODS)
    rows, answers, others = _split(public_X, labels, unlabelled_X)
    student = make_student()
    stream = (rng or Rng()).torch_stream("student")
    if not isinstance(student, nn.Module):
        if method != "plain" or not hasattr(student, "fit"):
            raise InvalidValue(f'method {method!r} trains torch modules; estimators with fit learn by method="plain".')
        return student.fit(as_table(rows), answers.numpy())
    if method == "plain":
        return train_module(student, as_tensor(rows), answers, recipe or _PLAIN, stream)
    if not len(others):
        raise InvalidValue(f"method {method!r} needs unlabelled rows, or use method='plain'.")
    if method == "rounds":
        return _in_rounds(make_student, as_tensor(rows), answers, others, settings, look, stream, progress)
    chosen = FixMatch() if settings is None else settings
    if not isinstance(chosen, FixMatch):
        raise InvalidValue(f"settings of method {method!r} must be a FixMatch; got {type(chosen).__name__}.")
    if method == "fixmatch":
        changes = _changes(chosen, rows)
        return train_fixmatch(student, as_tensor(rows), answers, others, chosen, changes, stream, progress=progress)
    from hush.pate.student_gan import train_gan

    return train_gan(student, as_tensor(rows), answers, others, chosen, stream, progress=progress)


def _in_rounds(
    make_student: Any,
    rows: Tensor,
    answers: Tensor,
    others: Tensor,
    settings: FixMatch | Rounds | None,
    look: Callable[[Tensor], Tensor] | None,
    stream: torch.Generator,
    progress: bool,
) -> nn.Module:
    chosen = Rounds() if settings is None else settings
    if not isinstance(chosen, Rounds):
        raise InvalidValue(f'settings of method "rounds" must be Rounds; got {type(chosen).__name__}.')
    everything = torch.cat([rows, others])
    labels = torch.cat([answers, torch.full((len(others),), -1)])
    looks = look(everything) if look is not None else strokes(everything) if rows.ndim == 4 else everything.flatten(1)
    return train_rounds(make_student, everything, looks, labels, chosen, stream, progress=progress)


def _changes(settings: FixMatch, rows: Tensor) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    pair = (augment.weak, augment.strong) if rows.ndim == 4 else (augment.jitter, augment.dropped)
    return settings.weak or pair[0], settings.strong or pair[1]


def _split(public_X: Any, labels: ArrayLike | Tensor, unlabelled_X: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The answered rows, their labels, and all rows without one."""
    found = numpy.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if found.ndim != 1 or found.dtype.kind not in "iu" or len(found) != len(public_X):
        raise InvalidValue(f"labels must hold a whole number for each of the {len(public_X)} public rows, or -1.")
    answered = found >= 0
    if not answered.any():
        raise InvalidValue("no public row was answered, so there is nothing to learn from: ask more, or lower the bar.")
    public = as_tensor(public_X)
    rest = [public[torch.from_numpy(~answered)]]
    if unlabelled_X is not None:
        rest.append(as_tensor(unlabelled_X))
    kept = torch.from_numpy(answered)
    return public[kept], torch.from_numpy(found[answered].astype(numpy.int64)), torch.cat(rest)

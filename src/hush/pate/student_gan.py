"""PATE-G: the student is the discriminator of a generative adversarial network on the public rows.

Salimans, Goodfellow, Zaremba, Cheung, Radford, Chen 2016: a row is real as far as the student gives any class a high
score, log Z = logsumexp(scores), D = Z / (Z + 1). The student learns the labels, to call public rows real and made ones
not; the generator learns to match the mean features of public rows. Papernot et al. 2017 trained their students so.
Slower and harder to train than FixMatch; here for comparison.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from hush.pate.fixmatch import FixMatch
from hush.pate.watching import Bar

_NOISE, _WIDTH, _RATE = 64, 256, 1e-3


class Generator(nn.Module):
    """Noise to rows of the public rows' shape, with values between 0 and 1."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.Sequential(
            *(nn.Linear(_NOISE, _WIDTH), nn.BatchNorm1d(_WIDTH), nn.ReLU()),
            *(nn.Linear(_WIDTH, _WIDTH), nn.BatchNorm1d(_WIDTH), nn.ReLU()),
            *(nn.Linear(_WIDTH, math.prod(shape)), nn.Sigmoid()),
        )

    def forward(self, noise: Tensor) -> Tensor:
        """(rows, noise) -> (rows, *shape)."""
        made: Tensor = self.layers(noise)
        return made.reshape(-1, *self.shape)


def train_gan(
    student: nn.Module,
    x: Tensor,
    y: Tensor,
    others: Tensor,
    settings: FixMatch,
    stream: torch.Generator,
    *,
    progress: bool = False,
) -> nn.Module:
    """Train the student beside a generator that is thrown away afterwards."""
    generator = Generator(tuple(x.shape[1:]))
    for_student = torch.optim.Adam(student.parameters(), lr=_RATE, betas=(0.5, 0.999))
    for_generator = torch.optim.Adam(generator.parameters(), lr=_RATE, betas=(0.5, 0.999))
    student.train()
    with Bar("student", total=settings.steps, shown=progress) as bar:
        for step in range(settings.steps):
            chosen = torch.randint(len(x), (settings.rows_per_step,), generator=stream)
            free = others[torch.randint(len(others), (settings.unlabelled_per_step,), generator=stream)]
            noise = torch.randn(len(free), _NOISE, generator=stream)
            _advance(for_student, student_loss(student, x[chosen], y[chosen], free, generator(noise).detach()))
            gap = features(student, free).mean(dim=0).detach() - features(student, generator(noise)).mean(dim=0)
            _advance(for_generator, gap.square().mean())
            bar.at(step + 1)
    return student.eval()


def student_loss(student: nn.Module, x: Tensor, y: Tensor, real: Tensor, made: Tensor) -> Tensor:
    """Labels, plus: public rows are real, made rows are not (Salimans et al. 2016, Sec. 5)."""
    real_score, made_score = (student(rows).logsumexp(dim=1) for rows in (real, made))
    realness = functional.softplus(-real_score).mean() + functional.softplus(made_score).mean()
    return functional.cross_entropy(student(x), y) + 0.5 * realness


def features(student: nn.Module, rows: Tensor) -> Tensor:
    """What enters the last linear layer; the scores themselves if there is none."""
    last = [layer for layer in student.modules() if isinstance(layer, nn.Linear)]
    if not last:
        scores: Tensor = student(rows)
        return scores
    seen: list[Tensor] = []
    handle = last[-1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        student(rows)
    finally:
        handle.remove()
    return seen[0]


def _advance(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

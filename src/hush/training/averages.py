"""What is done to the weights after a step: projection onto a ball, and averages over the steps.

Both read released weights only, so they cost no privacy.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from hush.training.parts import is_sharded, local
from hush.training.team import Team


@torch.no_grad()
def project(parameters: Iterable[Tensor], radius: float, team: Team | None = None) -> None:
    """Scale the parameters, taken as one vector, back onto the L2 ball of this radius if they are outside.

    >>> weights = [torch.tensor([3.0]), torch.tensor([4.0])]
    >>> project(weights, radius=1.0); weights
    [tensor([0.6000]), tensor([0.8000])]
    """
    given = list(parameters)
    values = [local(value) for value in given]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(values)).double())
    if team is not None and any(map(is_sharded, given)):
        norm = team.total(norm.square()).sqrt()
    if norm > radius:
        torch._foreach_mul_(values, float(radius / norm))


class Average:
    """The average of the trainable weights over the steps, "ema" or "mean".

    "ema" weighs step t of n by decay^(n - t), normalised, so that the beginning does not pull towards the start values.
    "mean" weighs all steps alike.
    """

    def __init__(self, model: nn.Module, kind: str, decay: float) -> None:
        self._parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self._kind, self._decay = kind, decay
        self.steps = 0
        self.values: dict[str, Tensor] = {
            name: value.detach().clone() for name, value in (self._parameters if kind != "none" else {}).items()
        }

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights of one more step."""
        self.steps += 1
        if not self.values:
            return
        share = 1 / self.steps if self._kind == "mean" else (1 - self._decay) / (1 - self._decay**self.steps)
        new = [local(value.detach()) for value in self._parameters.values()]
        torch._foreach_lerp_([local(value) for value in self.values.values()], new, share)

    @torch.no_grad()
    def put_into_model(self) -> None:
        """Give the model the averaged weights; nothing happens for "none" or before the first step."""
        if self.steps:
            for name, value in self.values.items():
                local(self._parameters[name]).copy_(local(value))

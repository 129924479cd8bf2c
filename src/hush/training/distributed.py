"""How the gradients of a step are put together: by this process alone, or by a team where each has the whole model.

Each process clips and adds up its share of the lot. Noise of the full standard deviation is drawn once for every
coordinate, by the one process whose slice it is in, from that process's own stream; then the sums are added up over the
processes. So the noise of the released sum is that of one process, whatever their number. Secure noise rounds the noisy
sum to a grid, so there the sums are added up first.

The charge is made before the first process gives its part, and no process can have the whole sum before that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hush.errors import InvalidValue
from hush.gradients.batches import Batch, LossFunction, call, num_examples, split
from hush.gradients.clipped import ClippedSum, Method, Row, clipped_sum_and_rows
from hush.training.guards import IsolationGuard
from hush.training.parts import is_sharded
from hush.training.team import Team, lost

if TYPE_CHECKING:
    from hush.training.plan import TrainingPlan

_LARGE = 1 << 19  # a gradient of so many numbers travels for itself; smaller ones share a row
_PIECE = 1 << 20  # numbers sent at a time: several pieces on their way together are quicker than one, or than many
AddNoise = Callable[[dict[str, Tensor]], dict[str, Tensor]]


class Engine(Protocol):
    """Takes gradients of this process's share, and makes them those of the whole lot."""

    team: Team
    in_lockstep: bool

    def check_isolation(self, loss_fn: LossFunction, batch: Batch) -> None:
        """Raise `NotIsolated` if one row changes what another gives; looks once."""
        ...

    def clipped_sum(
        self,
        loss_fn: LossFunction,
        batch: Batch,
        clip_norm: float,
        *,
        groups: Tensor | None,
        size: int | None,
        rows: Sequence[int] = (),
    ) -> tuple[ClippedSum, list[Row]]:
        """The clipped sum of this process's share, computed `size` rows at a time, and the gradients of some rows."""
        ...

    def plain_sum(self, loss_fn: LossFunction, batch: Batch, *, size: int | None) -> dict[str, Tensor]:
        """The sum of the gradients as they are."""
        ...

    def released(self, gradients: dict[str, Tensor], add_noise: AddNoise | None) -> dict[str, Tensor]:
        """The gradients of the whole lot, with noise where it is asked for."""
        ...


class Whole:
    """Every process has the whole model."""

    in_lockstep = False

    def __init__(self, model: nn.Module, plan: TrainingPlan, method: Method, team: Team) -> None:
        self.team = team
        self._model, self._plan, self._method = model, plan, method
        self._isolation = IsolationGuard(method)
        self._parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        if team.size > 1:
            share_values(model, team)

    def check_isolation(self, loss_fn: LossFunction, batch: Batch) -> None:
        """Raise `NotIsolated` if one row changes what another gives; looks once."""
        self._isolation.check(self._model, loss_fn, batch)

    def clipped_sum(
        self,
        loss_fn: LossFunction,
        batch: Batch,
        clip_norm: float,
        *,
        groups: Tensor | None,
        size: int | None,
        rows: Sequence[int] = (),
    ) -> tuple[ClippedSum, list[Row]]:
        """The clipped sum of this process's share, computed `size` rows at a time, and the gradients of some rows."""
        return clipped_sum_and_rows(
            self._model,
            loss_fn,
            batch,
            clip_norm,
            method=self._method,
            clipping=self._plan.clipping,
            groups=groups,
            size=size,
            rows=rows,
            in_full=bool(rows),
        )

    def plain_sum(self, loss_fn: LossFunction, batch: Batch, *, size: int | None) -> dict[str, Tensor]:
        """The sum of the gradients as they are."""
        for parameter in self._parameters.values():
            parameter.grad = None
        if count := num_examples(batch):
            for part in split(batch, size or count):
                torch.autograd.backward(call(loss_fn, self._model, part).sum())
        return {
            name: torch.zeros_like(value) if value.grad is None else value.grad
            for name, value in self._parameters.items()
        }

    def released(self, gradients: dict[str, Tensor], add_noise: AddNoise | None) -> dict[str, Tensor]:
        """The gradients of the whole lot, with noise where it is asked for."""
        if self.team.size == 1:
            return gradients if add_noise is None else add_noise(gradients)
        # What travels together must be the same in all processes: it follows from the parameters alone.
        large = {name: gradients[name].contiguous() for name, value in self._parameters.items() if _goes_alone(value)}
        small = {name: gradients[name] for name in self._parameters if name not in large}
        packs = packed(small)
        whole = [value.detach().view(-1) for value in large.values()] + list(packs.values())
        rows = [piece for row in whole for piece in row.split(_PIECE)]
        after = add_noise is not None and self._plan.secure
        if after:
            _add_up(rows)
        if add_noise is not None:
            mine = {str(place): row[self._mine(row, self.team.rank)] for place, row in enumerate(rows)}
            put_back(mine, add_noise(mine))
        self._spread(rows) if after else _add_up(rows)
        return {**large, **unpacked(packs, small)}

    def _mine(self, row: Tensor, rank: int) -> slice:
        """The coordinates whose noise is drawn by the process of this rank."""
        return slice(len(row) * rank // self.team.size, len(row) * (rank + 1) // self.team.size)

    def _spread(self, rows: list[Tensor]) -> None:
        """Give each process's slice to all."""
        for row in rows:
            for rank in range(self.team.size):
                self.team.broadcast(row[self._mine(row, rank)], rank)


def share_values(model: nn.Module, team: Team) -> None:
    """Give every process the first one's parameters and buffers; names and shapes must be the same."""
    agree_on(model, team)
    values = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for name, value in team.tensors(values):
            if not team.is_first:
                values[name].copy_(value)


def agree_on(model: nn.Module, team: Team) -> None:
    """Refuse models that are not alike; the order of their parameters says what travels together."""
    values = [*model.named_parameters(), *model.named_buffers()]
    team.agree({"model": [[name, list(value.shape), str(value.dtype), value.requires_grad] for name, value in values]})


def _goes_alone(parameter: Tensor) -> bool:
    """Whether its gradient is added up in its own place, at no cost of a copy."""
    return parameter.numel() >= _LARGE and parameter.dtype == _wide(parameter.dtype)


def packed(gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All gradients of one dtype in one row; half precision as float32."""
    kinds: dict[str, list[Tensor]] = {}
    for value in gradients.values():
        kinds.setdefault(str(_wide(value.dtype)), []).append(value.detach().reshape(-1))
    return {kind: torch.cat(values).to(_wide(values[0].dtype)) for kind, values in kinds.items()}


def unpacked(rows: Mapping[str, Tensor], shapes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What was packed, in these shapes and dtypes."""
    starts = dict.fromkeys(rows, 0)
    result = {}
    for name, like in shapes.items():
        kind = str(_wide(like.dtype))
        start = starts[kind]
        starts[kind] = start + like.numel()
        result[name] = rows[kind][start : starts[kind]].view(like.shape).to(like.dtype)
    return result


def put_back(parts: Mapping[str, Tensor], noisy: Mapping[str, Tensor]) -> None:
    """Copy noisy parts to where they were taken from, unless they are there already."""
    for name, value in noisy.items():
        if value is not parts[name]:
            parts[name].copy_(value)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _add_up(rows: list[Tensor]) -> None:
    with lost():
        for waiting in [dist.all_reduce(row, async_op=True) for row in rows]:
            waiting.wait()


def engine_for(model: nn.Module, plan: TrainingPlan, method: Method, team: Team) -> Engine:
    """Sharded where the model's parameters are, whole otherwise."""
    _refuse_wrapped(model)
    if any(is_sharded(value) for value in model.parameters()):
        from hush.training.sharded import Sharded

        return Sharded(model, plan, method, team)
    return Whole(model, plan, method, team)


def _refuse_wrapped(model: nn.Module) -> None:
    wrappers = ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel")
    for module in model.modules():
        kind = next((kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("torch.")), "")
        if kind in wrappers:
            raise InvalidValue(
                f"the model is wrapped in {kind}, whose own reduction would run before clipping; give the plain model "
                "(hush adds the processes' sums up itself) or one sharded by fully_shard."
            )

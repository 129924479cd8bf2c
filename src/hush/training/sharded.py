"""The gradients of a model that `fully_shard` (FSDP2) has spread over the processes.

Each parameter's clipped sum is scattered as soon as it is made: every process keeps the rows that it holds of the
parameter, and draws the noise of those rows alone, at the full standard deviation. Nowhere is there noise, or a sum, of
the whole model's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hush.errors import InvalidValue, NotIsolated
from hush.gradients.batches import Batch, LossFunction, num_examples
from hush.gradients.clipped import ClippedSum, Method, Row
from hush.gradients.sharded import Gathered, no_piece, pieces_of
from hush.training.distributed import AddNoise, agree_on
from hush.training.losses import unheard
from hush.training.parts import joined, local
from hush.training.team import Team, lost

if TYPE_CHECKING:
    from hush.training.plan import TrainingPlan

# The name that newer torch gives it; the older one warns there.
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or getattr(dist, "reduce_scatter_tensor", None)
_BUCKET = 1 << 23  # numbers that are scattered at once, unless one parameter has more
_ROWS = 16  # examples that the isolation check looks at


class Sharded:
    """Every process has a part of each parameter."""

    in_lockstep = True  # passes wait for each other, so a process that fails in one cannot tell the others

    def __init__(self, model: nn.Module, plan: TrainingPlan, method: Method, team: Team) -> None:
        if method not in ("auto", "tape"):
            raise InvalidValue(f"a sharded model has no other method than the tape; got {method!r}.")
        self.team = team
        self._model, self._plan = model, plan
        self._shards: dict[str, Any] = {name: value for name, value in model.named_parameters() if value.requires_grad}
        _check_layout(self._shards, team)
        agree_on(model, team)
        self._gathered = Gathered(model)
        self._checked = False

    def check_isolation(self, loss_fn: LossFunction, batch: Batch) -> None:
        """Raise `NotIsolated` if one row changes another's loss or the norm of its gradient; looks once.

        All processes look at the same time and at as many rows, some of them zeros where a share has fewer.
        """
        if self._checked:
            return
        rows = min(self.team.most(num_examples(batch)), _ROWS)
        if rows < 2:
            return
        self._checked = True
        failure = None
        try:
            self._gathered.check_isolation(loss_fn, batch, rows)
        except NotIsolated as error:
            failure = error
        self.team.add_up([], failure)

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
        """The rows that this process holds of the lot's clipped sums, computed `size` examples at a time."""
        pieces = pieces_of(batch, groups, size)
        if size is not None:  # otherwise every process has one
            pieces += [no_piece(batch)] * (self.team.most(len(pieces)) - len(pieces))
        total: dict[str, Tensor] = {}
        norms, broken = [], 0
        for piece, units in pieces:
            scatter = _Scatter(self._shards, self.team.size, total)
            heard = loss_fn if num_examples(piece) else unheard(loss_fn)
            with lost(elsewhere=False):
                found, bad = self._gathered.clipped_sum(
                    heard, piece, clip_norm, clipping=self._plan.clipping, units=units, deliver=scatter.take
                )
            scatter.flush()
            norms.append(found)
            broken += bad
        return ClippedSum({name: total[name] for name in self._shards}, torch.cat(norms), broken, "tape"), []

    def plain_sum(self, loss_fn: LossFunction, batch: Batch, *, size: int | None) -> dict[str, Tensor]:
        """The same with nothing clipped."""
        return self.clipped_sum(loss_fn, batch, float("inf"), groups=None, size=size)[0].gradients

    def released(self, gradients: dict[str, Tensor], add_noise: AddNoise | None) -> dict[str, Tensor]:
        """The gradients, with noise where it is asked for, sharded as the parameters are."""
        noisy = gradients if add_noise is None else add_noise(gradients)
        return {name: joined(noisy[name], shard) for name, shard in self._shards.items()}


class _Scatter:
    """Adds sums up over the processes, many parameters at once; each process keeps its rows of them."""

    def __init__(self, shards: dict[str, Any], size: int, total: dict[str, Tensor]) -> None:
        self._shards, self._size, self._total = shards, size, total
        self._waiting: list[tuple[str, Tensor]] = []
        self._count = 0

    def take(self, name: str, value: Tensor) -> None:
        """One parameter's sum over this process's examples; all processes give them in the same order."""
        rows = -(-len(value) // self._size)  # as torch.chunk cuts them; the last processes may have fewer or none
        wide = torch.float64 if value.dtype == torch.float64 else torch.float32
        cut = torch.zeros(self._size, rows * value[0].numel(), dtype=wide, device=value.device)
        cut.view(-1)[: value.numel()] = value.reshape(-1)
        if self._waiting and (self._waiting[0][1].dtype != wide or self._count + cut.numel() > _BUCKET):
            self.flush()
        self._waiting.append((name, cut))
        self._count += cut.numel()

    def flush(self) -> None:
        """Scatter what is waiting."""
        if not self._waiting:
            return
        parts = [cut for _, cut in self._waiting]
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        mine = joined.new_empty(joined.shape[1])
        with lost():
            _reduce_scatter(mine, joined.view(-1))
        for (name, _), piece in zip(self._waiting, mine.split([cut.shape[1] for cut in parts]), strict=True):
            held = local(self._shards[name])
            found = piece[: held.numel()].view(held.shape).to(held.device)
            self._total[name] = found if name not in self._total else self._total[name] + found
        self._waiting, self._count = [], 0


def _check_layout(shards: dict[str, Any], team: Team) -> None:
    for name, value in shards.items():
        mesh = getattr(value, "device_mesh", None)
        if mesh is None:
            continue  # named by `Gathered`
        if mesh.ndim != 1 or mesh.size() != team.size or not value.placements[0].is_shard(0):
            raise InvalidValue(
                f"parameter {name!r} lies as {value.placements} on a mesh of shape {tuple(mesh.shape)}; Hush serves "
                f"fully_shard over all {team.size} processes, by the first axis."
            )

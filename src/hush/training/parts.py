"""Tensors of which each process holds a part: the DTensors that `fully_shard` makes of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from hush.training.team import Team


def is_sharded(value: Any) -> bool:
    """Whether this is a DTensor, of which each process holds a part."""
    return hasattr(value, "placements") and hasattr(value, "device_mesh")


def local(value: Any) -> Any:
    """This process's part of a sharded tensor, which shares its memory; any other tensor as it is."""
    return value.to_local() if is_sharded(value) else value


def joined(part: Tensor, like: Any) -> Any:
    """A sharded tensor as `like` from this process's part of it."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


def part_like(whole: Tensor, like: Any) -> Any:
    """The whole tensor sharded as `like`: cut along the first axis, as torch.chunk does."""
    held = local(like)
    rows = -(-len(whole) // like.device_mesh.size())
    start = rows * like.device_mesh.get_local_rank()
    return joined(whole[start : start + rows].to(held.device, held.dtype, copy=True).view(held.shape), like)


def gathered(tensors: Mapping[str, Tensor], team: Team) -> dict[str, Tensor]:
    """The whole tensors, one gathered after another; where some are sharded, only the first process keeps any."""
    sharded = any(map(is_sharded, tensors.values()))
    result: dict[str, Tensor] = {}
    for name, value in tensors.items():
        whole = _whole(value) if is_sharded(value) else value
        if team.is_first or not sharded:
            result[name] = whole
    return result


def _whole(value: Any) -> Tensor:
    whole: Tensor = value.full_tensor()
    return whole.detach().to("cpu" if value.device_mesh.size() > 1 else whole.device)

"""Checkpoints: one safetensors file, replaced whole, with everything that a run needs to go on except its randomness.

The charges of a step are on disk before the step. A checkpoint holds the step's number and the ledger's head. After a
crash the steps since the checkpoint run again under new charges, with fresh noise; the old charges stay spent. The
state of an `Rng` is never written, so no noise can come twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from hush.errors import ResumeRefused, UnreadableFile
from hush.training import plan_text
from hush.training.averages import Average
from hush.training.clipping import ClipNorm
from hush.training.files import load_weights, pack, read_tensors, unpack, write_tensors
from hush.training.history import History
from hush.training.parts import gathered, is_sharded, local, part_like
from hush.training.plan import TrainingPlan
from hush.training.team import Team

CHECKPOINT_FILE = "checkpoint.safetensors"
FORMAT = 1
Identity = dict[str, Any]


@dataclass
class Trainee:
    """Everything that changes from step to step."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None
    average: Average
    clip_norm: ClipNorm
    history: History
    step: int = 0
    sources: tuple[str, ...] = ()  # where noise and sampling came from, one for each part of the run


_UNRECORDED = ("a source that was not recorded",)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read; nothing has been restored yet."""

    step: int
    run: str
    head: str
    identity: Identity
    packed: dict[str, Any]
    tensors: dict[str, Tensor]
    sources: tuple[str, ...] = _UNRECORDED


def identity_of(
    plan: TrainingPlan,
    model: nn.Module,
    optimizer: Optimizer,
    scheduler: LRScheduler | None,
    dataset: dict[str, Any],
    account: str,
) -> Identity:
    """What must be the same when a run goes on. Taken before the first step, in plain JSON values."""
    parameters = {name: value.requires_grad for name, value in model.named_parameters(remove_duplicate=False)}
    described = {
        "plan": plan_text.to_dict(plan),
        "model": {
            name: [list(value.shape), str(value.dtype), parameters.get(name, False)]
            for name, value in model.state_dict().items()
        },
        "optimizer": _optimizer_settings(optimizer),
        "scheduler": None if scheduler is None else _scheduler_settings(scheduler),
        "data set": dataset,
        "ledger account": account,
    }
    return dict(json.loads(json.dumps(described)))


def _optimizer_settings(optimizer: Optimizer) -> dict[str, Any]:
    groups = []
    for group in optimizer.param_groups:  # a scheduler adds initial_lr, and is compared for itself
        settings = {key: value for key, value in group.items() if key not in ("params", "param_names", "initial_lr")}
        groups.append({"parameters": len(group["params"]), **_plain(settings)})
    return {"class": type(optimizer).__name__, "groups": groups}


def _scheduler_settings(scheduler: LRScheduler) -> dict[str, Any]:
    return {"class": type(scheduler).__name__, "state": _plain(scheduler.state_dict())}


def _plain(value: Any) -> Any:
    """Only to compare: tensors and other objects by what they print."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def write(path: Path, trainee: Trainee, identity: Identity, *, run: str, head: str, team: Team) -> None:
    """Replace the checkpoint; in a team the first process writes, the same file whatever their number."""
    tensors: dict[str, Tensor] = {f"model/{name}": value for name, value in trainee.model.state_dict().items()}
    tensors |= {f"average/{name}": value for name, value in trainee.average.values.items()}
    tensors |= {f"history/{name}": value for name, value in trainee.history.to_tensors().items()}
    packed = {
        "optimizer": pack(trainee.optimizer.state_dict(), tensors, "optimizer"),
        "scheduler": None if trainee.scheduler is None else pack(trainee.scheduler.state_dict(), tensors, "scheduler"),
        "average steps": trainee.average.steps,
        "clip norm": trainee.clip_norm.value if trainee.clip_norm.value < float("inf") else None,
    }
    content = {"format": FORMAT, "step": trainee.step, "run": run, "head": head, "identity": identity, "packed": packed}
    content["sources"] = trainee.sources
    whole = gathered(tensors, team)
    team.by_first(lambda: write_tensors(path, whole, {"hush": json.dumps(content)}))


def shared(saved: Checkpoint | None, trainee: Trainee, team: Team) -> Checkpoint | None:
    """The first process's checkpoint for all, each with its part of what is sharded."""
    facts: Any = team.by_first(lambda: None if saved is None else [saved.step, saved.run, saved.packed, saved.sources])
    if facts is None:
        return None
    step, run, packed, sources = facts
    like = _likenesses(trainee)
    tensors = {name: like(name, value) for name, value in team.tensors(None if saved is None else saved.tensors)}
    return Checkpoint(step=step, run=run, head="", identity={}, packed=packed, tensors=tensors, sources=tuple(sources))


def _likenesses(trainee: Trainee) -> Callable[[str, Tensor], Tensor]:
    """Shards a checkpoint's tensor as the trainee has it; an optimizer's state as its parameter, if of that shape."""
    held = [value for group in trainee.optimizer.param_groups for value in group["params"]]
    known = {f"model/{name}": value for name, value in trainee.model.state_dict().items()}
    known |= {f"average/{name}": value for name, value in trainee.average.values.items()}
    known |= {f"optimizer/state/{place}": value for place, value in enumerate(held)}

    def like(name: str, value: Tensor) -> Tensor:
        found = known.get(name, known.get(name.rpartition("/")[0]))
        is_part = found is not None and is_sharded(found) and found.shape == value.shape
        return part_like(value, found) if is_part else value

    return like


def read(path: Path) -> Checkpoint:
    """The checkpoint in a file."""
    tensors, metadata = read_tensors(path)
    try:
        content = json.loads(metadata["hush"])
        if content.pop("format") != FORMAT:
            raise UnreadableFile(f"{path.name} has another format than this Hush reads ({FORMAT}).")
        sources = tuple(str(source)[:100] for source in content.pop("sources", _UNRECORDED))
        return Checkpoint(tensors=tensors, sources=sources, **content)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        if isinstance(error, UnreadableFile):
            raise
        raise UnreadableFile(f"{path.name} is not a checkpoint of Hush: {str(error)[:80]}.") from None


def check_same(checkpoint: Checkpoint, identity: Identity) -> None:
    """Refuse to go on with anything changed, and say what."""
    for part, now in identity.items():
        then = checkpoint.identity.get(part)
        if then != now:
            raise ResumeRefused(f"the {part} is not the one of the checkpoint: {_difference(then, now, '')}.")


def _difference(then: Any, now: Any, place: str) -> str:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in [*then, *(key for key in now if key not in then)]:
            if (key in then) != (key in now):
                return f"{place}{key} is {'gone' if key in then else 'new'}"
            if then[key] != now[key]:
                return _difference(then[key], now[key], f"{place}{key} ")
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for left, right in zip(then, now, strict=True):
            if left != right and (isinstance(left, dict | list) and isinstance(right, dict | list)):
                return _difference(left, right, place)
    return f"{place}was {_short(then)} and is {_short(now)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def restore(trainee: Trainee, checkpoint: Checkpoint) -> None:
    """Put the trainee where the checkpoint was."""
    tensors = checkpoint.tensors

    def under(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

    load_weights(trainee.model, under("model/"))
    trainee.optimizer.load_state_dict(unpack(checkpoint.packed["optimizer"], tensors))
    if trainee.scheduler is not None:
        trainee.scheduler.load_state_dict(unpack(checkpoint.packed["scheduler"], tensors))
    for name, value in under("average/").items():
        local(trainee.average.values[name]).copy_(local(value))
    trainee.average.steps = int(checkpoint.packed["average steps"])
    if checkpoint.packed["clip norm"] is not None:
        trainee.clip_norm.value = float(checkpoint.packed["clip norm"])
    trainee.history = History.from_tensors(under("history/"))
    trainee.step = checkpoint.step
    before = checkpoint.sources
    trainee.sources = before if before[-1:] == trainee.sources else (*before, *trainee.sources)

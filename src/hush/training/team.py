"""The processes that train one model together, and what they say to each other.

A script that calls `fit` or `PrivateGradients` joins the others by itself when `torchrun` started it; a process group
that the script has made is used as it is. Words go as JSON and tensors as they are: nothing is ever unpickled.
"""

from __future__ import annotations

import atexit
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hush import errors
from hush.errors import HushError, InvalidValue, WorkerLost
from hush.rng import Rng

T = TypeVar("T")
_TRANSPORT = re.compile(r"gloo|nccl|connection (closed|reset)|timed out|socket", re.IGNORECASE)
TIMEOUT = timedelta(minutes=10)  # a process that is silent for longer is lost


class Team:
    """This process and the others: `rank` of `size`. A team of one says and waits for nothing."""

    def __init__(self, rank: int = 0, size: int = 1, device: torch.device | None = None) -> None:
        self.rank, self.size = rank, size
        self._device = device or torch.device("cpu")

    @classmethod
    def current(cls, device: torch.device | None = None) -> Team:
        """The team that this process was started in; messages travel on `device` where the CPU cannot carry them."""
        if not dist.is_available():
            return cls()
        if not dist.is_initialized():
            if not dist.is_torchelastic_launched() or int(os.environ["WORLD_SIZE"]) == 1:
                return cls()
            with lost():
                dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
            atexit.register(_leave)
        if "gloo" in str(dist.get_backend_config()):
            device = torch.device("cpu")
        elif device is None:
            device = torch.device("cuda", torch.cuda.current_device())
        return cls(dist.get_rank(), dist.get_world_size(), device)

    @property
    def is_first(self) -> bool:
        """Whether this process keeps the books and writes the files."""
        return self.rank == 0

    def by_first(self, work: Callable[[], T]) -> T:
        """What the first process makes, in JSON values, for all; its error is raised in all."""
        if self.size == 1:
            return work()
        value, failure = None, None
        if self.is_first:
            try:
                value = work()
            except Exception as error:
                failure = error
        answer = self._say({"value": value, "error": _described(failure)})
        _raise(failure, answer["error"], 0)
        return answer["value"]

    def alone_first(self, work: Callable[[], T]) -> T | None:
        """What the first process makes, for itself; its error is raised in all."""
        made: list[T] = []
        self.by_first(lambda: made.append(work()))
        return made[0] if made else None

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes of a small tensor."""
        if self.size == 1:
            return values
        moved = values.to(self._device, copy=True)
        with lost():
            dist.all_reduce(moved)
        return moved.to(values.device)

    def most(self, number: int) -> int:
        """The largest of the processes' numbers."""
        if self.size == 1:
            return number
        value = torch.tensor([number], device=self._device)
        with lost():
            dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return int(value)

    def add_up(self, values: list[float], failure: Exception | None) -> list[float]:
        """The sums of the processes' numbers, or the first failure of any of them, raised in all."""
        if self.size == 1:
            if failure is not None:
                raise failure
            return values
        sums: list[float] = self.total(
            torch.tensor([float(failure is not None), *values], dtype=torch.float64)
        ).tolist()
        if sums[0]:
            self._raise_first(failure)
        return sums[1:]

    def agree(self, parts: Mapping[str, Any]) -> None:
        """Raise in all processes if one has other parts, given as JSON values, than the first."""
        if self.size == 1:
            return
        mine = {name: json.loads(json.dumps(part)) for name, part in parts.items()}
        theirs = self._say(mine)
        other = next((name for name, part in theirs.items() if mine.get(name) != part), None)
        message = (
            f"the {other} of rank {self.rank} is not that of rank 0; all processes of a run must be given the same."
        )
        self.add_up([], None if other is None else InvalidValue(message))

    def tensors(self, given: Mapping[str, Tensor] | None) -> Iterator[tuple[str, Tensor]]:
        """The first process's tensors, for all, one after another."""
        if self.size == 1:
            yield from (given or {}).items()
            return
        forms = self._say([[name, list(value.shape), str(value.dtype)] for name, value in (given or {}).items()])
        for name, shape, dtype in forms:
            if self.is_first and given is not None:
                value = given[name].detach().to(self._device).contiguous()
            else:
                value = torch.empty(shape, dtype=getattr(torch, dtype.removeprefix("torch.")), device=self._device)
            self.broadcast(value)
            yield name, value

    def broadcast(self, value: Tensor, source: int = 0) -> None:
        """Fill the tensor with that of the process `source`."""
        if self.size > 1 and value.numel():
            with lost():
                dist.broadcast(value, source)

    def sampling(self, rng: Rng) -> Rng:
        """One source for all processes, so that all draw the same lot: the seed, or a secret of the first process."""
        if self.size == 1:
            return rng
        self.agree({"seed of rng": rng.seed})
        if not rng.is_secret:
            return rng
        secret = torch.zeros(64, dtype=torch.uint8)
        if self.is_first:
            secret = torch.frombuffer(bytearray(rng.hand_over()), dtype=torch.uint8)
        moved = secret.to(self._device)
        self.broadcast(moved)
        return rng.taken_over(moved.cpu().numpy().tobytes())

    def noise(self, rng: Rng) -> Rng:
        """A source of this process alone, which no other has, even where they began with the same one."""
        return rng if self.size == 1 else rng.child(rng.unused(f"rank {self.rank} of {self.size}"))

    def _say(self, value: Any, source: int = 0) -> Any:
        """The JSON value of the process `source`, for all."""
        data = bytearray(json.dumps(value).encode()) if self.rank == source else bytearray()
        size = torch.tensor([len(data)], device=self._device)
        self.broadcast(size, source)
        text = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(int(size), dtype=torch.uint8)
        moved = text.to(self._device)
        self.broadcast(moved, source)
        return json.loads(moved.cpu().numpy().tobytes())

    def _raise_first(self, failure: Exception | None) -> None:
        """Raise, in all processes, the failure of the one with the lowest rank that has one."""
        mine = self.rank if failure is not None else self.size
        source = -self.most(-mine)
        _raise(failure if self.rank == source else None, self._say(_described(failure), source), source)


def _leave() -> None:
    with suppress(Exception):
        dist.destroy_process_group()


def _described(failure: Exception | None) -> list[str] | None:
    return None if failure is None else [type(failure).__name__, str(failure)]


def _raise(own: Exception | None, described: list[str] | None, source: int) -> None:
    """The error of this process itself, or one like that of another."""
    if own is not None:
        raise own
    if described is not None:
        name, message = described
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, HushError):
            raise kind(message)
        raise WorkerLost(
            f"rank {source} stopped with {name}: {message[:300]}; mend that and start all processes again."
        )


@contextmanager
def lost(*, elsewhere: bool = True) -> Iterator[None]:
    """Say in one line that another process is gone; elsewhere=False: unless the words are not the transport's."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, HushError) or not (elsewhere or _TRANSPORT.search(str(error))):
            raise
        reason = " ".join(str(error).split())[:160]
        raise WorkerLost(
            f"another process of this run ended or does not answer ({reason}); nothing of this step was released and "
            "all that was charged stays charged. Start all processes again, with resume=True where there is a folder."
        ) from error

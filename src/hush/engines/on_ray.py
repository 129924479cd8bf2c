"""Tasks on Ray: this machine's cores, or a cluster.

What all tasks share is put into Ray's object store once; workers on one machine read the same copy. A task whose worker
dies is tried again with the same arguments. An error of the task itself is not: it would come again.

Rows that a task needs leave this process: they are in the object store, on the workers' machines and, where memory is
short, in Ray's spill files. Use a cluster that may see them. Ray runs whatever anybody sends who reaches its ports (and
has its token, where it asks for one); keep them closed to others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hush import _check
from hush.errors import MissingExtra, WorkerLost

if TYPE_CHECKING:
    from hush.engines.engine import Done, Task

_AHEAD = 2  # tasks handed over for each that can run, so that no worker waits


@dataclass(frozen=True)
class Ray:
    """A Ray cluster.

    Args:
        address: Of the cluster, such as "auto", "10.0.0.1:6379" or "ray://10.0.0.1:10001". By default the one that is
            connected already, or that RAY_ADDRESS names; otherwise Ray starts on this machine.
        retries: How often a task is tried again whose worker died.
        cpus_per_task: Cores that a task reserves; Ray lets it use as many threads.
    """

    address: str | None = None
    retries: int = 3
    cpus_per_task: int = 1

    def __post_init__(self) -> None:
        _check.whole("retries", self.retries, least=0)
        _check.whole("cpus_per_task", self.cpus_per_task)

    def run(self, task: Task, items: Iterable[Any], *, shared: tuple[Any, ...] = (), done: Done) -> None:
        """Results are handed over as they come; those not yet asked for stay in the object store."""
        ray = self._connected()
        kept = [ray.put(value) for value in shared]
        remote = ray.remote(num_cpus=self.cpus_per_task, max_retries=self.retries, retry_exceptions=False)(
            lambda item, *rest: task(item, *rest)  # Ray takes functions alone, and a task may be any callable
        )
        most = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)) // self.cpus_per_task)
        pending: dict[Any, int] = {}
        numbered = enumerate(items)
        try:
            while _fill(pending, numbered, most, lambda item: remote.remote(item, *kept)):
                (first, *_), _ = ray.wait(list(pending), num_returns=1)
                done(pending.pop(first), _result(ray, first))
        finally:
            for left in pending:
                ray.cancel(left, force=True)

    def _connected(self) -> Any:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told that these tasks ran
        os.environ.setdefault(
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
        )  # its new way: a task without GPUs sees none taken
        try:
            import ray
        except ImportError:
            raise MissingExtra("engine 'ray' needs Ray; run: pip install 'hush[scale]'") from None
        if not ray.is_initialized():
            try:
                own: dict[str, Any] = (
                    {} if self.address or os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}
                )
                ray.init(address=self.address, log_to_driver=False, **own)
            except Exception as error:  # Ray raises many kinds, the bare one among them
                reason = " ".join(str(error).split())[:200]
                raise WorkerLost(f"no Ray cluster at {self.address or 'this machine'}: {reason}") from None
        return ray


def _fill(pending: dict[Any, int], numbered: Iterator[tuple[int, Any]], most: int, submit: Any) -> bool:
    """Hand over tasks until `most` are under way; whether any is."""
    while len(pending) < most:
        try:
            number, item = next(numbered)
        except StopIteration:
            break
        pending[submit(item)] = number
    return bool(pending)


def _result(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # what the task itself raised
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise WorkerLost("a task failed with an error that could not be brought back from its worker.") from None
    except ray.exceptions.RayError as error:
        kind = type(error).__name__
        raise WorkerLost(f"a task was lost with its worker, also when it was tried again ({kind}).") from None

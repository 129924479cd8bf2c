"""The other accountants, each at its default settings, behind one call."""

from __future__ import annotations

import gc
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from benchmarks.accounting.settings import Setting


class TooSlow(Exception):
    """A peer did not answer in the time it was given."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of the processor's time: other work on the machine is not counted
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _dp_accounting_relation(setting: Setting) -> Any:
    from dp_accounting.privacy_accountant import NeighboringRelation

    name = {"add_remove": "ADD_OR_REMOVE_ONE", "replace_one": "REPLACE_ONE"}[setting.relation]
    return getattr(NeighboringRelation, name)


def pld(setting: Setting) -> float:
    """dp-accounting's privacy loss distributions, pessimistic, grid 1e-4 (its default)."""
    from dp_accounting.pld import PLDAccountant

    from hush.events import to_dp_accounting

    accountant = PLDAccountant(_dp_accounting_relation(setting))
    return float(accountant.compose(to_dp_accounting(setting.event)).get_epsilon(setting.delta))


def pld_optimistic(setting: Setting) -> float:
    """The same from below: a lower bound on epsilon (the larger of the two directions)."""
    from dp_accounting.pld import privacy_loss_distribution as distributions

    total = None
    for prob, noise, steps in setting.phases:
        part = distributions.from_gaussian_mechanism(
            noise,
            value_discretization_interval=1e-4,
            pessimistic_estimate=False,
            use_connect_dots=False,
            sampling_prob=prob,
            neighboring_relation=_dp_accounting_relation(setting),
        ).self_compose(steps)
        total = part if total is None else total.compose(part)
    return float(total.get_epsilon_for_delta(setting.delta))


def opacus_prv(setting: Setting) -> float:
    """Opacus' PRV accountant (absolute error 0.01, its default)."""
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(noise, prob, steps) for prob, noise, steps in setting.phases]
    return float(accountant.get_epsilon(setting.delta))


def microsoft_prv(setting: Setting) -> float:
    """prv-accountant's upper end, absolute error 0.01."""
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    mechanisms = [
        PoissonSubsampledGaussianMechanism(noise_multiplier=noise, sampling_probability=prob)
        for prob, noise, _ in setting.phases
    ]
    steps = [steps for _, _, steps in setting.phases]
    accountant = PRVAccountant(
        prvs=mechanisms, max_self_compositions=steps, eps_error=0.01, delta_error=setting.delta / 1000
    )
    return float(accountant.compute_epsilon(setting.delta, steps)[2])


PEERS: dict[str, Callable[[Setting], float]] = {
    "dp-accounting PLD": pld,
    "Opacus PRV": opacus_prv,
    "prv-accountant": microsoft_prv,
}


def quiet(peer: Callable[[Setting], float], setting: Setting, allowance: float) -> tuple[float, float | str]:
    """The seconds that the peer took, and its answer or why there is none."""
    gc.collect()  # what earlier answers left behind is not this one's cost
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        try:
            with at_most(allowance):
                answer: float | str = peer(setting)
        except TooSlow:
            answer = f"over {allowance:g} s"
        except Exception as error:  # whatever a peer raises is its answer
            answer = type(error).__name__
        return time.perf_counter() - start, answer

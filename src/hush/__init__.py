"""Machine learning with differential privacy: train privately, know what it cost, prove it, attack it.

The names are looked up on first use, so that `hush.accounting` and the command line never load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hush import accounting as accounting
    from hush import attacks as attacks
    from hush import audit as audit
    from hush import data as data
    from hush import errors as errors
    from hush import events as events
    from hush import features as features
    from hush import gradients as gradients
    from hush import ledger as ledger
    from hush import linear as linear
    from hush import mechanisms as mechanisms
    from hush import pate as pate
    from hush import planner as planner
    from hush import prompts as prompts
    from hush import report as report
    from hush import rng as rng
    from hush import sampling as sampling
    from hush import training as training
    from hush.gradients import ClippedSum as ClippedSum
    from hush.gradients import check_isolation as check_isolation
    from hush.gradients import clipped_sum as clipped_sum
    from hush.ledger import Ledger as Ledger
    from hush.privacy import Budget as Budget
    from hush.privacy import Evidence as Evidence
    from hush.privacy import Guarantee as Guarantee
    from hush.rng import Rng as Rng
    from hush.training import PrivateGradients as PrivateGradients
    from hush.training import Run as Run
    from hush.training import TrainingPlan as TrainingPlan
    from hush.training import fit as fit

_HOME = {
    "Budget": "hush.privacy",
    "ClippedSum": "hush.gradients",
    "Evidence": "hush.privacy",
    "Guarantee": "hush.privacy",
    "Ledger": "hush.ledger",
    "PrivateGradients": "hush.training",
    "Rng": "hush.rng",
    "Run": "hush.training",
    "TrainingPlan": "hush.training",
    "check_isolation": "hush.gradients",
    "clipped_sum": "hush.gradients",
    "fit": "hush.training",
}
_ROOMS = (
    "accounting", "attacks", "audit", "data", "errors", "events", "features", "gradients", "ledger", "linear",
    "mechanisms", "pate", "planner", "privacy", "prompts", "report", "rng", "sampling", "training",
)  # fmt: skip

__all__ = sorted([*_HOME, *_ROOMS])


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _ROOMS:
        return import_module(f"hush.{name}")
    if name == "__version__":
        return import_module("importlib.metadata").version("hush")
    raise AttributeError(f"module 'hush' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

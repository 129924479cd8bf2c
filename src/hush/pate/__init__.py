"""Private aggregation of teacher ensembles: teachers on disjoint data vote, a noisy vote labels public examples.

The names are looked up on first use, so that votes and their costs never load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hush.pate import analysis as analysis
    from hush.pate.aggregate import Answers as Answers
    from hush.pate.aggregate import ConfidentGNMax as ConfidentGNMax
    from hush.pate.aggregate import GNMax as GNMax
    from hush.pate.aggregate import LNMax as LNMax
    from hush.pate.calibrate import noise_for as noise_for
    from hush.pate.calibrate import queries_for as queries_for
    from hush.pate.calibrate import synthetic_votes as synthetic_votes
    from hush.pate.calibrate import tune_threshold as tune_threshold
    from hush.pate.cost import PateCost as PateCost
    from hush.pate.cost import UnpublishableEpsilon as UnpublishableEpsilon
    from hush.pate.cost import cost_of as cost_of
    from hush.pate.interactive import InteractiveGNMax as InteractiveGNMax
    from hush.pate.sanitise import ReleasePlan as ReleasePlan
    from hush.pate.student import train_student as train_student
    from hush.pate.teachers import train_teachers as train_teachers
    from hush.pate.votes import VoteCounts as VoteCounts

_HOME = {
    "Answers": "hush.pate.aggregate",
    "ConfidentGNMax": "hush.pate.aggregate",
    "GNMax": "hush.pate.aggregate",
    "InteractiveGNMax": "hush.pate.interactive",
    "LNMax": "hush.pate.aggregate",
    "PateCost": "hush.pate.cost",
    "ReleasePlan": "hush.pate.sanitise",
    "UnpublishableEpsilon": "hush.pate.cost",
    "VoteCounts": "hush.pate.votes",
    "cost_of": "hush.pate.cost",
    "noise_for": "hush.pate.calibrate",
    "queries_for": "hush.pate.calibrate",
    "synthetic_votes": "hush.pate.calibrate",
    "train_student": "hush.pate.student",
    "train_teachers": "hush.pate.teachers",
    "tune_threshold": "hush.pate.calibrate",
}
_PARTS = ("analysis",)

__all__ = [
    "Answers",
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "PateCost",
    "ReleasePlan",
    "UnpublishableEpsilon",
    "VoteCounts",
    "analysis",
    "cost_of",
    "noise_for",
    "queries_for",
    "synthetic_votes",
    "train_student",
    "train_teachers",
    "tune_threshold",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _PARTS:
        return import_module(f"hush.pate.{name}")
    raise AttributeError(f"module 'hush.pate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

"""Federated averaging with central differential privacy for whole clients, on Flower.

The names are looked up on first use: `PrivateRounds` needs torch alone, the strategies and the mod need Flower.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hush.federated.grpc import PrivateFedAvgServer as PrivateFedAvgServer
    from hush.federated.mod import clip_update as clip_update
    from hush.federated.rounds import PrivateRounds as PrivateRounds
    from hush.federated.rounds import RoundReport as RoundReport
    from hush.federated.strategy import PrivateFedAvg as PrivateFedAvg

_HOME = {
    "PrivateFedAvg": "hush.federated.strategy",
    "PrivateFedAvgServer": "hush.federated.grpc",
    "PrivateRounds": "hush.federated.rounds",
    "RoundReport": "hush.federated.rounds",
    "clip_update": "hush.federated.mod",
}

__all__ = ["PrivateFedAvg", "PrivateFedAvgServer", "PrivateRounds", "RoundReport", "clip_update"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'hush.federated' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

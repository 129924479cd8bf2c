"""Records what a fit hands to the Gaussian mechanism, in place of noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy
import pytest

from hush import mechanisms


@dataclass
class Releases:
    """Exact values with the sensitivity that the noise was made for."""

    values: list[numpy.ndarray] = field(default_factory=list)
    sensitivities: list[float] = field(default_factory=list)
    noises: list[float] = field(default_factory=list)

    def __call__(self, value: Any, *, sensitivity: float, noise_multiplier: float, rng: object) -> Any:
        self.values.append(numpy.array(value, dtype=float))
        self.sensitivities.append(sensitivity)
        self.noises.append(noise_multiplier)
        return value


def recorded(monkeypatch: pytest.MonkeyPatch) -> Releases:
    releases = Releases()
    monkeypatch.setattr(mechanisms, "gaussian", releases)
    return releases

"""The step that the ledger's tests charge."""

from __future__ import annotations

from hush import events

STEP = events.PoissonSampled(events.Gaussian(noise_multiplier=4.0), sampling_prob=0.01)

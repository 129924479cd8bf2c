"""The discretised accountant: any event with a dominating pair, by losses on a grid. See `solve` for its answers."""

from hush.accounting.grid.solve import SMALLEST_DELTA, delta_interval, epsilon_interval

__all__ = ["SMALLEST_DELTA", "delta_interval", "epsilon_interval"]

"""The discretised accountant: any event with a dominating pair, by losses on a grid. See `solve` for its answers."""

from hush.accounting.grid.solve import delta_interval, epsilon_interval

__all__ = ["delta_interval", "epsilon_interval"]

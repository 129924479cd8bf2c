"""The exact accountant: an interval that holds the truth. `docs/theory/contour.md` has the mathematics."""

from hush.accounting.exact.answer import delta_interval, epsilon_interval

__all__ = ["delta_interval", "epsilon_interval"]

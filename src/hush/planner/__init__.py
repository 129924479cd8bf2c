"""The planner: a local page that says what a training will cost while its settings are moved. `hush plan` starts it."""

from hush.planner.address import serve
from hush.planner.question import Question

__all__ = ["Question", "serve"]

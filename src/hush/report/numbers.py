"""Numbers as a report prints them. A rule says which side is the safe one.

>>> shown(2.9999999677936575), shown(1e-05), shown(0.1)
('3', '1e-05', '0.1')
>>> shown(0.6914624, "percent up"), shown(0.82345678, "down"), shown(12345, "count")
('69.15 %', '0.823456', '12,345')
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from typing import Literal

Rule = Literal["up", "down", "near", "percent up", "percent down", "percent", "count", "as is"]
_ROUNDING = {"up": ROUND_CEILING, "down": ROUND_FLOOR, "": ROUND_HALF_EVEN, "near": ROUND_HALF_EVEN}
_DIGITS, _PERCENT_DIGITS = 6, 4


def shown(value: object, rule: Rule = "up") -> str:
    """The value in a few significant digits, on the rule's side of the truth; texts stay as they are."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return "infinite" if value == "infinity" else "none" if value is None else str(value)
    if not math.isfinite(value):
        return "infinite"
    if isinstance(value, int) and not rule.startswith("percent"):
        return f"{value:,}"
    if rule == "as is":
        return repr(value)
    if rule.startswith("percent"):
        side = _ROUNDING[rule.removeprefix("percent").strip()]
        share = Context(prec=_PERCENT_DIGITS, rounding=side).create_decimal(repr(float(value))) * 100
        return f"{share.normalize():f} %"
    return f"{float(Context(prec=_DIGITS, rounding=_ROUNDING[rule]).create_decimal(repr(value))):.{_DIGITS}g}"

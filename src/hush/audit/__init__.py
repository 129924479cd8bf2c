"""Audits: attack a training that you can run or watch, and get an epsilon that it does not stay below."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hush.audit.black_box import audit as audit
    from hush.audit.gradient_canaries import GradientCanaries as GradientCanaries
    from hush.audit.neighbours import audit_neighbours as audit_neighbours
    from hush.audit.one_run import one_run_bound as one_run_bound
    from hush.audit.one_run_fdp import one_run_fdp_bound as one_run_fdp_bound
    from hush.audit.rates import clopper_pearson_bound as clopper_pearson_bound
    from hush.audit.rates import gdp_bound as gdp_bound
    from hush.audit.ratios import ratio_lower_end as ratio_lower_end
    from hush.audit.result import AuditResult as AuditResult
    from hush.audit.white_box import WhiteBox as WhiteBox
    from hush.audit.white_box import WhiteBoxAudit as WhiteBoxAudit

_HOME = {
    "AuditResult": "result",
    "GradientCanaries": "gradient_canaries",
    "WhiteBox": "white_box",
    "WhiteBoxAudit": "white_box",
    "audit": "black_box",
    "audit_neighbours": "neighbours",
    "clopper_pearson_bound": "rates",
    "gdp_bound": "rates",
    "one_run_bound": "one_run",
    "one_run_fdp_bound": "one_run_fdp",
    "ratio_lower_end": "ratios",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

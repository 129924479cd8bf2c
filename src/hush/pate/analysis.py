"""What votes cost by what they were: Rényi bounds that fall as the teachers agree.

    >>> log_q = log_miss_probability([240, 10], stddev=40.0)
    >>> round(log_q, 10)
    -10.6404854817
    >>> gnmax_rdp(log_q, stddev=40.0, orders=2.0) < 8.5e-6  # whatever the votes are, it is 2 / 40^2 = 0.00125 at most
    True

**These numbers are functions of private votes. Publishing one is a leak**, and so is choosing a threshold or a noise by
them. `hush.pate.cost` keeps them in a type that says so, and releases one with noise, at its own price.
"""

from hush.pate.consensus import (
    PAPER_ORDERS,
    best_epsilon,
    gnmax_rdp,
    lnmax_log_miss_probability,
    lnmax_rdp,
    log_answer_probability,
    log_miss_probability,
    threshold_rdp,
)
from hush.pate.smooth import gnmax_local_sensitivity, threshold_local_sensitivity

__all__ = [
    "PAPER_ORDERS",
    "best_epsilon",
    "gnmax_local_sensitivity",
    "gnmax_rdp",
    "lnmax_log_miss_probability",
    "lnmax_rdp",
    "log_answer_probability",
    "log_miss_probability",
    "threshold_local_sensitivity",
    "threshold_rdp",
]

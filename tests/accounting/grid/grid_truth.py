"""Slow, independent values: 40-digit densities and quadrature, direct convolution, exact binomials."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath

mpmath.mp.dps = 40


def normal(mu: float) -> Callable[[object], mpmath.mpf]:
    """Curve of N(mu, 1) against N(0, 1)."""
    mu = mpmath.mpf(mu)

    def curve(epsilon: object) -> mpmath.mpf:
        e = mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)

    return curve


def mixture_curve(left: list, right: list, threshold: Callable[[mpmath.mpf], mpmath.mpf], s: float):
    """Curve of sums of weight * N(mean, s^2), `left` against `right`, with a loss that increases in the outcome."""
    s = mpmath.mpf(s)

    def curve(epsilon: object) -> mpmath.mpf:
        e = mpmath.mpf(epsilon)
        x = threshold(e)
        if x is None:
            return mpmath.mpf(0)

        def tail(parts: list) -> mpmath.mpf:
            return mpmath.fsum(mpmath.mpf(w) * mpmath.ncdf(-(x - m) / s) for w, m in parts)

        return tail(left) - mpmath.exp(e) * tail(right)

    return curve


def sampled_remove(s: float, q: float):
    """(1-q) N(0) + q N(1) against N(0)."""
    s_, q_ = mpmath.mpf(s), mpmath.mpf(q)

    def threshold(e: mpmath.mpf) -> mpmath.mpf:
        inside = (mpmath.exp(e) - 1 + q_) / q_
        return s_**2 * mpmath.log(inside) + mpmath.mpf(1) / 2 if inside > 0 else -mpmath.inf

    return mixture_curve([(1 - q_, 0), (q_, 1)], [(mpmath.mpf(1), 0)], threshold, s)


def sampled_add(s: float, q: float):
    """The reverse pair, from the identity D_{Q|P}(e) = 1 - t + t D_{P|Q}(-e)."""
    forward = sampled_remove(s, q)

    def curve(epsilon: object) -> mpmath.mpf:
        e = mpmath.mpf(epsilon)
        return 1 - mpmath.exp(e) + mpmath.exp(e) * forward(-e)

    return curve


def replace_normal(s: float, q: float):
    """(1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1), the threshold by root finding."""
    s_, q_ = mpmath.mpf(s), mpmath.mpf(q)

    def loss(x: mpmath.mpf) -> mpmath.mpf:
        up = 1 - q_ + q_ * mpmath.exp((2 * x - 1) / (2 * s_**2))
        return mpmath.log(up) - mpmath.log(1 - q_ + q_ * mpmath.exp((-2 * x - 1) / (2 * s_**2)))

    def threshold(e: mpmath.mpf) -> mpmath.mpf:
        width = mpmath.mpf(1)
        while loss(width) < abs(e):
            width *= 2
        low, high = -width, width
        for _ in range(280):
            middle = (low + high) / 2
            low, high = (middle, high) if loss(middle) < e else (low, middle)
        return high

    return mixture_curve([(1 - q_, 0), (q_, 1)], [(1 - q_, 0), (q_, -1)], threshold, s)


def two_sampled_normals(s: float, q: float, epsilon: float) -> mpmath.mpf:
    """Delta of two releases, remove direction: the expectation over the first of the second's curve."""
    s_, q_ = mpmath.mpf(s), mpmath.mpf(q)
    curve = sampled_remove(s, q)

    def integrand(x: mpmath.mpf) -> mpmath.mpf:
        density = (1 - q_) * mpmath.npdf(x, 0, s_) + q_ * mpmath.npdf(x, 1, s_)
        return density * curve(epsilon - mpmath.log(1 - q_ + q_ * mpmath.exp((2 * x - 1) / (2 * s_**2))))

    # The second's curve turns linear where its argument passes log(1-q); left of there it varies with the log of the
    # distance, so the pieces shrink geometrically.
    kink = s_**2 * mpmath.log((mpmath.exp(epsilon) / (1 - q_) - 1 + q_) / q_) + mpmath.mpf(1) / 2
    far = [kink - mpmath.mpf(4) ** k for k in range(-14, 3)]
    ends = [kink + k * s_ for k in (1, 2, 4, 8, 16)]
    with mpmath.workdps(25):
        even = [-12 * s_ + k * s_ for k in range(40) if -12 * s_ + k * s_ < kink + 8 * s_]
        pieces = sorted([*far, kink, *ends, kink - 40 * s_, *even])
        return mpmath.quad(integrand, pieces)


def laplace(top: float):
    """Curve of Laplace noise with losses in [-top, top]."""
    top_ = mpmath.mpf(top)

    def curve(epsilon: object) -> mpmath.mpf:
        e = mpmath.mpf(epsilon)
        if e >= top_:
            return mpmath.mpf(0)
        return 1 - mpmath.exp(e) if e <= -top_ else 1 - mpmath.exp((e - top_) / 2)

    return curve


def two_laplaces(first: float, second: float, epsilon: float) -> mpmath.mpf:
    """Delta of two releases of Laplace noise: the first's loss has two atoms and the density e^((l - top)/2) / 4."""
    a, curve = mpmath.mpf(first), laplace(second)
    kinks = sorted({-a, a, *(k for k in (epsilon - mpmath.mpf(second), epsilon + mpmath.mpf(second)) if -a < k < a)})
    middle = mpmath.quad(lambda x: mpmath.exp((x - a) / 2) / 4 * curve(epsilon - x), kinks)
    return curve(epsilon - a) / 2 + mpmath.exp(-a) / 2 * curve(epsilon + a) + middle


def responses(epsilon: float, times: int, at: float) -> mpmath.mpf:
    """Delta of `times` randomized responses, the exact sum of [kairouz15]."""
    e, x = mpmath.mpf(epsilon), mpmath.mpf(at)
    p = 1 / (1 + mpmath.exp(-e))
    terms = (
        math.comb(times, lies)
        * p ** (times - lies)
        * (1 - p) ** lies
        * max(0, 1 - mpmath.exp(x - (times - 2 * lies) * e))
        for lies in range(times + 1)
    )
    return mpmath.fsum(terms)


def atoms_delta(parts: list[tuple[list[tuple[float, float]], int]], epsilon: float) -> mpmath.mpf:
    """Delta of a composition of pairs given by (loss, mass), by direct convolution of exact losses."""
    total: dict[Fraction, mpmath.mpf] = {Fraction(0): mpmath.mpf(1)}
    for atoms, count in parts:
        for _ in range(count):
            following: dict[Fraction, mpmath.mpf] = {}
            for loss, mass in total.items():
                for step, weight in atoms:
                    key = loss + Fraction(step)
                    following[key] = following.get(key, mpmath.mpf(0)) + mass * mpmath.mpf(weight)
            total = following
    at = Fraction(epsilon)
    excess = (
        (mass, mpmath.mpf((at - loss).numerator) / (at - loss).denominator) for loss, mass in total.items() if loss > at
    )
    return mpmath.fsum(-mass * mpmath.expm1(gap) for mass, gap in excess)

"""Random valid command lines of `hush epsilon`, `explain` and `calibrate`, over all that their options allow."""

from __future__ import annotations

import random

RELATIONS = ("add_remove", "replace_one", "zero_out")
METHODS = ("exact", "rdp", "moments", "basic", "advanced", "optimal", "gdp_clt", "all")
FARTHEST = 300  # powers of ten: nearly the range of floats


def command_line(rng: random.Random) -> list[str]:
    """Return the arguments of one question; every number is inside its domain, usual or far from it."""
    command = rng.choice(("epsilon", "epsilon", "explain", "calibrate"))
    options = {
        "--noise-multiplier": _number(rng, -3, 6),
        "--sampling-prob": "1" if rng.random() < 0.1 else _number(rng, -12, 0, highest=0),
        "--steps": str(rng.choice((1, 2, 10**9, 10**12)) if rng.random() < 0.1 else round(10 ** rng.uniform(0, 12))),
    }
    if command == "calibrate":
        del options[rng.choice(sorted(options))]
        options |= {"--epsilon": _number(rng, -6, 3), "--method": rng.choice(("exact", "exact", "rdp"))}
    if command == "epsilon":
        options["--method"] = rng.choice((*METHODS, "exact", "all"))
    options |= {"--delta": _delta(rng), "--relation": rng.choice(RELATIONS)}
    return [command, *(word for option in options.items() for word in option), "--json"]


def _number(rng: random.Random, low: float, high: float, *, highest: float = FARTHEST) -> str:
    """Return 10 to a power between low and high, or now and then to any power up to the highest."""
    power = rng.uniform(low, high) if rng.random() < 0.8 else rng.uniform(-FARTHEST, highest)
    return f"{10**power:.3g}"


def _delta(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.05:
        return "0"
    if kind < 0.7:
        return f"{10 ** rng.uniform(-15 if kind < 0.55 else -FARTHEST, -1):.3g}"
    return repr(rng.uniform(0.1, 0.99) if kind < 0.85 else 1 - 10 ** rng.uniform(-15.5, -1))

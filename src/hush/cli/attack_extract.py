"""What `hush attack extract` does: from the beginnings of training texts, or by letting the model write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from hush import _check, attacks
from hush.errors import InvalidValue
from hush.rng import Rng

_FIRST = 100  # candidates whose precision is told
_RANKINGS = ("perplexity", "zlib")

Told = tuple[dict[str, Any], list[str]]  # for --json, and in lines


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The options of `hush attack extract --samples`."""

    samples: int
    length: int
    match_length: int
    window: int | None
    seed: int | None


def from_prefixes(factory: str, made: Any, prefix_length: int) -> Told:
    """Does the model go on with its training texts?"""
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[0]):
        raise InvalidValue(f"{factory} must return (model, sequences); got {type(made).__name__}.")
    found = attacks.extract_from_prefixes(*made, prefix_length=prefix_length)
    lines = [
        f"word for word from {prefix_length} tokens: {found.exact} of {found.exact.total} texts",
        f"with a chance of one half within 100 draws: {found.within(100)}",
    ]
    return {"exact": found.exact.to_dict(), "within_100_tries": found.within(100).to_dict()}, lines


def by_sampling(factory: str, made: Any, wishes: Wishes) -> Told:
    """Let the model write, rank it both ways, and look it up. The texts themselves are private: they are not told."""
    model, starts, decode, training_text = _checked(factory, made)
    count = _check.whole("--samples", wishes.samples)
    rng = Rng.from_entropy() if wishes.seed is None else Rng.from_seed(wishes.seed)
    prompts = starts.repeat(-(-count // len(starts)), 1)[:count]
    told: dict[str, Any] = {}
    lines: list[str] = []
    for ranking in _RANKINGS:  # the same draws for both
        found = attacks.extract(
            model,
            prompts,
            decode=decode,
            training_text=training_text,
            length=_check.whole("--length", wishes.length),
            match_length=_check.whole("--match-length", wishes.match_length),
            rank_by=ranking,
            window=wishes.window,
            rng=rng,
        )
        told[ranking] = found.to_dict()
        first = min(_FIRST, len(found.candidates))
        lines.append(f"of the first {first} by {ranking}, with training text: {found.precision(_FIRST)}")
    kept = told[_RANKINGS[0]]
    head = f"{kept['samples']:,} texts written, {kept['different']:,} different; {kept['memorised']:,} of these hold "
    return told, [head + f"{wishes.match_length} or more characters of the training text", *lines]


def _checked(factory: str, made: Any) -> tuple[Any, Tensor, Any, Any]:
    if not isinstance(made, tuple) or len(made) != 4 or not callable(made[0]) or not callable(made[2]):
        raise InvalidValue(
            f"{factory} must return (model, starts, decode, training text) for --samples; got {type(made).__name__}."
        )
    starts = made[1]
    if not isinstance(starts, Tensor) or starts.ndim != 2 or not starts.numel() or starts.is_floating_point():
        raise InvalidValue(f"{factory}: starts must be tokens, (rows, at least 1); got {type(starts).__name__}.")
    if not isinstance(made[3], str | list | tuple):
        raise InvalidValue(f"{factory}: the training text must be text or a list of texts.")
    return made[0], starts, made[2], made[3]

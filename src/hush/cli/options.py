"""The options that several commands share, and how they become an event."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hush.errors import HushError, InvalidValue, UnreadableFile

if TYPE_CHECKING:
    from hush.events import Event

LARGEST_FILE = 10_000_000  # bytes of an event file
MOST_STEPS = 10**12
LARGEST_WHOLE = 10**300


def whole_number(text: str) -> int:
    """A whole number, also as 1e4 or 10_000; whether it is large enough is checked where it is used.

    >>> whole_number("1e4"), whole_number("10_000")
    (10000, 10000)
    """
    for read in (int, float):
        try:
            value = read(text)
            if value == int(value) and abs(value) <= LARGEST_WHOLE:
                return int(value)
        except (ValueError, OverflowError):
            pass
    raise typer.BadParameter(f"{text!r} is not a whole number of a usual size, such as 10000 or 1e4.")


NoiseMultiplier = Annotated[
    float | None, typer.Option(metavar="NUMBER", help="Noise standard deviation over one example's contribution.")
]
SamplingProb = Annotated[
    float | None, typer.Option(metavar="NUMBER", help="Chance that one example joins a batch; 1 for full batches.")
]
Steps = Annotated[
    int | None, typer.Option(parser=whole_number, metavar="WHOLE", help="Number of releases, such as 10000 or 1e4.")
]
Delta = Annotated[
    float, typer.Option(metavar="NUMBER", help="Accepted chance of failure, well below 1 over the number of examples.")
]
RelationName = Annotated[
    str, typer.Option("--relation", metavar="NAME", help="Neighbours: add_remove, replace_one or zero_out.")
]
EventFile = Annotated[
    Path | None,
    typer.Option("--event", metavar="FILE", help="An event in JSON instead of the three numbers; - reads stdin."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


@dataclass(frozen=True)
class Setting:
    """What a command was asked about: the event, and its three numbers where it has them."""

    event: Event
    noise_multiplier: float | None
    sampling_prob: float | None
    steps: int | None

    def to_dict(self) -> dict[str, Any]:
        """The numbers that there are, under the glossary's words."""
        return {name: value for name, value in vars(self).items() if name != "event" and value is not None}

    def __str__(self) -> str:
        if self.steps is None:
            return "the event of the file"
        noise, prob = f"noise multiplier {self.noise_multiplier:g}", f"sampling prob {self.sampling_prob:g}"
        return f"{self.steps:,} steps, {noise}, {prob}"


def setting_of(
    noise_multiplier: float | None, sampling_prob: float | None, steps: int | None, event: Path | None
) -> Setting:
    """The event of the file or of the three numbers; a mixture or a missing number is refused."""
    given = {"--noise-multiplier": noise_multiplier, "--sampling-prob": sampling_prob, "--steps": steps}
    if event is not None:
        extra = [name for name, value in given.items() if value is not None]
        if extra:
            raise InvalidValue(f"--event already says what was done; leave out {', '.join(extra)}.")
        return _from_file(event)
    if noise_multiplier is None or sampling_prob is None or steps is None:
        missing = [name for name, value in given.items() if value is None]
        raise InvalidValue(f"missing {', '.join(missing)}; give all of {', '.join(given)}, or --event FILE.")
    from hush import _check, events

    noise_multiplier = _check.positive("noise_multiplier", noise_multiplier)
    sampling_prob = _check.probability("sampling_prob", sampling_prob)
    steps = _check.whole("steps", steps)
    if steps > MOST_STEPS:
        raise InvalidValue(f"steps must be at most {MOST_STEPS:.0e}; got {steps:.6g}.")
    step = events.PoissonSampled(events.Gaussian(noise_multiplier), sampling_prob)
    return Setting(events.Repeated(step, steps), noise_multiplier, sampling_prob, steps)


def _from_file(path: Path) -> Setting:
    from hush import events
    from hush.accounting.explain import setting

    text = _read(path)
    try:
        event = events.from_json(text)
    except HushError as error:
        raise UnreadableFile(f"{path}: {error}") from None
    return Setting(event, *(setting(event) or (None, None, None)))


def _read(path: Path) -> bytes:
    try:
        if str(path) == "-":
            text = sys.stdin.buffer.read(LARGEST_FILE + 1)
        else:
            with path.open("rb") as file:
                text = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableFile(f"cannot read the event file {path}: {reason}.") from None
    if len(text) > LARGEST_FILE:
        raise UnreadableFile(f"the event file {path} is over {LARGEST_FILE:,} bytes; no event is that long.")
    return text

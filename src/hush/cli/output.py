"""What the commands print: one JSON object, or a table that is plain text where there is no terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import ROUND_FLOOR, Context
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from hush.privacy import Guarantee

_WIDE = 120  # columns of a table that goes to a file or a pipe


def one_line(text: str) -> str:
    r"""The text on one line, without characters that would steer a terminal.

    >>> one_line("a\n  b\x1b[31m")
    'a b?[31m'
    """
    return _literal(" ".join(text.split()))


def _literal(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def print_json(data: dict[str, Any]) -> None:
    """Exactly one JSON object on stdout; infinity is the text "infinity", as in `Guarantee.to_dict`."""
    typer.echo(json.dumps(_plain(data), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return "infinity" if value == math.inf else value


def console(*, stderr: bool = False) -> Console:
    """A console that takes every text literally."""
    from rich.console import Console

    result = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    return (
        result
        if result.is_terminal
        else Console(stderr=stderr, markup=False, highlight=False, emoji=False, width=_WIDE)
    )


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """A line on stderr while something runs; only on a terminal, and gone afterwards."""
    target = console(stderr=True)
    if not target.is_terminal:
        yield
        return
    with target.status(text):
        yield


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[str]) -> None:
    """A table on stdout; the columns named in `numbers` are aligned to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        aligned = name in numbers
        table.add_column(name, justify="right" if aligned else "left", no_wrap=aligned, overflow="fold")
    for row in rows:
        table.add_row(*(one_line(cell) for cell in row))
    target = console()
    with target.capture() as captured:
        target.print(table)
    print_lines(title)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n"))


def print_lines(*lines: str) -> None:
    """Lines of text on stdout, each on one line."""
    for line in lines:
        typer.echo(_literal(line))


def times(ratio: float | None) -> str:
    """A ratio for a table; empty where there is none.

    >>> times(1.2155), times(4652.6), times(None)
    ('x 1.22', 'x 4,653', '')
    """
    if ratio is None:
        return ""
    return f"x {ratio:,.0f}" if ratio >= 100 else f"x {ratio:.3g}"


def round_down(value: float, digits: int = 6) -> str:
    """`value` (0 or above) to some significant digits, never above it.

    >>> round_down(0.0105100182), round_down(2.0)
    ('0.01051', '2')
    """
    if not math.isfinite(value):
        return f"{value:g}"
    shorter = Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(repr(value))
    return f"{float(shorter):.{digits}g}"


def kind_of(guarantee: Guarantee) -> str:
    """What a number is: an interval around the truth, an upper bound, or neither."""
    if not guarantee.proven:
        return "approximation, no bound"
    if math.isinf(guarantee.epsilon):
        return "no privacy at this delta"
    if guarantee.epsilon_lower > 0:
        return f"truth is above {round_down(guarantee.epsilon_lower)}"
    return "upper bound"

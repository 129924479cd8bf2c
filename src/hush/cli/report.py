"""`hush report RUN`: what a run proves, cost and means, as a page, as Markdown and as JSON."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from hush.cli import options
from hush.cli.output import print_json, print_lines
from hush.errors import InvalidValue

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or of an audit.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where the files go; into the run's folder.")]
Formats = Annotated[str, typer.Option("--format", metavar="A,B,...", help="html, md, json; all three unless said.")]
IncludePrivate = Annotated[
    bool,
    typer.Option("--include-private", help="Also losses, gradient norms and results on private rows: not private!"),
]
LedgerPlace = Annotated[
    str | None, typer.Option("--ledger", metavar="PATH_OR_URL", help="Of a shared ledger that is elsewhere now.")
]
Open = Annotated[bool, typer.Option("--open", help="Show the page in the browser.")]


def report(
    run: Run,
    *,
    out: Out = None,
    formats: Formats = "html,md,json",
    include_private: IncludePrivate = False,
    ledger: LedgerPlace = None,
    open_page: Open = False,
    json: options.Json = False,
) -> None:
    """Write the report on a run: the claim, what it means for one person, evidence, ledger, and how to check it."""
    from hush.report import read, write

    if json:
        if out is not None or open_page:
            raise InvalidValue("--json prints the report and writes no file; leave out --out and --open.")
        print_json(read(run, include_private=include_private, ledger=ledger))
        return
    wanted = tuple(dict.fromkeys(part.strip() for part in formats.split(",")))
    if open_page and "html" not in wanted:
        raise InvalidValue("--open shows the page: put html among --format.")
    written = write(run, out=out, formats=wanted, include_private=include_private, ledger=ledger)
    print_lines(*(f"written: {path}" for path in written))
    if include_private:
        print_lines("These files show what was read from the data without noise: do not publish them.")
    if open_page:
        _open(next(path for path in written if path.suffix == ".html"))


def _open(path: Path) -> None:
    if not webbrowser.open(path.resolve().as_uri()):
        print_lines(f"There is no browser here; open {path} yourself.")

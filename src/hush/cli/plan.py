"""`hush plan`: a local page that answers while its sliders move."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hush.cli import options
from hush.cli.output import print_json, print_lines

Folder = Annotated[Path, typer.Argument(metavar="[DIR]", help="Where runs lie and saved plans go; runs unless said.")]
Ledgers = Annotated[
    list[str] | None,
    typer.Option("--ledger", metavar="PATH_OR_URL", help="A ledger whose accounts are shown too; may be repeated."),
]
Port = Annotated[int, typer.Option(min=0, max=65535, metavar="WHOLE", help="Of 127.0.0.1; 0 takes a free one.")]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Print the address and open no browser.")]


def plan(
    *,
    folder: Folder = Path("runs"),
    ledger: Ledgers = None,
    port: Port = 0,
    no_open: NoOpen = False,
    json: options.Json = False,
) -> None:
    """Plan a training on a local page: what it costs, while you move the sliders. Ends with Ctrl-C."""
    from hush.planner import serve

    def announce(address: str) -> None:
        if json:
            print_json({"address": address, "folder": str(folder)})
        else:
            print_lines(f"planner: {address}", "Only this machine can open it. Ctrl-C ends it.")

    serve(folder, ledgers=ledger or (), port=port, open_browser=not no_open, announce=announce)

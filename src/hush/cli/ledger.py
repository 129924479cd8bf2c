"""`hush ledger`: what was spent and by which run, whether the record is whole, and who may do what."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hush.cli import options
from hush.cli.output import print_json, print_lines, print_table, round_down
from hush.errors import BudgetExceeded, InvalidValue

if TYPE_CHECKING:
    from hush.ledger import Account, Row, Verified
    from hush.privacy import Guarantee

app = typer.Typer(help="What was spent on each data set, and whether the record is whole.", rich_markup_mode=None)

Target = Annotated[
    str,
    typer.Argument(metavar="PATH_OR_URL", envvar="HUSH_LEDGER", help="A ledger file, or the URL of its database."),
]
Epsilon = Annotated[float, typer.Option(metavar="NUMBER", help="The new cap.")]
Note = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record.")]
Role = Annotated[str, typer.Option("--to", metavar="ROLE", help="A database role.")]
AccountName = Annotated[str | None, typer.Option("--account", metavar="NAME", help="One account, with all its rows.")]
AtDelta = Annotated[
    float | None, typer.Option("--delta", metavar="NUMBER", help="Delta for accounts that have no cap.")
]
Heads = Annotated[
    list[str] | None,
    typer.Option("--head", metavar="HASH", help="A hash that was kept earlier, or NAME=HASH; may be repeated."),
]
_SUMMARY = ("account", "relation", "cap", "delta", "spent", "left", "rows")
_ROWS = ("row", "time", "kind", "count", "content", "note", "hash")


@app.command()
def show(target: Target, account: AccountName = None, delta: AtDelta = None, json: options.Json = False) -> None:
    """Every account: its cap, what was spent and what is left."""
    from hush.ledger import Ledger

    ledger = Ledger.open(target, create=False)
    accounts = ledger.accounts() if account is None else (ledger.account(account),)
    if json:
        print_json({"accounts": [_account_dict(item, delta, rows=account is not None) for item in accounts]})
        return
    title = f"{len(accounts)} account" + ("" if len(accounts) == 1 else "s")
    numbers = ("cap", "delta", "spent", "left", "rows")
    print_table(title, _SUMMARY, [_summary(item, delta) for item in accounts], numbers=numbers)
    if account is not None:
        rows = accounts[0].rows()
        print_table(f"rows of {account}", _ROWS, [_row_text(row) for row in rows], numbers=("row", "count"))


@app.command()
def runs(target: Target, account: AccountName = None, delta: AtDelta = None, json: options.Json = False) -> None:
    """Every run (rows with one note): when it charged, how many releases, and what they would cost alone."""
    from hush.cli import ledger_runs
    from hush.ledger import Ledger

    ledger = Ledger.open(target, create=False)
    accounts = ledger.accounts() if account is None else (ledger.account(account),)
    found = [run for item in accounts for run in ledger_runs.runs_of(item, delta)]
    if json:
        print_json({"runs": [run.to_dict() for run in found]})
        return
    title = f"{len(found)} run" + ("" if len(found) == 1 else "s")
    numbers = ("rows", "releases", "epsilon alone", "delta")
    print_table(title, ledger_runs.COLUMNS, [run.cells() for run in found], numbers=numbers)


@app.command("change-cap")
def change_cap(
    target: Target,
    account: Annotated[str, typer.Option("--account", metavar="NAME", help="The account.")],
    epsilon: Epsilon,
    delta: options.Delta,
    note: Note = "",
    json: options.Json = False,
) -> None:
    """Raise or lower the cap of an account, by a row of its history. On PostgreSQL this is for keepers."""
    from hush.ledger import Ledger
    from hush.privacy import Budget

    changed = Ledger.open(target, create=False).account(account)
    before = changed.cap
    row = changed.change_cap(Budget(epsilon=epsilon, delta=delta), note)
    if json:
        print_json({"account": account, "row": row.number, "cap": {"epsilon": epsilon, "delta": delta}})
    else:
        print_lines(f"{account}: cap {before} -> {changed.cap}, row {row.number}")


@app.command()
def grant(
    target: Target,
    right: Annotated[str, typer.Option("--right", metavar="NAME", help="read, spend, keep or none.")],
    to: Role,
    json: options.Json = False,
) -> None:
    """On PostgreSQL: let a database role read, spend under the caps, or keep (open accounts and change caps)."""
    from hush.ledger import Ledger

    ledger = Ledger.open(target, create=False)
    if right == "none":
        ledger.revoke(to)
    else:
        ledger.grant(right, to)
    print_json({"role": to, "right": right}) if json else print_lines(f"{to}: {right}")


@app.command()
def migrate(target: Target, json: options.Json = False) -> None:
    """Bring a ledger of an earlier Hush to the newest format."""
    from hush.ledger import Ledger

    before, after = Ledger.open(target, create=False).migrate()
    if json:
        print_json({"format_before": before, "format": after})
    else:
        print_lines(f"format {before} -> {after}" if before != after else f"format {after} already")


@app.command()
def verify(target: Target, head: Heads = None, json: options.Json = False) -> None:
    """Check every row of every account; an edited, missing or moved row is refused with its number."""
    from hush.ledger import Ledger

    ledger = Ledger.open(target, create=False)
    verified = ledger.verify()
    for kept in head or ():
        ledger.verify(expected_head=_kept(kept, verified))
    over = [_over_text(account) for account in ledger.accounts() if _is_over(account)]
    if json:
        print_json({**_verified_dict(verified), "over_cap": over})
    else:
        print_lines(f"whole: accounts {verified.accounts}, rows {verified.rows}", f"head: {verified.head}")
        print_lines(*(f"head of {name}: {value}" for name, value in verified.heads.items()))
    if over:
        raise BudgetExceeded("; ".join(over))


def _kept(text: str, verified: Verified) -> str | dict[str, str]:
    name, equals, value = text.rpartition("=")
    if not equals:
        return text
    if name not in verified.heads:
        raise InvalidValue(f"there is no account {name!r} in this ledger, which --head {name}=... asks for.")
    return {name: value}


def _verified_dict(verified: Verified) -> dict[str, Any]:
    counts = {"accounts": verified.accounts, "rows": verified.rows}
    return {"whole": True, **counts, "head": verified.head, "heads": dict(verified.heads)}


def _spent(account: Account, delta: float | None) -> Guarantee | None:
    """What was spent at the cap's delta, or at the one that was asked for; None without either."""
    if account.cap is None and delta is None:
        return None
    return account.spent(None if account.cap is not None else delta)


def _is_over(account: Account) -> bool:
    return account.cap is not None and not account.cap.allows(account.spent())


def _over_text(account: Account) -> str:
    from hush.privacy import round_up

    limit = "" if account.cap is None else f"{account.cap.epsilon:g}"
    return f"account {account.name!r} has spent {round_up(account.spent().epsilon)}, over its cap of {limit}"


def _account_dict(account: Account, delta: float | None, *, rows: bool) -> dict[str, Any]:
    spent, all_rows = _spent(account, delta), account.rows()
    cap = None if account.cap is None else {"epsilon": account.cap.epsilon, "delta": account.cap.delta}
    left = None if account.cap is None else account.left()
    result = {
        "account": account.name,
        "relation": account.relation,
        "cap": cap,
        "spent": None if spent is None else spent.to_dict(),
        "left": left,
        "rows": len(all_rows),
    }
    return {**result, "history": [row.to_dict() for row in all_rows]} if rows else result


def _summary(account: Account, delta: float | None) -> tuple[str, ...]:
    from hush.privacy import round_up

    spent, cap = _spent(account, delta), account.cap
    return (
        account.name,
        account.relation,
        "none" if cap is None else f"{cap.epsilon:g}",
        "give --delta" if spent is None else f"{spent.delta:g}",
        "-" if spent is None else round_up(spent.epsilon),
        "no limit" if math.isinf(account.left()) else round_down(account.left()),
        str(len(account.rows())),
    )


def _row_text(row: Row) -> tuple[str, ...]:
    moment = row.time[:19].replace("T", " ")
    return str(row.number), moment, row.kind, f"{row.count:,}", row.content, row.note, row.hash[:12]

"""Who may do what in a ledger on PostgreSQL. The server keeps to it, whatever program a person runs.

| right | may |
|---|---|
| read | see accounts and rows, verify, export |
| spend | also charge and reserve under the caps that there are |
| keep | also open accounts and change their caps |

Nobody but the owner of the tables may change or remove a row; the owner, and a superuser, may do everything, so people
should not work as one of these. A file has no roles: who can write it can do all of this.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from hush import _check
from hush.errors import InvalidValue, LedgerError
from hush.ledger import migrations

RIGHTS = ("read", "spend", "keep")
_TABLES = "hush_ledger, hush_heads, hush_rows"
_MOVE = "UPDATE (last_row, hash)"
_GRANTS: dict[str, tuple[str, ...]] = {
    "read": (f"SELECT ON {_TABLES}",),
    "spend": (f"SELECT ON {_TABLES}", "INSERT ON hush_rows", f"{_MOVE} ON hush_heads"),
    "keep": (f"SELECT ON {_TABLES}", "INSERT ON hush_rows", f"{_MOVE}, INSERT ON hush_heads"),
}


def grant(connection: Connection, right: str, role: str, place: str) -> None:
    """Give a database role exactly this right, taking away what it had."""
    _check.one_of("right", right, RIGHTS)
    quoted = _known_role(connection, role, place)
    migrations.require(connection, 2, place)
    connection.exec_driver_sql(f"REVOKE ALL ON {_TABLES} FROM {quoted}")
    for words in _GRANTS[right]:
        connection.exec_driver_sql(f"GRANT {words} TO {quoted}")


def revoke(connection: Connection, role: str, place: str) -> None:
    """Take every right away from a database role."""
    connection.exec_driver_sql(f"REVOKE ALL ON {_TABLES} FROM {_known_role(connection, role, place)}")


def _known_role(connection: Connection, role: str, place: str) -> str:
    if connection.dialect.name != "postgresql":
        raise LedgerError(f"{place} has no roles: only a ledger on PostgreSQL does.")
    if not isinstance(role, str) or not role or "\0" in role:
        raise InvalidValue(f"a role is the name of a database user; got {str(role)[:60]!r}.")
    if connection.execute(text("SELECT 1 FROM pg_roles WHERE rolname = :role"), {"role": role}).scalar() is None:
        raise InvalidValue(f"there is no database role {role!r}; make it first: CREATE ROLE ... LOGIN.")
    # PostgreSQL only warns where a right is not one's own to give, and would leave everything as it was.
    owned = "SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_class WHERE oid IN"
    if not connection.execute(text(f"{owned} ('hush_rows'::regclass, 'hush_heads'::regclass)")).scalar():
        raise LedgerError(f"{place}: only the owner of the ledger's tables gives and takes rights.")
    return connection.dialect.identifier_preparer.quote_identifier(role)

"""The tables of a ledger, in SQLAlchemy Core so that every database it knows can hold them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, Text

VERSION = 2  # a ledger with a higher version is refused; `hush.ledger.migrations` says what each one changed

metadata = MetaData()

info = Table("hush_ledger", metadata, Column("version", Integer, primary_key=True, autoincrement=False))

# The head says where each chain ends, which the chain alone cannot: it changes in the transaction that adds a row.
heads = Table(
    "hush_heads",
    metadata,
    Column("account", String(200), primary_key=True),
    Column("last_row", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    sqlite_with_rowid=False,  # the key is the table: no index can disagree with it
)

rows = Table(
    "hush_rows",
    metadata,
    Column("account", String(200), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("content", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("block", BigInteger, nullable=False),
    Column("note", Text, nullable=False),
    Column("time", String(40), nullable=False),
    Column("hash", String(64), nullable=False),
    sqlite_with_rowid=False,
)

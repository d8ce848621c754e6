"""The statements of a store in a database; imports SQLAlchemy.

It is loaded with the first call of a store, so that the service starts without it. Each statement
commits by itself: comparing and writing is one of them.
"""

from __future__ import annotations

import sqlalchemy as sa

from segmentstream_connections_runtime.credentials.base import Record

VERSION = 1
_METADATA = sa.MetaData()
_RECORDS = sa.Table(
    "segmentstream_credentials",
    _METADATA,
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("updated_at", sa.Double, nullable=False),
)
_SCHEMA = sa.Table(
    "segmentstream_credentials_schema",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, nullable=False),
)


def version(connection: sa.Connection) -> int | None:
    """Gives the version of the tables; None where there are none."""
    if not sa.inspect(connection).has_table(_SCHEMA.name):
        return None
    found: int | None = connection.scalar(sa.select(_SCHEMA.c.version))
    return found


def are_of_others(connection: sa.Connection) -> bool:
    """Says whether there are tables, and not those of a store."""
    found = sa.inspect(connection).get_table_names()
    return bool(found) and _SCHEMA.name not in found


def create(connection: sa.Connection) -> None:
    """Makes what is missing of the tables."""
    _METADATA.create_all(connection)
    if connection.scalar(sa.select(_SCHEMA.c.version)) is None:
        connection.execute(sa.insert(_SCHEMA).values(id=1, version=VERSION))


def read(connection: sa.Connection, name: str) -> Record | None:
    """Gives a record."""
    row = connection.execute(
        sa.select(_RECORDS.c.content, _RECORDS.c.generation).where(_RECORDS.c.name == name)
    ).one_or_none()
    return None if row is None else Record(content=row.content, generation=row.generation)


def names(connection: sa.Connection, prefix: str) -> list[str]:
    """Lists the names that begin with a text, sorted as Python does, whatever the collation."""
    # No LIKE: `_` is a letter of names, and SQLite's LIKE takes capitals for small letters.
    begins = sa.func.substr(_RECORDS.c.name, 1, len(prefix)) == prefix
    return sorted(connection.scalars(sa.select(_RECORDS.c.name).where(begins)))


def insert(
    connection: sa.Connection, name: str, content: bytes, *, expires_at: float | None, now: float
) -> bool:
    """Writes the first generation of a record; says whether there was none."""
    try:
        connection.execute(
            sa.insert(_RECORDS).values(
                name=name, generation=1, content=content, expires_at=expires_at, updated_at=now
            )
        )
    except sa.exc.IntegrityError:
        return False
    return True


def update(
    connection: sa.Connection,
    name: str,
    content: bytes,
    *,
    expected: int,
    expires_at: float | None,
    now: float,
) -> bool:
    """Writes the next generation of a record; says whether it was as expected."""
    done = connection.execute(
        sa.update(_RECORDS)
        .where(_RECORDS.c.name == name, _RECORDS.c.generation == expected)
        .values(generation=expected + 1, content=content, expires_at=expires_at, updated_at=now)
    )
    return done.rowcount == 1


def delete(connection: sa.Connection, name: str, expected: int) -> bool:
    """Removes a record; says whether it was as expected."""
    done = connection.execute(
        sa.delete(_RECORDS).where(_RECORDS.c.name == name, _RECORDS.c.generation == expected)
    )
    return done.rowcount == 1


def delete_expired(connection: sa.Connection, now: float) -> None:
    """Removes the records that nobody needs any more."""
    connection.execute(sa.delete(_RECORDS).where(_RECORDS.c.expires_at <= now))


def touch(connection: sa.Connection) -> None:
    """Does what writing needs, its rights and its lock, to no record."""
    none = _RECORDS.c.generation < 0
    connection.execute(sa.update(_RECORDS).where(none).values(generation=_RECORDS.c.generation))

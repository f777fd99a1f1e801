"""Indexes as tables of sqlite-vec (`vec0`) in files of SQLite. Needs `pip install sqlite-vec`.

Use it by `Index.to_sqlite_vec` and `Index.from_sqlite_vec`. SQLite is Python's own, or that of the package pysqlite3 where Python's was built
without extensions.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import InvalidRequestError, StorageError, UnsupportedError
from .options import path_of, refused, text_of

if TYPE_CHECKING:
    from .index import Index

#: Documents that are read or written at once.
BATCH = 1000
#: Our metric by the name of sqlite-vec. It has no dot product.
METRICS: dict[str, Literal["cosine", "euclidean"]] = {"cosine": "cosine", "l2": "euclidean"}
#: Names of columns that hold what is not metadata.
TEXT, METADATA = "text", "metadata"


def modules() -> tuple[Any, Any]:
    """SQLite that takes extensions, and sqlite-vec."""
    import sqlite3

    try:
        import sqlite_vec
    except ImportError:
        raise UnsupportedError("tables of sqlite-vec need `pip install sqlite-vec`") from None
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3, sqlite_vec
    try:
        import pysqlite3
    except ImportError:
        what = "this Python's SQLite takes no extensions, and sqlite-vec is one: `pip install pysqlite3-binary`, or use another Python"
        raise UnsupportedError(what) from None
    return pysqlite3, sqlite_vec


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], *, made: bool) -> Iterator[Any]:
    """A database with sqlite-vec, in one transaction; `made` says that it may be a new file."""
    sqlite3, sqlite_vec = modules()
    file = Path(path_of("path", path))
    is_new = not file.exists()
    if is_new and not made:
        raise StorageError(f"there is no database at {file}")
    done = False
    try:
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
            database.enable_load_extension(True)
            sqlite_vec.load(database)
            database.enable_load_extension(False)
            database.execute("BEGIN")
            yield database
            database.execute("COMMIT")
            done = True
    except sqlite3.Error as error:
        raise StorageError(f"{file}: {error}") from error
    finally:
        if is_new and not done:
            file.unlink(missing_ok=True)


def quoted(name: str) -> str:
    """A name in a statement."""
    return '"' + name.replace('"', '""') + '"'


def write(index: Index, path: str | os.PathLike[str], table: str) -> int:
    """Writes a table with every document of the index, and says how many."""
    import numpy

    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text_of("table", table)):
        raise refused("table", "letters, digits and `_`", table)
    metric = next((name for name, ours in METRICS.items() if ours == index.metric), None)
    if metric is None:
        raise InvalidRequestError(f"sqlite-vec compares by cosine or distance, and the index by `{index.metric}`")
    ids = index.ids()
    if any(isinstance(id, int) and id >= 1 << 63 for id in ids):
        raise InvalidRequestError("sqlite-vec has numbers of 63 bits as ids, and the index has larger ones")
    kind = "text" if index.id_kind == "text" else "integer"
    with opened(path, made=True) as database:
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
            raise InvalidRequestError(f"`table`: there is a table {table!r} already")
        database.execute(
            f"CREATE VIRTUAL TABLE {quoted(table)} USING vec0(id {kind} primary key, "
            f"embedding float[{index.dimensions}] distance_metric={metric}, +{TEXT} text, +{METADATA} text)"
        )
        insert = f"INSERT INTO {quoted(table)}(id, embedding, {TEXT}, {METADATA}) VALUES (?, ?, ?, ?)"
        for start in range(0, len(ids), BATCH):
            some = ids[start : start + BATCH]
            rows = []
            for id, stored in zip(some, index.get(some)):
                # Another program may have deleted it.
                if stored is not None:
                    vector = numpy.asarray(stored.vector, dtype="<f4").tobytes()
                    rows.append((id, vector, stored.text, json.dumps(stored.metadata, ensure_ascii=False)))
            database.executemany(insert, rows)
        return database.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0]


@dataclass(frozen=True)
class Table:
    """A `vec0` table, by the words that made it."""

    name: str
    #: Column of ids; none where rows are numbered.
    id: str | None
    ids: Literal["text", "number"]
    vectors: str
    dimensions: int
    metric: Literal["cosine", "euclidean"]
    #: The other columns.
    others: list[str]


#: A name, and what is said of it. A `+` stands before columns that searches do not look at.
COLUMN = re.compile(r'^\+?\s*(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>\w+))\s+(?P<said>.+)$', re.DOTALL)
VECTOR = re.compile(
    r"^(?P<kind>float|f32|int8|i8|bit)\s*\[\s*(?P<dimensions>\d+)\s*\](?P<more>.*)$", re.IGNORECASE | re.DOTALL
)


def described(name: str, statement: str) -> Table:
    """What the statement that made a table says of it."""
    inside = statement[statement.index("(") + 1 : statement.rindex(")")]
    id, ids, vectors, others = None, "number", [], []
    for column in inside.split(","):
        found = COLUMN.match(column.strip())
        # Settings such as `chunk_size=8` are no columns.
        if found is None or found["said"].startswith("="):
            continue
        column = found["plain"] or found["quoted"].replace('""', '"')
        said = found["said"].lower()
        if vector := VECTOR.match(said):
            vectors.append((column, vector))
        elif "primary key" in said:
            id, ids = column, "text" if said.startswith("text") else "number"
        else:
            others.append(column)
    if len(vectors) != 1 or vectors[0][1]["kind"] not in ("float", "f32"):
        kinds = ", ".join(f"{column} {vector['kind']}[{vector['dimensions']}]" for column, vector in vectors)
        raise UnsupportedError(f"the table {name!r} should have one column of float vectors, found {kinds or 'none'}")
    column, vector = vectors[0]
    said = re.search(r"distance_metric\s*=\s*(\w+)", vector["more"])
    metric = said[1] if said else "l2"
    if metric not in METRICS:
        raise UnsupportedError(f"the table {name!r} compares by `{metric}`; supported are {' and '.join(METRICS)}")
    return Table(name, id, ids, column, int(vector["dimensions"]), METRICS[metric], others)


def chosen(database: Any, table: str | None) -> Table:
    """The table of this name, or the only one."""
    made = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql LIKE 'create virtual table%using vec0%'"
    found = dict(database.execute(made).fetchall())
    names = ", ".join(map(repr, sorted(found))) or "none"
    if table is None and len(found) != 1:
        raise InvalidRequestError(f"`table`: expected one table of sqlite-vec, or its name; found {names}")
    name = next(iter(found)) if table is None else text_of("table", table)
    if name not in found:
        raise refused("table", f"a table of sqlite-vec ({names})", name)
    return described(name, found[name])


def read(
    index: type[Index],
    database: str | os.PathLike[str],
    path: str | os.PathLike[str],
    table: str | None,
    options: dict[str, Any],
) -> Index:
    """A new index with every row of a table."""
    import numpy

    file = Path(path_of("path", path))
    if file.exists():
        raise InvalidRequestError(f"`path`: there is a file at {file} already; an import makes a new index")
    with opened(database, made=False) as connection:
        about = chosen(connection, table)
        columns = [about.id or "rowid", about.vectors, *about.others]
        # `rowid` has no quotes: with them it would be a text where it is no column.
        named = [column if column == "rowid" else quoted(column) for column in columns]
        rows = connection.execute(f"SELECT {', '.join(named)} FROM {quoted(about.name)}")
        try:
            new = index(file, dimensions=about.dimensions, metric=about.metric, ids=about.ids, **options)
            while some := rows.fetchmany(BATCH):
                vectors = numpy.frombuffer(b"".join(row[1] for row in some), dtype="<f4")
                documents = [_document(row[0], dict(zip(about.others, row[2:]))) for row in some]
                new.add(
                    [row[0] for row in some],
                    vectors.reshape(len(some), about.dimensions),
                    texts=[text for text, _ in documents],
                    metadata=[metadata for _, metadata in documents],
                )
        except BaseException:
            file.unlink(missing_ok=True)
            raise
    return new


def _document(id: Any, columns: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Text and metadata of a row. Other programs have a column for each thing, and ours one with all of them."""
    text = columns.pop(TEXT, None)
    known = {name: value for name, value in columns.items() if value is not None and name != METADATA}
    if isinstance(found := columns.get(METADATA), str):
        try:
            all = json.loads(found)
        except ValueError:
            all = found
        known |= all if isinstance(all, dict) else {METADATA: found}
    elif found is not None:
        known[METADATA] = found
    bad = next((name for name, value in known.items() if isinstance(value, bytes)), None)
    if bad is not None:
        raise InvalidRequestError(f"the column {bad!r} of the row {id!r} has bytes; metadata are texts and numbers")
    if text is not None and not isinstance(text, str):
        raise InvalidRequestError(f"the column {TEXT!r} of the row {id!r} should be a text")
    return text or "", known

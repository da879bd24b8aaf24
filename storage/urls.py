"""Database URLs: which forms are allowed, and how to show one without its password."""

import re
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from foltr.core.errors import SettingsError

_FORMS = "sqlite:///folder/file.sqlite, postgresql://user:password@host:5432/name, postgresql://user@/name?host=/socket/folder"
_QUERY_KEYS = {"host", "port", "ssl", "sslmode"}


def read_url(url: str) -> URL:
    """Read a database's URL. Raises SettingsError if it is not one of the allowed forms."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Not chained: SQLAlchemy's own message may repeat the URL with its password.
        raise _bad_url(url, "it is not a URL") from None
    if parsed.drivername == "sqlite":
        if parsed.host or parsed.query or not parsed.database or parsed.database == ":memory:":
            raise _bad_url(url, "SQLite needs the path of a file: the state must outlive the process")
        return parsed.set(drivername="sqlite+aiosqlite")
    if parsed.drivername in ("postgresql", "postgres"):
        if unknown := sorted(set(parsed.query) - _QUERY_KEYS):
            raise _bad_url(url, f"{', '.join(unknown)} after the ? is not one of {', '.join(sorted(_QUERY_KEYS))}")
        if "@" in (parsed.host or ""):  # messages name the host, which would be the end of the password
            raise _bad_url(url, "write each @ of the password as %40")
        if not parsed.database:
            raise _bad_url(url, "it names no database")
        query = {"ssl" if key == "sslmode" else key: value for key, value in parsed.query.items()}
        return parsed.set(drivername="postgresql+asyncpg", query=query)
    raise _bad_url(url, f"{parsed.drivername} is not a database foltr can use")


def _bad_url(url: str, reason: str) -> SettingsError:
    masked = re.sub(r"(://[^:/@]*:).*@", r"\1***@", url)
    masked = re.sub(r"(password=)[^&]*", r"\1***", masked)
    return SettingsError(f"db_url = {masked!r}: {reason}. Allowed forms: {_FORMS}")


def without_password(url: str) -> str:
    """Return a URL with its password replaced by ``***``; the same text if it has none."""
    parsed = make_url(url)
    return url if parsed.password is None else parsed.render_as_string(hide_password=True)


def address_of(url: URL) -> str:
    """Return the place of a database: its URL without user and password."""
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{Path(url.database or '').absolute()}"
    host, port = _place(url)
    return f"postgresql://{host}:{port}/{url.database}"


def in_words(url: URL) -> str:
    """Name the database for messages, without a password."""
    if url.get_backend_name() == "sqlite":
        return f"The SQLite database {Path(url.database or '').absolute()}"
    host, port = _place(url)
    return f"The PostgreSQL database {url.database!r} at {host}:{port}"


def _place(url: URL) -> tuple[object, object]:
    """Return the host, or the folder of the Unix socket, and the port."""
    return url.query.get("host") or url.host or "localhost", url.query.get("port") or url.port or 5432

"""Databases of the API's tests."""

import pytest
from support.databases import PostgresDatabases, migrated_sqlite


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)])
def migrated_url(request, tmp_path):
    """As for every test; PostgreSQL at night, for the queries have tests of their own on both."""
    if request.param == "sqlite":
        yield migrated_sqlite(tmp_path / "foltr.sqlite")
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres_databases")
    url = databases.migrated()
    yield url
    databases.release(url)

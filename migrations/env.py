"""Alembic's entry: runs the migrations on the connection that `storage/migrate.py` hands over.

The connection comes from `AsyncConnection.run_sync`, so one transaction holds every step on both databases.
"""

# ruff: noqa: INP001 - Alembic executes this file by its path; it is not part of a package

from alembic import context

import foltr.storage.tables  # noqa: F401 (fills the metadata)
from foltr.storage.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()

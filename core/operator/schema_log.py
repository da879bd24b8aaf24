"""The feature schemas of an operator's folder."""

from pathlib import Path

from foltr.core.errors import SettingsError
from foltr.core.operator.document_log import DocumentLog
from foltr.core.protocol.operator_keys import Believed
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.signed_schemas import SignedSchema, issue_schema, read_schema
from foltr.core.protocol.signing import SigningKey


def schema_log(folder: Path, federation: str, operator: Believed) -> DocumentLog[SignedSchema]:
    """Return the schemas of one operator's folder, whose lock is held; ``operator`` has signed them."""
    return DocumentLog(folder, "schema", lambda payload: read_schema(payload, operator, federation))


def write_schema(
    log: DocumentLog[SignedSchema], key: SigningKey, schema: FeatureSchema, federation: str
) -> SignedSchema:
    """Sign a schema and write it down; the newest one again stays as it was signed.

    Raises:
        SettingsError: its version is not above all others here, and it is not the newest one.
    """
    newest = log.newest()
    if newest is not None and newest.schema == schema:
        return newest
    if newest is not None and newest.version == schema.version:
        raise SettingsError(
            f"version: {schema.version} is signed already, with other features or another name; whoever changes a "
            "schema raises its version, and the federation of the older one stays as it is: docs/features.md"
        )
    return log.write(issue_schema(key, schema, federation))

"""A feature schema is signed by the operator; the signature's topic says of which federation it is."""

from dataclasses import dataclass

from foltr.core.protocol.operator_keys import Believed
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.signed_documents import issue_document, read_document
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics


@dataclass(frozen=True)
class SignedSchema:
    """A schema whose signature was checked, as it is kept and passed on."""

    schema: FeatureSchema
    signed: bytes

    @property
    def version(self) -> int:
        return self.schema.version


def issue_schema(key: SigningKey, schema: FeatureSchema, federation: str) -> SignedSchema:
    """Sign a schema with the enrolment key, for its federation."""
    return SignedSchema(schema, issue_document(key, schema, Topics(federation).schema, schema.version))


def read_schema(payload: bytes, enrolment_key: Believed, federation: str) -> SignedSchema:
    """Read a schema.

    Raises:
        MessageError: ``bad_signature``: it is not signed by this federation's operator; ``malformed``.
    """
    schema = read_document(payload, enrolment_key, Topics(federation).schema, FeatureSchema, "schema")
    return SignedSchema(schema, payload)

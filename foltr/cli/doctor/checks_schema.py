"""What ``foltr doctor`` says of the feature schema: the one that the federator announces, beside the operator's."""

from foltr.cli.doctor.checks import Finding, State
from foltr.errors import MessageError
from foltr.operator.credentials import Credentials
from foltr.protocol.announcements import RoundAnnouncement
from foltr.protocol.codec import open_envelope
from foltr.protocol.schemas import FeatureSchema
from foltr.protocol.signed_schemas import read_schema


def schema_findings(credentials: Credentials | None, retained: bytes | None, round_: bytes | None) -> list[Finding]:
    """Compare what the broker retains of the schema and of the round; nothing where there is neither schema.

    Args:
        retained, round_: what was heard on the topics of the schema and of the round.
    """
    if credentials is None:
        return []
    announced = _announced(round_)
    if not retained:
        if announced is None:
            return []
        detail = (
            f"the federator announces {announced.hex()[:16]}, and the operator has published none: devices with other "
            "features cannot say what differs. foltr schema publish FILE"
        )
        return [Finding("schema", State.WARNING, detail)]
    try:
        published = read_schema(retained, credentials.operator_keys, credentials.federation).schema
    except MessageError as error:
        detail = f"what the broker retains is not the operator's ({error.detail}); foltr schema publish FILE"
        return [Finding("schema", State.WARNING, detail)]
    return [_compared(published, announced, is_known=round_ is not None)]


def _compared(published: FeatureSchema, announced: bytes | None, *, is_known: bool) -> Finding:
    shown = f"schema {published.name} {published.version} is at the broker ({published.hash.hex()[:16]})"
    if announced == published.hash or not is_known:
        return Finding("schema", State.OK, f"{shown}: {published.n_features} features")
    there = "has none" if announced is None else f"announces another ({announced.hex()[:16]})"
    detail = f"{shown}, and the federator {there}; devices with the published one wait. A newer schema is another"
    return Finding("schema", State.WARNING, f"{detail} federation's: docs/features.md")


def _announced(round_: bytes | None) -> bytes | None:
    if round_ is None:
        return None
    try:
        return open_envelope(round_).read(RoundAnnouncement).schema_hash
    except MessageError:
        return None  # another line says so

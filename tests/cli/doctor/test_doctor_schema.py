"""``foltr doctor`` says which feature schema is at the broker, and whether it is the one that is announced."""

import pytest
from secure_cohorts import SecureFederation

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage
from foltr.cli.doctor.checks import Found, State
from foltr.cli.doctor.checks_announced import schema_found
from foltr.cli.doctor.checks_broker import Visit
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.core.protocol.signed_documents import issue_schema
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.trainings import PdgdTraining

FEDERATION = SecureFederation()
DEVICE = FEDERATION.credentials(FEDERATION.helpers[0]).model_copy(update={"role": "device", "name": "device-1"})
OPERATOR = FEDERATION.operator
SHOP = FeatureSchema(name="shop", version=1, features=[Feature(name="bm25", scaling="ratio")])
NEWER = SHOP.model_copy(update={"version": 2})


def signed(schema, key=OPERATOR):
    return issue_schema(key, schema, DEVICE.federation).signed


def round_of(schema):
    return RoundAnnouncement(
        federation=DEVICE.federation,
        round=1,
        open=True,
        base_version=0,
        base_hash=bytes(16),
        withdraws_below=0,
        opened_at=0.0,
        closes_at=1.0,
        training=PdgdTraining(),
        schema_hash=None if schema is None else schema.hash,
    )


def found_with(credentials, retained, round_) -> Found | None:
    visit = Visit(BrokerAddress.parse("mqtt://127.0.0.1"), DEVICE.federation, credentials)
    visit.announced = round_
    if retained is not None:
        visit.heard[visit.topics.schema] = InboundMessage(visit.topics.schema, retained, retained=True)
    return schema_found(visit)


@pytest.mark.parametrize(
    ("retained", "round_", "state", "said"),
    [
        (signed(SHOP), round_of(SHOP), State.OK, "schema shop 1 is at the broker"),
        (signed(SHOP), None, State.OK, "1 features"),
        (signed(NEWER), round_of(SHOP), State.WARNING, f"announces another ({SHOP.hash.hex()[:16]})"),
        (signed(SHOP), round_of(None), State.WARNING, "the federator has none"),
        (None, round_of(SHOP), State.WARNING, "devices with other features cannot say what differs"),
        (b"", round_of(SHOP), State.WARNING, "the operator has published none"),
        (signed(SHOP, SigningKey.generate()), round_of(SHOP), State.WARNING, "not the operator's"),
        (b"junk", round_of(SHOP), State.WARNING, "not the operator's"),
    ],
)
def test_the_schema_at_the_broker_is_compared(retained, round_, state, said):
    """With the hash in the newest round."""
    found = found_with(DEVICE, retained, round_)
    assert found is not None
    assert (found.state, said in found.detail) == (state, True)


@pytest.mark.parametrize(
    ("credentials", "retained", "round_"),
    [(DEVICE, None, round_of(None)), (DEVICE, None, None), (DEVICE, b"", None), (None, signed(SHOP), None)],
)
def test_a_federation_without_a_schema_has_no_line(credentials, retained, round_):
    """Nor can anything be said without credentials: nobody knows whose schema it is."""
    assert found_with(credentials, retained, round_) is None

"""From bytes on a topic to something the federator can decide about. No I/O."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from broker.link import InboundMessage
from federator.round import Offer
from foltr.codec import decode
from foltr.errors import MessageError
from foltr.messages import MAX_ABS_DELTA, Join, Leave, ModelUpdate, ReceiptCode, Status, payload_digest, unpack_vector
from foltr.topics import ClientTopic, Topics


@dataclass(frozen=True)
class UpdateOffered:
    offer: Offer
    n_interactions: int
    values: bytes


@dataclass(frozen=True)
class MembershipAsked:
    """A client says hello, goodbye, or its broker says that it is gone."""

    client_id: str
    kind: Literal["joined", "left", "online", "offline"]
    sdk_version: str | None = None
    retained: bool = False


@dataclass(frozen=True)
class Refused:
    """A message that broke the protocol; ``client_id`` is the owner of the topic it came on."""

    client_id: str
    topic: ClientTopic
    code: ReceiptCode
    detail: str
    update_id: str | None = None
    round: int | None = None
    payload_digest: bytes | None = None


Reading = UpdateOffered | MembershipAsked | Refused


def read_message(topics: Topics, n_features: int, max_interactions: int, message: InboundMessage) -> Reading | None:
    """What ``message`` asks for; None where there is nobody to answer (a foreign topic, a cleared status)."""
    parsed = topics.parse(message.topic)
    if parsed is None:
        return None
    client_id, topic = parsed
    try:
        match topic:
            case ClientTopic.UPDATES:
                return _read_update(topics.federation, client_id, n_features, max_interactions, message.payload)
            case ClientTopic.JOIN:
                join = decode(message.payload, Join)
                _check_sender(join, topics.federation, client_id)
                return MembershipAsked(client_id, "joined", join.sdk_version)
            case ClientTopic.LEAVE:
                _check_sender(decode(message.payload, Leave), topics.federation, client_id)
                return MembershipAsked(client_id, "left")
            case ClientTopic.STATUS:
                if not message.payload:  # a device that left clears its retained status
                    return None
                status = decode(message.payload, Status)
                _check_sender(status, topics.federation, client_id)
                kind: Literal["online", "offline"] = "online" if status.online else "offline"
                return MembershipAsked(client_id, kind, retained=message.retained)
            case ClientTopic.INBOX:
                return None
    except MessageError as error:
        digest = payload_digest(message.payload)
        return Refused(client_id, topic, ReceiptCode(error.code), error.detail, payload_digest=digest)


def _read_update(
    federation: str, client_id: str, n_features: int, max_interactions: int, payload: bytes
) -> UpdateOffered | Refused:
    update = decode(payload, ModelUpdate)

    def refused(code: ReceiptCode, detail: str) -> Refused:
        return Refused(client_id, ClientTopic.UPDATES, code, detail, update.update_id, update.round)

    try:
        _check_sender(update, federation, client_id)
    except MessageError as error:
        return refused(ReceiptCode(error.code), error.detail)
    if update.body.dim != n_features:
        return refused(ReceiptCode.WRONG_SHAPE, f"{update.body.dim} values; the ranker has {n_features} features")
    values = unpack_vector(update.body.values)
    if not np.isfinite(values).all():
        return refused(ReceiptCode.NOT_FINITE, "the update holds NaN or infinity")
    if np.abs(values).max() > MAX_ABS_DELTA:
        return refused(ReceiptCode.OUT_OF_RANGE, f"a weight changed by more than {MAX_ABS_DELTA:g}")
    if update.n_interactions > max_interactions:
        # It is the update's weight in the mean: a client must not give itself more than was announced.
        return refused(
            ReceiptCode.OUT_OF_RANGE, f"{update.n_interactions} interactions; an update has at most {max_interactions}"
        )
    offer = Offer(client_id, update.update_id, update.round, update.base_version)
    return UpdateOffered(offer, update.n_interactions, update.body.values)


def _check_sender(message: Join | Leave | Status | ModelUpdate, federation: str, client_id: str) -> None:
    if message.federation != federation:
        raise MessageError(ReceiptCode.WRONG_FEDERATION, f"for {message.federation}; this federation is {federation}")
    if message.client_id != client_id:
        raise MessageError(
            ReceiptCode.CLIENT_MISMATCH, f"says it is from {message.client_id} on the topic of {client_id}"
        )

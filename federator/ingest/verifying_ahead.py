"""Reads updates and verifies their signatures in a thread, before the federation's row is locked.

This decides nothing: under the lock the verifying key is compared with the stored one, and if they differ it is
verified again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from foltr.broker.buffer import Arrival
from foltr.core.protocol.topics import Topics
from foltr.federator.reading import Limits, Refused, Signed, UpdateOffered, read_message


@dataclass(frozen=True)
class VerifiedAhead(Signed):
    """A signature that was verified with its client's key of a moment ago."""

    public_key: bytes
    holds: bool

    def by(self, public_key: bytes) -> bool:
        return self.holds if public_key == self.public_key else super().by(public_key)


@dataclass(frozen=True)
class Offered:
    """An arrived message, read by the method's settings of that moment."""

    arrival: Arrival
    reading: UpdateOffered | Refused


def read_offers(topics: Topics, limits: Limits, arrivals: Sequence[Arrival]) -> list[Offered]:
    """Read updates; leave out other messages that need no answer."""
    readings = ((arrival, read_message(topics, limits, arrival.message)) for arrival in arrivals)
    return [Offered(arrival, reading) for arrival, reading in readings if isinstance(reading, UpdateOffered | Refused)]


def verify_offers(offers: Sequence[Offered], keys: Mapping[str, bytes | None]) -> list[Offered]:
    """Verify the updates of clients whose keys are known."""
    return [_verified(offered, keys) for offered in offers]


def _verified(offered: Offered, keys: Mapping[str, bytes | None]) -> Offered:
    reading = offered.reading
    if not isinstance(reading, UpdateOffered) or isinstance(reading.signed, VerifiedAhead):
        return offered
    key = keys.get(reading.offer.client_id)
    if key is None:
        return offered
    signed = VerifiedAhead(reading.signed.topic, reading.signed.envelope, key, reading.signed.by(key))
    return replace(offered, reading=reading._replace(signed=signed))

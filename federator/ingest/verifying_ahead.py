"""Reads updates and verifies who signed them before the federation's row is locked, in a thread.

What is found out here decides nothing: the key that an update was verified with is compared under the lock with the one
that is stored then, and where it is another one the signature is verified once more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from foltr.broker.buffer import Arrival
from foltr.core.protocol.topics import Topics
from foltr.federator.reading import Limits, Refused, Signed, UpdateOffered, read_message


@dataclass(frozen=True)
class VerifiedAhead(Signed):
    """A signature that was verified with the key that its client had a moment ago."""

    public_key: bytes
    holds: bool

    def by(self, public_key: bytes) -> bool:
        return self.holds if public_key == self.public_key else super().by(public_key)


@dataclass(frozen=True)
class Offered:
    """A message that arrived, and what it reads as under the method's settings of that moment."""

    arrival: Arrival
    reading: UpdateOffered | Refused


def read_offers(topics: Topics, limits: Limits, arrivals: Sequence[Arrival]) -> list[Offered]:
    """Read updates; what is none, and nobody waits for, is left out."""
    readings = ((arrival, read_message(topics, limits, arrival.message)) for arrival in arrivals)
    return [Offered(arrival, reading) for arrival, reading in readings if isinstance(reading, UpdateOffered | Refused)]


def verify_offers(offers: Sequence[Offered], keys: Mapping[str, bytes | None]) -> list[Offered]:
    """Verify the updates whose clients' keys are known."""
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

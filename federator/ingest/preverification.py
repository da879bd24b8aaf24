"""Reads updates and verifies their signatures in a thread, before the federation's row is locked.

This decides nothing: under the lock the verifying key is compared with the stored one, and if they differ it is
verified again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from foltr.broker.buffer import Arrival
from foltr.core.protocol.topics import Topics
from foltr.federator.reading import ReceivedUpdate, RefusedMessage, Signed, UpdateLimits, read_message


@dataclass(frozen=True)
class PreverifiedSignature(Signed):
    """A signature that was verified with its client's key of a moment ago."""

    public_key: bytes
    holds: bool

    def by(self, public_key: bytes) -> bool:
        return self.holds if public_key == self.public_key else super().by(public_key)


@dataclass(frozen=True)
class ReadArrival:
    """An arrived message, read by the method's settings of that moment."""

    arrival: Arrival
    reading: ReceivedUpdate | RefusedMessage


def read_arrivals(topics: Topics, limits: UpdateLimits, arrivals: Sequence[Arrival]) -> list[ReadArrival]:
    """Read updates; leave out other messages that need no answer."""
    readings = ((arrival, read_message(topics, limits, arrival.message)) for arrival in arrivals)
    return [
        ReadArrival(arrival, reading)
        for arrival, reading in readings
        if isinstance(reading, ReceivedUpdate | RefusedMessage)
    ]


def preverify(offers: Sequence[ReadArrival], keys: Mapping[str, bytes | None]) -> list[ReadArrival]:
    """Verify the updates of clients whose keys are known."""
    return [_verified(offered, keys) for offered in offers]


def _verified(offered: ReadArrival, keys: Mapping[str, bytes | None]) -> ReadArrival:
    reading = offered.reading
    if not isinstance(reading, ReceivedUpdate) or isinstance(reading.signed, PreverifiedSignature):
        return offered
    key = keys.get(reading.header.client_id)
    if key is None:
        return offered
    signed = PreverifiedSignature(reading.signed.topic, reading.signed.envelope, key, reading.signed.by(key))
    return replace(offered, reading=reading._replace(signed=signed))

"""What ``foltr doctor`` looks at of what the broker retains: the round, and what the operator has signed."""

import time
from datetime import UTC, datetime
from typing import Final

from foltr.cli.doctor.checks import Check, Found, absent, ok, problem, warning
from foltr.cli.doctor.checks_broker import Visit
from foltr.core.errors import MessageError
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.chunks import Assembly
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.enrolment import read_roster
from foltr.core.protocol.epochs import ends_soon
from foltr.core.protocol.fields import MAX_CHUNKED_BYTES, SCHEMA_VERSION
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.policies import Policy
from foltr.core.protocol.signed_documents import read_schema
from foltr.core.protocol.signed_policies import read_policy
from foltr.core.protocol.updates import Chunk, Manifest

_CLOCK_TOLERANCE_S: Final = 5.0
# A beat that is late by this machine's clock: three are missing, or the clocks differ.
_MISSED_BEATS: Final = 3
_LOG: Final = "Look at its log"
_ASK: Final = "Ask the operator; devices ignore what it announces"


def _federation(visit: Visit) -> Found | None:
    """Look at what the federator announces: whether there is anything, by whom, and of which version."""
    topics, keys = visit.topics, visit.keys
    if visit.is_federator:  # it may not read what it announces, and need not
        return None
    if topics.round not in visit.heard:
        return absent(f"nothing is announced for {visit.federation!r}: no federator of it has run at this broker yet")
    try:
        for topic in (topics.model, topics.round, topics.federator_status):
            if topic not in visit.heard:
                continue
            envelope = open_envelope(visit.heard[topic].payload, MAX_CHUNKED_BYTES)
            if keys is not None and not envelope.is_signed_by(keys.credentials.federator_public_key, topic):
                other = "it is another federation of the same name, or its key was replaced"
                return problem(f"{topic} is not signed by the federator these credentials name: {other}", _ASK)
        announced = open_envelope(visit.heard[topics.round].payload).read(RoundAnnouncement)
    except MessageError as error:
        return problem(f"what {visit.federation!r} announces: {error.detail}")
    visit.announced = announced
    closed = "over" if announced.last else "closed, until it is aggregated or helpers are there"
    signed = "" if keys is None else ", signed by its federator"
    state = "open" if announced.open else closed
    return ok(f"round {announced.round} of {visit.federation} is {state}{signed}; schema version {SCHEMA_VERSION}")


def federator_found(visit: Visit) -> Found | None:
    """Say whether the federator is there, by the heartbeat that the broker retains."""
    if visit.announced is None:
        return None
    heard = visit.retained(visit.topics.federator_status)
    if heard is None:
        return warning("the broker has no heartbeat of it: it has not run since this broker lost what it retained")
    status = open_envelope(heard).read(FederatorStatus)
    if not status.online:
        if visit.announced.last:
            return ok("it is away, after its last round")
        return problem("it is not running, or has lost the broker, which says that it is away")
    age_s = time.time() - status.at
    if age_s < -_CLOCK_TOLERANCE_S:
        return warning(f"this machine's clock is {-age_s:.0f} s behind the federator's", "Set both by NTP")
    age = f"{max(0.0, age_s):.0f} s ago by this machine's clock"
    if age_s > _MISSED_BEATS * status.interval_s:
        cause = "it hangs or cannot reach its database, or the clocks differ"
        return warning(f"its last beat is from {age}, and one is due each {status.interval_s:g} s: {cause}", _LOG)
    return ok(f"it is there: foltr {status.software_version}, its last beat is from {age}")


def _enrolment_key(visit: Visit) -> Found | None:
    if visit.credentials is None or visit.keys is None:
        return None
    if visit.keys.hindrance is not None:
        return warning(visit.keys.hindrance)
    if visit.keys.credentials.enrolment_key == visit.credentials.enrolment_key:
        return None
    return ok("it was rotated since these credentials were written, as the broker says; they need not be replaced")


def _roster(visit: Visit) -> Found | None:
    """Say whether the roster revokes this device."""
    device = None if visit.keys is None else visit.keys.credentials
    if device is None or device.role != "device" or visit.announced is None or visit.topics.roster not in visit.heard:
        return None
    try:
        roster = read_roster(_whole_roster(visit), device.operator_keys, device.federation)
    except MessageError as error:
        detail = f"{error.detail}: somebody else wrote it; it counts for nothing"
        return warning(f"{detail}. Or the enrolment key was rotated, and the access list keeps that back")
    payload = device.enrolment_bytes
    serial = 0 if payload is None else open_envelope(payload).sequence
    if any(entry.client_id == device.name and serial < entry.void_below for entry in roster.revoked):
        again = "Ask the operator for: foltr device enrol --replace"
        return problem(f"{device.name} is revoked (roster {roster.version})", again)
    return ok(f"roster {roster.version} does not revoke {device.name}")


def _whole_roster(visit: Visit) -> bytes:
    """Put the roster together if it came in chunks; MessageError if one is missing."""
    payload = visit.heard[visit.topics.roster].payload
    envelope = open_envelope(payload, MAX_CHUNKED_BYTES)
    if envelope.kind != Manifest.kind_name:
        return payload
    assembly = Assembly(envelope.read(Manifest))
    for index in range(assembly.manifest.n_chunks):
        part = visit.retained(visit.topics.roster_chunk(index))
        if part is not None:
            assembly.add(open_envelope(part).read(Chunk))
    return assembly.payload()


def policy_found(visit: Visit) -> Found | None:
    """Compare the policy of secure sums at the broker with that of the credentials.

    What is retained at the broker a federator's own session alone hears, which nobody else may take.
    """
    credentials, retained = visit.credentials, visit.retained(visit.topics.policy)
    carried = None if credentials is None else credentials.signed_policy
    if credentials is None or visit.keys is None or (not retained and carried is None):
        return None
    if visit.is_federator and carried is not None:
        shown = f"policy {carried.policy.version} is in the credentials ({carried.hash.hex()[:16]})"
        if credentials.can_check(carried.policy):
            return _lasting(shown, carried.policy)
        again = "Take the operator's newest federator.json; if it has that, make another policy: foltr policy new"
        return problem(f"{shown}, and its verify key is sealed to no key in them, so no federator starts", again)
    if not retained:
        return warning("the credentials have one, and the broker none")
    try:
        newest = read_policy(retained, visit.keys.credentials.operator_keys, credentials.federation)
    except MessageError as error:
        return warning(f"what the broker retains is not the operator's ({error.detail}), and obeyed by nobody")
    shown = f"policy {newest.policy.version} is at the broker ({newest.hash.hex()[:16]})"
    if carried is not None and carried.policy.version > newest.policy.version:
        return warning(f"{shown}, and the credentials have {carried.policy.version}")
    if credentials.role == "helper":
        keys = newest.policy.helper(credentials.name)
        if keys is None or keys.signing_key != credentials.key.public:
            again = "foltr helper keys, then the operator's foltr policy new"
            return warning(f"{shown}, and does not name this helper with this key, so it is asked nothing", again)
        shown = f"{shown} and names {credentials.name}"
    return _lasting(shown, newest.policy)


def _lasting(shown: str, policy: Policy) -> Found:
    """Say which policy it is, or that it ends soon or has ended."""
    now = time.time()
    if not ends_soon(policy, now):
        return ok(f"{shown}: epsilon {policy.epsilon:g}, helpers {', '.join(keys.name for keys in policy.helpers)}")
    ends = f"{'ended' if policy.ends_at <= now else 'ends'} on {datetime.fromtimestamp(policy.ends_at, UTC):%Y-%m-%d}"
    again = "foltr helper keys at each helper, foltr policy new, foltr policy publish"
    return warning(f"{shown}; it {ends}, and no device takes part after that", again)


def schema_found(visit: Visit) -> Found | None:
    """Compare the feature schema at the broker with the one in the newest round."""
    retained, keys = visit.retained(visit.topics.schema), visit.keys
    announced = None if visit.announced is None else visit.announced.schema_hash
    if keys is None or (not retained and announced is None):
        return None
    if not retained:
        return warning("the operator has published none: devices with other features cannot say what differs")
    try:
        published = read_schema(retained, keys.credentials.operator_keys, keys.credentials.federation).content
    except MessageError as error:
        return warning(f"what the broker retains is not the operator's ({error.detail})")
    shown = f"schema {published.name} {published.version} is at the broker ({published.hash.hex()[:16]})"
    if announced == published.hash or visit.announced is None:
        return ok(f"{shown}: {published.n_features} features")
    there = "has none" if announced is None else f"announces another ({announced.hex()[:16]})"
    other = "A newer schema is another federation's: docs/features.md"
    return warning(f"{shown}, and the federator {there}; devices with the published one wait", other)


ANNOUNCED: Final = (
    Check("federation", _federation),
    Check("federator", federator_found, "Start it: foltr federator run"),
    Check("enrolment key", _enrolment_key),
    Check("roster", _roster, "Write the access list again, foltr broker config --force, then: foltr operator publish"),
    Check("policy", policy_found, "Retain the right one: foltr policy publish"),
    Check("schema", schema_found, "Retain the right one: foltr schema publish FILE"),
)

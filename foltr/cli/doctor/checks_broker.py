"""What ``foltr doctor`` looks at on the broker: reachable, encrypted, who may do what, and what is announced there.

Nothing it sends is stored or obeyed by anybody: messages to itself, and empty ones, not retained, to a client that
does not exist or to topics of the user's own, which a federator passes over.
"""

import asyncio
import contextlib
import secrets
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foltr.cli.doctor.checks import Finding, State, days_left
from foltr.cli.doctor.checks_access import (
    NOBODYS_FILTER,
    anchor_finding,
    anchor_topic,
    operator_key_finding,
    subscription_finding,
)
from foltr.cli.doctor.checks_federator import federator_finding
from foltr.cli.doctor.checks_keys import key_findings, or_rotated
from foltr.cli.doctor.checks_policy import carried_policy_findings, policy_findings
from foltr.cli.doctor.checks_schema import schema_findings
from foltr.errors import MessageError, SettingsError, UnavailableError
from foltr.operator.credentials import Credentials, is_worker_user
from foltr.operator.heard_keys import HeardKeys, believe_heard, key_topics
from foltr.protocol.announcements import RoundAnnouncement
from foltr.protocol.chunks import Assembly
from foltr.protocol.codec import Envelope, open_envelope
from foltr.protocol.enrolment import read_roster
from foltr.protocol.fields import MAX_CHUNKED_BYTES, SCHEMA_VERSION
from foltr.protocol.heartbeat import FederatorStatus
from foltr.protocol.topics import ClientTopic, Topics
from foltr.protocol.updates import Chunk, Manifest

if TYPE_CHECKING:
    from broker.address import BrokerAddress
    from broker.link import InboundMessage

_ANSWER_S = 3.0
# Retained messages and our own come at once or not at all.
_QUIET_S = 0.5
_CLOCK_TOLERANCE_S = 5.0
_RENEW = "run the same `foltr broker config` again where the broker is, which renews it, and restart the broker"


@dataclass
class Visit:
    """One look at a broker, as one user."""

    address: "BrokerAddress"
    federation: str
    credentials: Credentials | None
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    heard: "dict[str, InboundMessage]" = field(default_factory=dict)

    @property
    def topics(self) -> Topics:
        return Topics(self.federation)

    @property
    def user(self) -> str:
        return self.address.username or f"foltr-doctor-{self.nonce}"

    def retained(self, topic: str) -> bytes | None:
        """Return what was heard on a topic; None where nothing was."""
        message = self.heard.get(topic)
        return None if message is None else message.payload

    @property
    def keys(self) -> HeardKeys | None:
        """Whom these credentials believe, by what the broker retains of newer keys; None without credentials."""
        return None if self.credentials is None else believe_heard(self.credentials, self.heard)

    @property
    def federator_status(self) -> FederatorStatus | None:
        """What the broker retains of the federator's heartbeat. MessageError where it cannot be read."""
        heard = self.heard.get(self.topics.federator_status)
        return None if heard is None else open_envelope(heard.payload).read(FederatorStatus)

    @property
    def is_federator(self) -> bool:
        """Whose session must not be taken: updates may be waiting in it."""
        return self.credentials is not None and self.credentials.role == "federator"

    @property
    def own_topic(self) -> str:
        """Where the operator may speak to itself, and where there is no access list, everybody."""
        return f"foltr/doctor/{self.user}"

    @property
    def anothers_topic(self) -> str:
        """Of a client that does not exist. An empty status is none: federators pass it over."""
        return self.topics.client(f"doctor-{self.nonce}", ClientTopic.STATUS)

    @property
    def granted_topic(self) -> str:
        """What this user's part takes, and where an empty message means nothing to anybody."""
        match self.credentials:
            case Credentials(role="device"):
                return self.topics.client(self.user, ClientTopic.STATUS)
            case Credentials(role="helper", name=name):
                return self.topics.helper_answers(name)
            case Credentials(role="federator"):
                return self.topics.client(f"doctor-{self.nonce}", ClientTopic.INBOX)
            case _:
                return self.own_topic


async def look(visit: Visit) -> list[Finding]:
    """Everything about one broker; each wait is bounded."""
    findings, topics = [await _encryption(visit)], visit.topics
    if findings[0].state is State.PROBLEM and visit.address.tls:
        return [*findings, Finding("broker", State.PROBLEM, f"{visit.address}: no connection, see tls")]
    try:
        if not visit.is_federator:
            findings.append(await _round_trip(visit))
        findings += await _access(visit)
    except (UnavailableError, SettingsError) as error:
        return [*findings, Finding("broker", State.PROBLEM, str(error))]
    # A federator may not read what it announces itself, and need not.
    if visit.credentials is not None and visit.is_federator:
        return [*findings, *carried_policy_findings(visit.credentials)]
    policy, schema, round_ = (visit.retained(topic) for topic in (topics.policy, topics.schema, topics.round))
    return [
        *findings,
        *key_findings(visit.credentials, visit.keys),
        *announced_findings(visit),
        *policy_findings(visit.credentials, policy, visit.keys),
        *schema_findings(None if visit.keys is None else visit.keys.credentials, schema, round_),
    ]


async def _encryption(visit: Visit) -> Finding:
    from broker.mosquitto import is_loopback
    from broker.probe import look_at_tls
    from broker.tls import explain_failure

    address = visit.address
    if not address.tls:
        if is_loopback(address.host):
            return Finding("tls", State.ABSENT, "none; it stays on this machine")
        if address.password is not None:
            detail = (
                f"the password crosses the network readable: set up TLS with `foltr broker config --tls` and use "
                f"mqtts://{address.host}:8883"
            )
            return Finding("tls", State.PROBLEM, detail)
        return Finding("tls", State.WARNING, "none: what is sent can be read and changed on its way; use mqtts://")
    try:
        shown = await asyncio.to_thread(look_at_tls, address, _ANSWER_S)
    except ssl.SSLError as error:
        cause, advice = explain_failure(error) or (str(error), "Look at the broker's log")
        return Finding("tls", State.PROBLEM, f"{address}: {cause}. {advice}")
    except TimeoutError:
        detail = (
            f"{address}: no answer to a TLS handshake within {_ANSWER_S:g} s. Is it a broker with TLS on this port?"
        )
        return Finding("tls", State.PROBLEM, detail)
    except OSError as error:
        cause = error.strerror or str(error) or type(error).__name__
        detail = f"{address}: {cause}. Start the broker, or check the host and the port"
        return Finding("tls", State.PROBLEM, detail)
    who = f"{shown.protocol}, certificate of {shown.subject!r} issued by {shown.issuer!r}, for the host {address.host}"
    return days_left("tls", who, shown.not_after, _RENEW)


async def _round_trip(visit: Visit) -> Finding:
    """Connect as this user, send a message that means nothing to anybody, and hear what is retained meanwhile."""
    from broker.link import InboundMessage, MqttLink

    topics = visit.topics

    def received(message: InboundMessage) -> None:
        visit.heard[message.topic] = message

    link = MqttLink(
        visit.address,
        client_id=f"foltr-doctor-{visit.nonce}" if visit.is_federator else visit.user,
        subscriptions=[
            *key_topics(visit.federation),
            topics.policy,
            topics.schema,
            topics.round,
            topics.federator_status,
            topics.model,
            topics.roster,
            topics.roster_chunks,
        ],
        on_message=received,
        persistent=False,
        timeout_s=_ANSWER_S,
        give_up_after_s=0.0,
    )
    async with link:
        await link.wait_connected(_ANSWER_S)
        with contextlib.suppress(UnavailableError):
            # Where it is refused nothing of another's is heard.
            await link.subscribe([visit.anothers_topic])
        started = time.perf_counter()
        # Its acknowledgement is the answer. Nobody may write what it reads: the broker would queue that without end.
        await link.publish(visit.granted_topic, b"")
        milliseconds = 1000 * (time.perf_counter() - started)
        await link.publish(visit.anothers_topic, b"")
        await asyncio.sleep(_QUIET_S)
    who = "as nobody" if visit.address.username is None else f"as {visit.address.username}"
    return Finding(
        "broker", State.OK, f"{visit.address} answers {who}, a message and its answer take {milliseconds:.0f} ms"
    )


async def _access(visit: Visit) -> list[Finding]:
    """What this user can write, by the broker's own words where it has any."""
    from broker.probe import RefusedError, TakenOverError

    what = "access list"
    findings = []
    try:
        own, others, newer, anything = await asyncio.to_thread(_try_topics, visit)
    except TakenOverError as error:
        return [Finding(what, State.WARNING, f"{error}: stop that one to have everything looked at")]
    except RefusedError:
        raise
    except UnavailableError:
        # MQTT 3.1.1 only: whatever comes back was let through.
        if visit.is_federator:
            findings.append(await _round_trip(visit))
        own, others, newer, anything = True, visit.anothers_topic in visit.heard, None, None
    else:
        if visit.is_federator:
            findings.append(Finding("broker", State.OK, f"{visit.address} answers as {visit.user}"))
    if newer is not None:
        finding = anchor_finding if visit.is_federator else operator_key_finding
        findings.append(finding(visit.federation, may_write=newer))
    if not own:
        detail = (
            f"{visit.user} may not write {visit.granted_topic}, which its part needs: is the broker's access list for "
            f"the federation {visit.federation}? `foltr broker config --force` writes it, then reload the broker"
        )
        return [*findings, Finding(what, State.PROBLEM, detail)]
    if others:
        signed = "signatures protect what a federator with credentials takes"
        detail = f"none: anyone can write in anyone's name; {signed}. `foltr broker config --tls` closes it"
        return [*findings, Finding(what, State.WARNING, detail)]
    detail = f"{visit.user} can write what its part needs, and not what is another's"
    findings.append(Finding(what, State.OK, detail))
    return findings if anything is None else [*findings, subscription_finding(visit.user, is_granted=anything)]


def _try_topics(visit: Visit) -> tuple[bool, bool, bool | None, bool]:
    """Whether this user may write what is its own, what is another's, what an older list lacks; and subscribe at will.

    An older list lacks a federator's anchor, and an operator's word of another enrolment key; others write neither, and
    have None: devices, helpers, and ingest workers, whose credentials are a federator's and which only answer updates.
    """
    from broker.probe import Probe

    # A federator may clear any client's status; the roster is the operator's, and an empty one is passed over.
    forbidden = visit.topics.roster if visit.is_federator else visit.anothers_topic
    with Probe(visit.address, visit.user, _ANSWER_S) as probe:
        own, others = probe.may_publish(visit.granted_topic), probe.may_publish(forbidden)
        anything = probe.may_subscribe(NOBODYS_FILTER)
        match visit.credentials:
            case Credentials(role="federator", name=name) if not is_worker_user(name):
                return own, others, probe.may_publish(anchor_topic(visit.federation)), anything
            case Credentials(role="operator"):
                # An empty one is passed over by all who hear it.
                return own, others, probe.may_publish(visit.topics.operator_key), anything
            case _:
                return own, others, None, anything


# --- what is retained there -----------------------------------------------------------------------------------


def announced_findings(visit: Visit) -> list[Finding]:
    """Look at what the federator announces: whether there is anything, by whom, and of which version."""
    topics = visit.topics
    if topics.round not in visit.heard:
        detail = f"nothing is announced for {visit.federation!r}: no federator of it has run at this broker yet"
        return [Finding("federation", State.ABSENT, detail)]
    findings = []
    try:
        for topic in (topics.model, topics.round, topics.federator_status):
            if topic in visit.heard:
                _check_signed(visit, topic, open_envelope(visit.heard[topic].payload, MAX_CHUNKED_BYTES))
        announced = open_envelope(visit.heard[topics.round].payload).read(RoundAnnouncement)
        status = visit.federator_status
    except MessageError as error:
        return [Finding("federation", State.PROBLEM, f"what {visit.federation!r} announces: {error.detail}")]
    state = (
        "open"
        if announced.open
        else "over"
        if announced.last
        else "closed, until it is aggregated or helpers are there"
    )
    signed = "" if visit.credentials is None else ", signed by its federator"
    detail = f"round {announced.round} of {visit.federation} is {state}{signed}; schema version {SCHEMA_VERSION}"
    findings.append(Finding("federation", State.OK, detail))
    findings.append(federator_finding(status, is_over=announced.last))
    findings.append(_clock(visit, announced))
    if visit.keys is not None and visit.keys.credentials.role == "device" and topics.roster in visit.heard:
        findings += _revoked(visit.keys.credentials, visit)
    return findings


def _check_signed(visit: Visit, topic: str, envelope: Envelope) -> None:
    keys = visit.keys
    if keys is not None and not envelope.is_signed_by(keys.credentials.federator_public_key, topic):
        raise MessageError(
            "bad_signature",
            f"{topic} is not signed by the federator these credentials name: is it another federation of the same "
            "name, or was its key replaced? Ask the operator; devices ignore what it announces",
        )


def _clock(visit: Visit, announced: RoundAnnouncement) -> Finding:
    """A hint only: the announcement says when the round opened, by the federator's clock."""
    harmless = "devices need no clock: deadlines are the federator's"
    ahead = announced.opened_at - time.time()
    if ahead > _CLOCK_TOLERANCE_S:
        who = "this machine's clock is behind the federator's, or that one's is ahead"
        matter = "" if visit.credentials is None or visit.credentials.role == "device" else "; set both by NTP"
        detail = f"{who}, by {ahead:.0f} s at least. {harmless}{matter}"
        is_device = visit.credentials is not None and visit.credentials.role == "device"
        return Finding("clock", State.OK if is_device else State.WARNING, detail)
    overdue = time.time() - announced.closes_at
    if announced.open and overdue > _CLOCK_TOLERANCE_S:
        detail = (
            f"by this machine's clock round {announced.round} should have ended {overdue:.0f} s ago: its federator is "
            f"not running (start it), or this clock is ahead; {harmless}"
        )
        return Finding("clock", State.WARNING, detail)
    return Finding("clock", State.OK, f"it does not contradict the federator's; {harmless}")


def _revoked(device: Credentials, visit: Visit) -> list[Finding]:
    try:
        roster = read_roster(_whole_roster(visit), device.operator_keys, device.federation)
    except MessageError as error:
        detail = f"{error.detail}: somebody else wrote it; it counts for nothing"
        other = or_rotated(visit.retained(visit.topics.operator_key))
        return [Finding("roster", State.WARNING, f"{detail}{other}")]
    payload_of_ours = device.enrolment_bytes
    serial = 0 if payload_of_ours is None else open_envelope(payload_of_ours).sequence
    if any(entry.client_id == device.name and serial < entry.void_below for entry in roster.revoked):
        detail = (
            f"{device.name} is revoked (roster {roster.version}); ask the operator for: foltr device enrol --replace"
        )
        return [Finding("roster", State.PROBLEM, detail)]
    return [Finding("roster", State.OK, f"roster {roster.version} does not revoke {device.name}")]


def _whole_roster(visit: Visit) -> bytes:
    """Put the roster together where it came in chunks; MessageError if one is missing."""
    payload = visit.heard[visit.topics.roster].payload
    envelope = open_envelope(payload, MAX_CHUNKED_BYTES)
    if envelope.kind != Manifest.kind_name:
        return payload
    assembly = Assembly(envelope.read(Manifest))
    for index in range(assembly.manifest.n_chunks):
        part = visit.heard.get(visit.topics.roster_chunk(index))
        if part is not None:
            assembly.add(open_envelope(part.payload).read(Chunk))
    return assembly.payload()

"""``foltr doctor``'s checks of the broker: reachable, encrypted, access rights, and retained messages.

Its messages change nothing. They go to itself, or are empty and not retained: to a client that does not exist, or to
topics of the user's own that a federator ignores.
"""

import asyncio
import contextlib
import secrets
import ssl
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage
from foltr.broker.mosquitto import is_loopback
from foltr.broker.probe import LoginRefusedError, Probe, TakenOverError, inspect_tls
from foltr.broker.short_connections import short_connection
from foltr.broker.tls import explain_failure
from foltr.cli.doctor.checks import Check, CheckResult, absent, days_left, ok, problem, warning
from foltr.core.errors import MessageError, UnavailableError
from foltr.core.operator.credentials import Credentials, is_worker_user
from foltr.core.operator.followed_keys import FollowedKeys, follow_messages, key_topics
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.epochs import ends_soon
from foltr.core.protocol.fields import MAX_CHUNKED_BYTES, SCHEMA_VERSION
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.policies import NEW_POLICY
from foltr.core.protocol.signed_policies import read_policy
from foltr.core.protocol.topics import ClientTopic, Topics

_ANSWER_S: Final = 3.0
# Retained messages and our own arrive at once or not at all.
_QUIET_S: Final = 0.5
# No anchor has so many parts, so devices ignore this topic.
_NO_PART: Final = 1_000_000
# A topic that no user of a federation needs.
_NOBODYS_FILTER: Final = "foltr/doctor/nobody"
_NO_TLS: Final = "Start the broker, or check the host and the port: is it a broker with TLS?"
_RENEW: Final = "Renew it on the broker's machine: `foltr broker renew`"
_NEW_LIST: Final = "Rewrite it on the broker's machine with `foltr broker config --force`, and restart the broker"


_CLOCK_TOLERANCE_S: Final = 5.0
# Heartbeats that may be missed by this machine's clock. Beyond that the federator hangs, or the clocks differ.
_MISSED_BEATS: Final = 3
_LOG: Final = "Look at its log"
_ASK: Final = "Ask the operator; devices ignore what it announces"


class AccessRights(NamedTuple):
    """What the broker permits this user.

    Attributes:
        lacking: topics that the role needs and cannot write.
        others: whether the user may write another's topic.
        anything: whether the user may subscribe to a topic nobody needs; None: MQTT 3.1.1 does not say.
    """

    lacking: list[str]
    others: bool
    anything: bool | None


@dataclass
class BrokerUnderCheck:
    """One visit to a broker as one user. The first checks fill in what was received.

    Attributes:
        heard: the newest message by topic.
        announced: the round that the federator announces.
    """

    address: BrokerAddress
    federation: str
    credentials: Credentials | None
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    heard: dict[str, InboundMessage] = field(default_factory=dict)
    rights: AccessRights | None = None
    announced: RoundAnnouncement | None = None

    @property
    def topics(self) -> Topics:
        return Topics(self.federation)

    @property
    def user(self) -> str:
        return self.address.username or f"foltr-doctor-{self.nonce}"

    @property
    def keys(self) -> FollowedKeys | None:
        """The keys that these credentials trust, with rotations retained by the broker. None without credentials."""
        return None if self.credentials is None else follow_messages(self.credentials, self.heard)

    @property
    def is_federator(self) -> bool:
        """Whether the user is the federator. Its session must not be taken over: updates may be queued in it."""
        return self.credentials is not None and self.credentials.role == "federator"

    @property
    def anothers_topic(self) -> str:
        """A topic of a nonexistent client. Federators ignore an empty status."""
        return self.topics.client(f"doctor-{self.nonce}", ClientTopic.STATUS)

    @property
    def granted_topics(self) -> list[str]:
        """Topics that this role writes and on which an empty message has no effect."""
        topics = self.topics
        match self.credentials:
            case Credentials(role="device"):
                return [topics.client(self.user, ClientTopic.STATUS)]
            case Credentials(role="helper", name=name):
                return [topics.helper_answers(name)]
            case Credentials(role="federator", name=name):
                anchor = [] if is_worker_user(name) else [topics.anchor_chunk(_NO_PART)]
                return [topics.client(f"doctor-{self.nonce}", ClientTopic.INBOX), *anchor]
            case Credentials(role="operator"):
                return [f"foltr/doctor/{self.user}", topics.operator_key]
            case _:
                return [f"foltr/doctor/{self.user}"]

    def retained(self, topic: str) -> bytes | None:
        """Return the newest message on a topic."""
        message = self.heard.get(topic)
        return None if message is None else message.payload


async def _encryption(visit: BrokerUnderCheck) -> CheckResult:
    address = visit.address
    if not address.tls:
        if is_loopback(address.host):
            return absent("none; it stays on this machine")
        if address.password is not None:
            return problem("the password crosses the network in clear text")
        return warning("none: others on the network can read and change messages")
    try:
        shown = await asyncio.to_thread(inspect_tls, address, _ANSWER_S)
    except OSError as error:
        known = explain_failure(error) if isinstance(error, ssl.SSLError) else None
        cause, advice = known or (error.strerror or str(error) or type(error).__name__, _NO_TLS)
        return problem(f"{address}: {cause}", advice)
    who = f"{shown.protocol}, certificate of {shown.subject!r} issued by {shown.issuer!r}, for the host {address.host}"
    return days_left(who, shown.not_after)._replace(next_step=_RENEW)


async def _connection(visit: BrokerUnderCheck) -> list[CheckResult]:
    """Connect as this user, receive retained messages, and find out the user's rights."""
    found = [] if visit.is_federator else [await _round_trip(visit)]
    try:
        visit.rights = await asyncio.to_thread(_rights, visit)
    except TakenOverError as error:
        return [*found, warning(str(error), "Stop that process to check everything")]
    except LoginRefusedError:
        raise
    except UnavailableError:
        # MQTT 3.1.1 only: a message that comes back was permitted.
        found = found or [await _round_trip(visit)]
        visit.rights = AccessRights([], visit.anothers_topic in visit.heard, None)
    return found or [ok(f"{visit.address} answers as {visit.user}")]


async def _round_trip(visit: BrokerUnderCheck) -> CheckResult:
    """Send a message without effect to itself, and receive retained messages meanwhile."""
    topics, session = visit.topics, f"foltr-doctor-{visit.nonce}" if visit.is_federator else visit.user
    retained = [*key_topics(visit.federation), topics.policy, topics.round, topics.federator_status, topics.model]

    def received(message: InboundMessage) -> None:
        visit.heard[message.topic] = message

    async with short_connection(visit.address, session, retained, received, _ANSWER_S) as link:
        with contextlib.suppress(UnavailableError):
            # If the broker refuses this subscription, nothing of the other client arrives.
            await link.subscribe([visit.anothers_topic])
        started = time.perf_counter()
        # The acknowledgement suffices. Nobody may write a topic that the federator reads: messages would pile up at the
        # broker.
        await link.publish(visit.granted_topics[0], b"")
        milliseconds = 1000 * (time.perf_counter() - started)
        await link.publish(visit.anothers_topic, b"")
        await asyncio.sleep(_QUIET_S)
    who = "as nobody" if visit.address.username is None else f"as {visit.address.username}"
    return ok(f"{visit.address} answers {who}, a message and its answer take {milliseconds:.0f} ms")


def _rights(visit: BrokerUnderCheck) -> AccessRights:
    # A federator may clear any client's status. The roster is the operator's, and an empty one is ignored.
    forbidden = visit.topics.roster if visit.is_federator else visit.anothers_topic
    with Probe(visit.address, visit.user, _ANSWER_S) as probe:
        lacking = [topic for topic in visit.granted_topics if not probe.may_publish(topic)]
        return AccessRights(lacking, probe.may_publish(forbidden), probe.may_subscribe(_NOBODYS_FILTER))


def _access(visit: BrokerUnderCheck) -> CheckResult | None:
    """Judge this user's write permissions, by the broker's reason codes if it sends any."""
    if visit.rights is None:
        return None
    if visit.rights.lacking:
        topics = " and ".join(visit.rights.lacking)
        return problem(
            f"{visit.user} may not write {topics}, which its role needs: the access list is old, or "
            "another federation's"
        )
    if visit.rights.others:
        signed = "signatures still protect a federator with credentials"
        return warning(f"none: anyone can write in anyone's name; {signed}", "`foltr broker config --tls` makes one")
    return ok(f"{visit.user} can write what its role needs, and nothing of others")


def _subscriptions(visit: BrokerUnderCheck) -> CheckResult | None:
    if visit.rights is None or visit.rights.anything is None or visit.rights.others:
        return None
    if not visit.rights.anything:
        return ok(f"{visit.user} cannot subscribe to what its role does not need")
    cost = "one device can subscribe until the broker's memory is full"
    return problem(
        f"the broker grants {visit.user} the useless subscription {_NOBODYS_FILTER}, and so any other: {cost}"
    )


BROKER: Final = (
    Check("tls", _encryption, "Set up TLS with `foltr broker config --tls`, and use mqtts://HOST:8883"),
    Check("broker", _connection, is_gate=True),
    Check("access list", _access, _NEW_LIST),
    Check("subscriptions", _subscriptions, f"{_NEW_LIST}. Another broker than Mosquitto: see docs/servers.md"),
)


def _federation(visit: BrokerUnderCheck) -> CheckResult | None:
    """Check the federator's announcement: whether there is one, by whom, and of which version."""
    topics, keys = visit.topics, visit.keys
    if visit.is_federator:  # the federator cannot read its own announcement and need not
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
    closed = "over" if announced.last else "closed until it is aggregated or its helpers answer"
    signed = "" if keys is None else ", signed by its federator"
    state = "open" if announced.open else closed
    return ok(f"round {announced.round} of {visit.federation} is {state}{signed}; schema version {SCHEMA_VERSION}")


def federator_found(visit: BrokerUnderCheck) -> CheckResult | None:
    """Check the federator's retained heartbeat."""
    if visit.announced is None:
        return None
    heard = visit.retained(visit.topics.federator_status)
    if heard is None:
        return warning("the broker has no heartbeat of it: it has not run since the broker lost its retained messages")
    status = open_envelope(heard).read(FederatorStatus)
    if not status.online:
        if visit.announced.last:
            return ok("it is away, after its last round")
        return problem("the broker says that it is away: it is not running, or has lost the broker")
    age_s = time.time() - status.at
    if age_s < -_CLOCK_TOLERANCE_S:
        return warning(f"this machine's clock is {-age_s:.0f} s behind the federator's", "Set both by NTP")
    age = f"{max(0.0, age_s):.0f} s ago by this machine's clock"
    if age_s > _MISSED_BEATS * status.interval_s:
        cause = "it hangs or cannot reach its database, or the clocks differ"
        return warning(f"its last heartbeat is from {age}, and one is due every {status.interval_s:g} s: {cause}", _LOG)
    return ok(f"it is running: foltr {status.software_version}, its last heartbeat is from {age}")


def _enrolment_key(visit: BrokerUnderCheck) -> CheckResult | None:
    blocker = None if visit.keys is None else visit.keys.blocker
    return None if blocker is None else warning(blocker)


def policy_found(visit: BrokerUnderCheck) -> CheckResult | None:
    """Check the retained policy of secure sums, and whether a helper's credentials match it.

    Not for a federator: its retained messages go only to its own session, which must not be taken over.
    """
    credentials, retained = visit.credentials, visit.retained(visit.topics.policy)
    if credentials is None or visit.keys is None or not retained:
        return None
    try:
        newest = read_policy(retained, visit.keys.credentials.operator_keys, credentials.federation)
    except MessageError as error:
        return warning(f"the policy at the broker is not the operator's ({error.detail}), so nobody follows it")
    policy, carried = newest.policy, credentials.signed_policy
    shown = f"policy {policy.version} is at the broker ({newest.hash.hex()[:16]})"
    if carried is not None and carried.policy.version > policy.version:
        return warning(f"{shown}, and the credentials have {carried.policy.version}")
    if credentials.role == "helper":
        keys = policy.helper(credentials.name)
        if keys is None or keys.signing_key != credentials.key.public:
            again = f"foltr helper keys, then the operator's {NEW_POLICY}"
            return warning(
                f"{shown}, and does not name this helper with this key, so the federator does not ask it", again
            )
        shown = f"{shown} and names {credentials.name}"
    now = time.time()
    if not ends_soon(policy, now):
        return ok(f"{shown}: epsilon {policy.epsilon:g}, helpers {', '.join(keys.name for keys in policy.helpers)}")
    ends = f"{'ended' if policy.ends_at <= now else 'ends'} on {datetime.fromtimestamp(policy.ends_at, UTC):%Y-%m-%d}"
    again = f"foltr helper keys at each helper, {NEW_POLICY}, foltr policy publish"
    return warning(f"{shown}; it {ends}, and no device takes part after that", again)


ANNOUNCED: Final = (
    Check("federation", _federation),
    Check("federator", federator_found, "Start it: foltr federator run"),
    Check("enrolment key", _enrolment_key),
    Check("policy", policy_found, "Retain the right one: foltr policy publish"),
)

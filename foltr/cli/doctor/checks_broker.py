"""What ``foltr doctor`` looks at on the broker: reachable, encrypted, and who may do what.

Nothing it sends is stored or obeyed by anybody: messages to itself, and empty ones, not retained, to a client that
does not exist or to topics of the user's own, which a federator passes over.
"""

import asyncio
import contextlib
import secrets
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from foltr.broker.access import access_list
from foltr.broker.address import BrokerAddress
from foltr.broker.broker_records import ACL_NAME, read_record
from foltr.broker.link import InboundMessage
from foltr.broker.mosquitto import is_loopback
from foltr.broker.probe import Probe, RefusedError, TakenOverError, look_at_tls
from foltr.broker.tls import explain_failure
from foltr.broker.visit import visiting
from foltr.cli.doctor.checks import Check, Found, absent, ok, problem, warning
from foltr.cli.doctor.checks_machine import days_left
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.operator.credentials import Credentials, is_worker_user
from foltr.core.operator.heard_keys import HeardKeys, believe_heard, key_topics
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.user_files import FileKind, read_text_file

_ANSWER_S: Final = 3.0
# Retained messages and our own come at once or not at all.
_QUIET_S: Final = 0.5
# No anchor has so many parts: devices pass over what is said there.
_NO_PART: Final = 1_000_000
# What no user of a federation needs to subscribe to.
_NOBODYS_FILTER: Final = "foltr/doctor/nobody"
_NO_TLS: Final = "Start the broker, or check the host and the port: is it a broker with TLS?"
_RENEW: Final = "Run the same `foltr broker config` again where the broker is, which renews it, and restart the broker"
_NEW_LIST: Final = "Write it again where the broker is, `foltr broker config --force`, and restart the broker"


class Rights(NamedTuple):
    """What the broker lets this user do."""

    lacking: list[str]
    """Topics that its part needs and that it may not write."""
    others: bool
    """Whether it may write what is another's."""
    anything: bool | None
    """Whether it may subscribe to what nobody needs; None: a broker of MQTT 3.1.1 does not say."""


@dataclass
class Visit:
    """One look at a broker, as one user; the first checks fill in what they heard.

    Attributes:
        operator_dir: whose record says where the access list is, if it is on this machine.
        heard: the newest message by topic.
        announced: the round that the federator announces.
    """

    address: BrokerAddress
    federation: str
    credentials: Credentials | None
    operator_dir: Path | None = None
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    heard: dict[str, InboundMessage] = field(default_factory=dict)
    rights: Rights | None = None
    announced: RoundAnnouncement | None = None

    @property
    def topics(self) -> Topics:
        return Topics(self.federation)

    @property
    def user(self) -> str:
        return self.address.username or f"foltr-doctor-{self.nonce}"

    @property
    def keys(self) -> HeardKeys | None:
        """Whom these credentials believe, by what the broker retains of newer keys; None without credentials."""
        return None if self.credentials is None else believe_heard(self.credentials, self.heard)

    @property
    def is_federator(self) -> bool:
        """Whose session must not be taken: updates may be waiting in it."""
        return self.credentials is not None and self.credentials.role == "federator"

    @property
    def anothers_topic(self) -> str:
        """Of a client that does not exist. An empty status is none: federators pass it over."""
        return self.topics.client(f"doctor-{self.nonce}", ClientTopic.STATUS)

    @property
    def granted_topics(self) -> list[str]:
        """What this user's part writes, where an empty message means nothing to anybody."""
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
        """Return what was heard on a topic."""
        message = self.heard.get(topic)
        return None if message is None else message.payload


async def _encryption(visit: Visit) -> Found:
    address = visit.address
    if not address.tls:
        if is_loopback(address.host):
            return absent("none; it stays on this machine")
        if address.password is not None:
            return problem("the password crosses the network readable")
        return warning("none: what is sent can be read and changed on its way")
    try:
        shown = await asyncio.to_thread(look_at_tls, address, _ANSWER_S)
    except OSError as error:
        known = explain_failure(error) if isinstance(error, ssl.SSLError) else None
        cause, advice = known or (error.strerror or str(error) or type(error).__name__, _NO_TLS)
        return problem(f"{address}: {cause}", advice)
    who = f"{shown.protocol}, certificate of {shown.subject!r} issued by {shown.issuer!r}, for the host {address.host}"
    return days_left(who, shown.not_after)._replace(next_step=_RENEW)


async def _connection(visit: Visit) -> list[Found]:
    """Connect as this user, hear what is retained, and ask the broker what the user may do."""
    found = [] if visit.is_federator else [await _round_trip(visit)]
    try:
        visit.rights = await asyncio.to_thread(_rights, visit)
    except TakenOverError as error:
        return [*found, warning(str(error), "Stop that one to have everything looked at")]
    except RefusedError:
        raise
    except UnavailableError:
        # MQTT 3.1.1 only: whatever comes back was let through.
        found = found or [await _round_trip(visit)]
        visit.rights = Rights([], visit.anothers_topic in visit.heard, None)
    return found or [ok(f"{visit.address} answers as {visit.user}")]


async def _round_trip(visit: Visit) -> Found:
    """Send a message that means nothing to anybody, and hear what is retained meanwhile."""
    topics, session = visit.topics, f"foltr-doctor-{visit.nonce}" if visit.is_federator else visit.user
    retained = [*key_topics(visit.federation), topics.policy, topics.schema, topics.round, topics.federator_status]
    retained += [topics.model, topics.roster, topics.roster_chunks]

    def received(message: InboundMessage) -> None:
        visit.heard[message.topic] = message

    async with visiting(visit.address, session, retained, received, _ANSWER_S) as link:
        with contextlib.suppress(UnavailableError):
            # Where it is refused nothing of another's is heard.
            await link.subscribe([visit.anothers_topic])
        started = time.perf_counter()
        # Its acknowledgement is the answer. Nobody may write what it reads: the broker would queue that without end.
        await link.publish(visit.granted_topics[0], b"")
        milliseconds = 1000 * (time.perf_counter() - started)
        await link.publish(visit.anothers_topic, b"")
        await asyncio.sleep(_QUIET_S)
    who = "as nobody" if visit.address.username is None else f"as {visit.address.username}"
    return ok(f"{visit.address} answers {who}, a message and its answer take {milliseconds:.0f} ms")


def _rights(visit: Visit) -> Rights:
    # A federator may clear any client's status; the roster is the operator's, and an empty one is passed over.
    forbidden = visit.topics.roster if visit.is_federator else visit.anothers_topic
    with Probe(visit.address, visit.user, _ANSWER_S) as probe:
        lacking = [topic for topic in visit.granted_topics if not probe.may_publish(topic)]
        return Rights(lacking, probe.may_publish(forbidden), probe.may_subscribe(_NOBODYS_FILTER))


def _access(visit: Visit) -> Found | None:
    """Judge what this user may write, by the broker's own words if it has any."""
    if visit.rights is None:
        return None
    if visit.rights.lacking:
        topics = " and ".join(visit.rights.lacking)
        return problem(f"{visit.user} may not write {topics}, which its part needs: the list is older, or another's")
    if visit.rights.others:
        signed = "signatures protect what a federator with credentials takes"
        return warning(f"none: anyone can write in anyone's name; {signed}", "`foltr broker config --tls` makes one")
    return ok(f"{visit.user} can write what its part needs, and not what is another's")


def _subscriptions(visit: Visit) -> Found | None:
    if visit.rights is None or visit.rights.anything is None or visit.rights.others:
        return None
    if not visit.rights.anything:
        return ok(f"{visit.user} is refused what its part does not need")
    cost = "one device can subscribe until the broker's memory is full"
    return problem(f"the broker grants {visit.user} {_NOBODYS_FILTER}, which nobody needs, and so any others: {cost}")


def list_found(visit: Visit) -> Found | None:
    """Compare the access list with the one that this foltr writes, if it is on this machine.

    Lines that somebody has added are theirs to add.
    """
    if visit.operator_dir is None:
        return None
    try:
        record = read_record(visit.operator_dir)
        path = Path(record.broker_dir) / ACL_NAME
        present = set(_rules(read_text_file(path, FileKind.REGISTER)))
    except (SettingsError, OSError, UnicodeDecodeError):
        return None
    whole = _rules(access_list(record.federation, record.helpers, record.workers))
    lacking = dict.fromkeys(f"`{line}`" for user, line in whole if (user, line) not in present)
    if not lacking:
        return ok(f"{path} has all that this foltr writes")
    return warning(f"{path} lacks {', '.join(lacking)}: the broker drops what is sent there without a word")


def _rules(text: str) -> list[tuple[str, str]]:
    """Return the lines of an access list, each behind the one that says whose it is; a pattern is everybody's."""
    rules, user = [], ""
    for line in text.splitlines():
        if line.startswith("user "):
            user = line
        elif line and not line.startswith("#"):
            rules.append(("" if line.startswith("pattern ") else user, line))
    return rules


BROKER: Final = (
    Check("tls", _encryption, "Set up TLS with `foltr broker config --tls`, and use mqtts://HOST:8883"),
    Check("broker", _connection, is_gate=True),
    Check("access list", _access, _NEW_LIST),
    Check("subscriptions", _subscriptions, f"{_NEW_LIST}. Another broker than Mosquitto: see docs/brokers.md"),
    Check("access list file", list_found, _NEW_LIST),
)

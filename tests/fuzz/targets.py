"""What reads a peer's bytes; any bytes raise MessageError alone, with short words, in work that their size explains."""

import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache, partial

from fuzz.corpus import (
    BASE_VERSION,
    CREDENTIALS,
    DEVICES,
    FEDERATION,
    FEDERATOR,
    HELPER,
    HELPER_KEY,
    MAX_INTERACTIONS,
    MEMBER,
    METHODS,
    N_FEATURES,
    OPERATOR,
    POLICY,
    PROOF,
    ROUND,
    STRANGER,
    TOPICS,
    messages,
)

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, MqttLink
from foltr.core.errors import MessageError
from foltr.core.methods.bodies import BodySpec, check_body, unpack_body
from foltr.core.methods.registry import body_spec, make_aggregation
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.enrolment import read_enrolment, read_federator_key, read_roster
from foltr.core.protocol.fields import MAX_CHUNKED_BYTES, MAX_MESSAGE_BYTES, Message
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.orders import OrderAnswer
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_documents import read_schema
from foltr.core.protocol.signed_orders import read_order
from foltr.core.protocol.signed_policies import read_policy
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import Membership
from foltr.core.protocol.topics import ClientTopic
from foltr.core.secure.field import read_words
from foltr.edge_client.agent import Agent
from foltr.edge_client.options import DeviceOptions, Experiment
from foltr.edge_client.store.store import DeviceStore
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.deciding.state import FederationState
from foltr.federator.engine import Backlog, Timed, decide
from foltr.federator.plan import FederationPlan
from foltr.federator.reading import (
    ChunkAnswer,
    Reading,
    ReceivedChunk,
    ReceivedStatement,
    RefusedMessage,
    UpdateLimits,
    read_message,
    read_update,
)
from foltr.federator.reassembly import Assembler
from foltr.federator.round import Round, RoundPolicy
from foltr.federator.secure_terms import SecureTerms
from foltr.storage.records import ClientRow
from foltr.storage.tables import CLIENT_ID_MAX, DETAIL_MAX, SHORT_TEXT_MAX

MAX_RATIO = 25.0
NOW, THEN = 1_000.0, datetime(2026, 1, 1, tzinfo=UTC)
_CODES = {str(code) for code in ReceiptCode}
_LIMITS = {kind: UpdateLimits(body_spec(*method), MAX_INTERACTIONS) for kind, method in METHODS.items()}
_LIMITS["masked"] = UpdateLimits(BodySpec("masked", N_FEATURES, 0, N_FEATURES), MAX_INTERACTIONS)


# Whether it was signed by the federator or the operator: who has their keys may cost a reader what he likes.
Target = Callable[[bytes], bool]


class BrokenPromiseError(AssertionError):
    """An input for which a promise does not hold."""


def memory_limit(n_bytes: int) -> int:
    """What reading a message of this size may take at its peak."""
    return 4 * 1024 * 1024 + 8 * n_bytes


def calls_limit(n_bytes: int) -> int:
    """How many functions reading a message of this size may call; what is imported at first needs some, too."""
    return 10_000 + n_bytes


def examine(target: str, payload: bytes, *, bounded: bool = True, timed: bool = False) -> None:
    """Raises BrokenPromiseError if ``payload`` breaks a promise; if ``bounded``, of calls and memory, too."""
    read, n_calls = TARGETS[target], 0

    def count(*_: object) -> None:
        nonlocal n_calls
        n_calls += 1

    if bounded:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        sys.setprofile(count)
    try:
        trusted = read(payload)
    except BrokenPromiseError:
        raise
    except Exception as error:
        raise BrokenPromiseError(f"{type(error).__name__}: {error!s:.200}") from error
    finally:
        if bounded:
            sys.setprofile(None)
    if trusted or not bounded:
        return
    used = tracemalloc.get_traced_memory()[1] - before
    if used > memory_limit(len(payload)):
        raise BrokenPromiseError(f"memory: {used / 1e6:.1f} MB for {len(payload)} bytes")
    if n_calls > calls_limit(len(payload)):
        raise BrokenPromiseError(f"work: {n_calls} calls for {len(payload)} bytes")
    if timed:
        _compare_times(partial(read, payload), len(payload))


def _compare_times(work: Callable[[], object], n_bytes: int) -> None:
    """Beside what any machine needs for standard work; tracing makes things slow, so both go untraced."""
    tracemalloc.stop()
    ratio = _fastest_s(work, 1) / _fastest_s(lambda: sum(range(100_000)), 1)
    if ratio > MAX_RATIO:
        ratio = _fastest_s(work, 9) / _fastest_s(lambda: sum(range(100_000)), 9)
    tracemalloc.start()
    if ratio > MAX_RATIO:
        raise BrokenPromiseError(f"time: {ratio:.0f} times standard work for {n_bytes} bytes")


def _fastest_s(work: Callable[[], object], n: int) -> float:
    taken = []
    for _ in range(n):
        started = time.thread_time()  # clock: measures
        work()
        taken.append(time.thread_time() - started)  # clock: measures
    return min(taken)


def _state(enrolment_key: bytes | None, terms: SecureTerms | None = None) -> FederationState:
    """A federation with one member and an open round, perhaps with a secure sum."""
    policy = RoundPolicy(min_clients=2, max_clients=10)
    plan = FederationPlan(FEDERATION, N_FEATURES, policy, enrolment_key=enrolment_key)
    state = FederationState(plan)
    state.selection_seed = bytes(32)
    key = None if enrolment_key is None else DEVICES[MEMBER].public
    member = {"federation": FEDERATION, "client_id": MEMBER, "membership": Membership.JOINED, "online": True}
    member |= {"sdk_version": "0.1.0", "public_key": key, "enrolment_serial": None if key is None else 3}
    member |= dict.fromkeys(("joined_at", "last_seen_at"), THEN)
    member |= dict.fromkeys(("membership_sequence", "status_sequence"), 10)
    member |= dict.fromkeys(("left_at", "revoked_at", "quarantined_at", "quarantine_reason"))
    state.members.restore([ClientRow(**member)], None)
    state.members.restore_forgotten(bytes(32), ())
    state.round = Round.open(ROUND, BASE_VERSION, policy, NOW, terms=terms)
    state.model_version = BASE_VERSION
    return state


def _federator(topic: str, enrolment_key: bytes | None, kind: str, payload: bytes) -> bool:
    reading = read_message(TOPICS, _LIMITS[kind], InboundMessage(topic, payload, retained=False))
    if isinstance(reading, ReceivedChunk):
        for answer in _assembled(reading, _state(enrolment_key)):
            _decide(answer, enrolment_key, kind)
    elif reading is not None:
        _decide(reading, enrolment_key, kind)
    return isinstance(reading, ReceivedStatement) and _is_signed(payload, OPERATOR, topic)


def _assembled(reading: ReceivedChunk, state: FederationState) -> Iterator[Reading | ChunkAnswer]:
    """What follows from a manifest or a chunk, where another was offered before."""
    assembler = Assembler(TOPICS, _LIMITS["dense"])
    for offered in (_offered_before(), reading):
        answer = assembler.add_part(offered, state.members, NOW + 1)
        if offered is reading and answer is not None:
            yield answer
    _promise(assembler.n_bytes <= 2 * (4 * N_FEATURES + 4096), f"{assembler.n_bytes} bytes are held for two clients")


@cache
def _offered_before() -> ReceivedChunk:
    """The manifest of an update that is one chunk; the corpus has the chunk, too."""
    offer = next(sample for sample in messages() if sample.fields.get("n_chunks") == 1 and sample.key is not None)
    reading = read_message(TOPICS, _LIMITS["dense"], InboundMessage(offer.topic, offer.payload, retained=False))
    if not isinstance(reading, ReceivedChunk):
        raise TypeError(f"the corpus has no offer: {reading}")
    return reading


def _chunked(enrolment_key: bytes | None, payload: bytes) -> bool:
    _decide(read_update(TOPICS, _LIMITS["dense"], MEMBER, payload, chunked=True), enrolment_key, "dense")
    return False


def _decide(reading: Reading | ChunkAnswer, enrolment_key: bytes | None, kind: str) -> None:
    if isinstance(reading, RefusedMessage):
        check_text(reading.code, reading.detail)
    state = _state(enrolment_key, SecureTerms(POLICY, 1.0) if kind == "masked" else None)
    decisions, rest = decide(state, Backlog([Timed(reading, NOW + 1)]), NOW + 1)
    _promise(not rest.messages, "the message was not taken")
    if isinstance(reading, RefusedMessage):
        _promise(state.round is not None and not state.round.contributions, "a refused message counts")
        _promise(state.members.joined(MEMBER), "a refused message ended a membership")
        _promise(not (decisions.updates or decisions.membership or decisions.withdrawn), "a refused message is stored")
    check_decisions(decisions)
    for update in decisions.updates:
        if kind == "masked":
            # What was accepted can be added up, and its proof checked.
            _promise(read_words(update.body, PROOF.n_values).size == PROOF.n_values, "the proof is of another length")
            continue
        body = unpack_body(update.encoding, update.body, _LIMITS[kind].spec.dim)
        check_body(body, _LIMITS[kind].spec)
        # What was accepted can be a part of the next model.
        make_aggregation(*METHODS[kind]).add(body, update.n_interactions)


def check_decisions(decisions: Decisions) -> None:
    for receipt in decisions.receipts:
        if isinstance(receipt, OrderAnswer):
            topic_of_answer = TOPICS.operator_answers
        else:
            topic_of_answer = TOPICS.client(receipt.client_id, ClientTopic.INBOX)
        payload = encode(receipt, topic_of_answer, 1, FEDERATOR)
        _promise(len(payload) <= MAX_MESSAGE_BYTES, "the receipt is too large to be sent")
        _promise(open_envelope(payload).read(type(receipt)) == receipt, "the receipt reads otherwise")
        if receipt.code is not None:
            check_text(receipt.code, receipt.detail)
    for event in decisions.events:
        _promise(0 < len(event.kind) <= SHORT_TEXT_MAX and event.kind.isidentifier(), f"kind {event.kind!r}")
        _promise(event.client_id is None or len(event.client_id) <= CLIENT_ID_MAX, "the client's name is too long")
        if event.code is not None:
            check_text(event.code, event.detail)
    for change in decisions.membership:
        _promise(0 <= change.sequence < 2**63, f"sequence {change.sequence}")
        _promise(change.sdk_version is None or change.sdk_version.isprintable(), "the version is not printable")
        _promise(change.enrolment_serial is None or 0 < change.enrolment_serial < 2**31, "the serial is no integer")
    for update in decisions.updates:
        _promise(0 < update.n_interactions <= MAX_INTERACTIONS, f"{update.n_interactions} interactions are stored")


def check_text(code: str, detail: str) -> None:
    _promise(str(code) in _CODES, f"code {code!r} is none of the protocol's")
    _promise(len(detail) <= DETAIL_MAX, f"the detail has {len(detail)} characters")
    _promise(detail.isprintable(), f"the detail is not printable: {detail!r}")


def _promise(kept: bool, otherwise: str) -> None:
    if not kept:
        raise BrokenPromiseError(otherwise)


def reader(read: Callable[[bytes], object], topic: str, payload: bytes) -> bool:
    try:
        read(payload)
    except MessageError as error:
        check_text(error.code, error.detail)
    return _is_signed(payload, OPERATOR, topic)


def _device(expected: type[Message], payload: bytes) -> bool:
    """As a device reads what the federator, or somebody in its name, has published."""
    kind = expected.kind_name
    signer, topic = _FROM_OTHERS.get(kind) or (FEDERATOR, _FROM_FEDERATOR.get(kind, ""))
    try:
        envelope = open_envelope(payload, MAX_CHUNKED_BYTES if kind == "model" else MAX_MESSAGE_BYTES)
        signed = envelope.is_signed_by(signer.public, topic, repeated=True)
        if kind in _WITH_LISTS and not signed:
            return False
        message = envelope.read(expected)
    except MessageError as error:
        check_text(error.code, error.detail)
        return _is_signed(payload, signer, topic)
    # What was read can be written, and says the same.
    again = open_envelope(encode(message)).read(expected)
    _promise(again == message, "the message reads otherwise once it is written")
    return signed


_INBOX = TOPICS.client(MEMBER, ClientTopic.INBOX)
_FROM_FEDERATOR = {
    "model": TOPICS.model,
    "manifest": TOPICS.model,
    "round": TOPICS.round,
    "update_receipt": _INBOX,
    "membership_receipt": _INBOX,
    "erasure_notice": _INBOX,
    "unlearning_round": TOPICS.unlearning_round,
    "unlearning_progress": TOPICS.unlearning_job(1),
    "order_answer": TOPICS.operator_answers,
    "check_request": TOPICS.helper_requests(HELPER),
    "open_request": TOPICS.helper_requests(HELPER),
}
_ANSWERED = (HELPER_KEY, TOPICS.helper_answers(HELPER))
_FROM_OTHERS = {
    "roster": (OPERATOR, TOPICS.roster),
    "federator_key": (OPERATOR, TOPICS.federator_key),
    "policy": (OPERATOR, TOPICS.policy),
    "ticket": (DEVICES[MEMBER], TOPICS.ticket(MEMBER)),
    "check_answer": _ANSWERED,
    "open_answer": _ANSWERED,
    "helper_refusal": _ANSWERED,
}
_WITH_LISTS = ("update_receipt", "roster", "policy", "ticket", "check_request", "check_answer")
_NO_LINK = MqttLink(BrokerAddress.parse("mqtt://127.0.0.1:1"), client_id="none", subscriptions=(), on_message=print)


def _client(topic: str, credentials: Credentials | None, payload: bytes) -> bool:
    """What a device's agent does with a message, as if the network had brought it."""
    store = DeviceStore(":memory:", client_id=MEMBER, federation=FEDERATION, max_interactions=10)
    agent = Agent(_NO_LINK, store, DeviceOptions(FEDERATION, MEMBER, credentials, experiment=Experiment(seed=1)))
    try:
        agent.inbox.receive(InboundMessage(topic, payload, retained=False))
    except MessageError as error:
        check_text(error.code, error.detail)
    # Whatever it was told, it can still say who it is.
    status = agent.session.sign(agent.session.status(online=True), ClientTopic.STATUS)
    reading = read_message(
        TOPICS, _LIMITS["dense"], InboundMessage(TOPICS.client(MEMBER, ClientTopic.STATUS), status, False)
    )
    _promise(not isinstance(reading, RefusedMessage), f"the device cannot make itself understood: {reading}"[:200])
    store.close()
    return _is_signed(payload, FEDERATOR, topic)


def _is_signed(payload: bytes, key: SigningKey, topic: str) -> bool:
    try:
        return open_envelope(payload, MAX_CHUNKED_BYTES).is_signed_by(key.public, topic)
    except MessageError:
        return False


def _targets() -> dict[str, Target]:
    topics = [TOPICS.client(name, topic) for name in (MEMBER, STRANGER) for topic in ClientTopic]
    targets: dict[str, Target] = {}
    for trust, key in (("checked", OPERATOR.public), ("believed", None)):
        for topic in (*topics, TOPICS.roster, TOPICS.operator):
            targets[f"federator {trust} {topic.removeprefix(TOPICS.root + '/')}"] = partial(
                _federator, topic, key, "dense"
            )
        for kind in METHODS if key is None else _LIMITS:
            updates = TOPICS.client(MEMBER, ClientTopic.UPDATES)
            name = f"federator {trust} {kind} {updates.removeprefix(TOPICS.root + '/')}"
            targets[name] = partial(_federator, updates, key, kind)
        targets[f"federator {trust} chunked"] = partial(_chunked, key)
    for kind, expected in MESSAGE_TYPES.items():
        targets[f"device {kind}"] = partial(_device, expected)
    models = (TOPICS.model, TOPICS.model_chunk(0), TOPICS.anchor, TOPICS.anchor_chunk(0))
    for topic in (*models, TOPICS.round, TOPICS.unlearning_round, _INBOX, TOPICS.policy, TOPICS.schema):
        name = topic.removeprefix(TOPICS.root + "/")
        targets[f"client checks {name}"] = partial(_client, topic, CREDENTIALS)
        targets[f"client believes {name}"] = partial(_client, topic, None)
    enrolment = TOPICS.enrolment(MEMBER)
    readers: dict[str, tuple[str, Callable[[bytes], object]]] = {
        "roster": (TOPICS.roster, lambda payload: read_roster(payload, OPERATOR.public, FEDERATION)),
        "order": (TOPICS.operator, lambda payload: read_order(payload, OPERATOR.public, FEDERATION)),
        "key": (TOPICS.federator_key, lambda payload: read_federator_key(payload, OPERATOR.public, FEDERATION)),
        "policy": (TOPICS.policy, lambda payload: read_policy(payload, OPERATOR.public, FEDERATION)),
        "schema": (TOPICS.schema, lambda payload: read_schema(payload, OPERATOR.public, FEDERATION)),
        "enrolment": (enrolment, lambda payload: read_enrolment(payload, OPERATOR.public, FEDERATION, MEMBER)),
    }
    for what, (topic, read) in readers.items():
        targets[f"reader {what}"] = partial(reader, read, topic)
    return targets


TARGETS = _targets()

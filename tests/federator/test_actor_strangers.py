"""Who never got in is forgotten, too: refusals name it. Of whom nothing is stored, nothing is written down."""

import pytest
from support.unlearning_steps import ask, notices

from foltr.broker.buffer import IntakeLimits, RefusalCause, RefusedSender
from foltr.broker.link import InboundMessage
from foltr.core.erasure.receipt import verify_receipt
from foltr.core.errors import DataError, MessageError
from foltr.core.protocol.codec import encode
from foltr.core.protocol.enrolment import read_enrolment
from foltr.core.protocol.membership import Forget, Join, Leave
from foltr.core.protocol.orders import OrderAnswer
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.deciding.refusals import answer_turned_away
from foltr.federator.engine import MAX_STRANGERS
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.audit_log import stream_audit
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.queries import list_clients, list_events
from foltr.storage.rounds import stream_updates

THREE = RoundPolicy(3, 3, 0.0, 60.0)
KEY = SigningKey(b"federator" + bytes(23))


@pytest.fixture
async def signed(serve, operator):
    """An actor that believes only whom the operator enrolled, with alice in it."""
    served = await serve(THREE, enrolment_key=operator.key.public, key=KEY)
    await served.join([operator.enrol("alice")])
    return served


def join(served, device, enrolment=None) -> None:
    message = Join(federation="mail", client_id=device.client_id, sdk_version="1", enrolment=enrolment)
    served.receive(device, ClientTopic.JOIN, message)


def order(served, spoke) -> None:
    served.actor.receive(InboundMessage("foltr/v1/mail/operator", spoke.payload, retained=False))


async def texts(served, client_id: str) -> list[str]:
    """What events say in which a client's name is, or whose it is."""
    events = await list_events(served.db, "mail")
    return [event.detail for event in events if client_id == event.client_id or client_id in event.detail]


async def test_a_device_that_only_knocked_is_erased_by_the_operator(signed, operator):
    """Its refusals go, with a receipt of zero rounds that counts them; the name is not used again."""
    mallory, own = operator.enrol("mallory"), operator.enrol("mallory")
    join(signed, mallory)
    signed.actor.receive(InboundMessage("foltr/v1/mail/clients/mallory/updates", b"junk", retained=False))
    await signed.turn()
    assert len(await texts(signed, "mallory")) == 2
    order(signed, operator.forgets("mallory"))
    join(signed, own, own.enrolment)  # in the same batch: its name is not free any more
    await signed.turn()
    (notice,) = notices(signed)
    assert (notice.client_id, notice.code) == ("mallory", ReceiptCode.FORGOTTEN)
    receipt = verify_receipt(notice.receipt.decode(), KEY.public)
    assert (receipt.n_rounds, receipt.n_updates, receipt.n_events, receipt.strategy) == (0, 0, 2, "none")
    assert receipt.requested_by == "operator"
    kinds = [entry.kind async for entry in stream_audit(signed.db, "mail")]
    assert kinds == ["client_erased", "erasure_completed"]
    assert await texts(signed, "mallory") == []
    assert signed.receipts.codes()["forgotten"] == 2
    assert [row.client_id for row in await list_clients(signed.db, "mail")] == ["alice"]


async def test_nobody_else_may_ask_that_for_a_stranger(signed, operator):
    """Without a client's key nobody can tell who asks: nothing is erased, and nothing more is written down."""
    mallory = operator.enrol("mallory")
    join(signed, mallory)
    await signed.turn()
    before = await texts(signed, "mallory")
    ask(signed, mallory)
    await signed.turn()
    assert [one.code for one in notices(signed)] == ["unknown_client"]
    assert "the operator may order it" in notices(signed)[0].detail
    assert await texts(signed, "mallory") == before
    assert signed.retained.topics["foltr/v1/mail/clients/mallory/forget"] is None


async def test_where_nothing_is_signed_a_stranger_may_ask_itself(serve, unsigned):
    """As every client may; whoever uses the name is believed."""
    served = await serve(THREE, key=KEY)
    mallory = unsigned("mallory")
    served.update(mallory)
    await served.turn()
    assert len(await texts(served, "mallory")) == 1
    ask(served, mallory)
    await served.turn()
    (notice,) = notices(served)
    assert verify_receipt(notice.receipt.decode(), KEY.public).n_events == 1
    assert await texts(served, "mallory") == []


async def test_a_name_that_is_nowhere_stays_unknown(signed, operator):
    """However often it is asked for: there is no row of it, not even of the refusal, and it may join at once."""
    zoe = operator.enrol("zoe")
    for sequence in (1, 2):
        order(signed, operator.forgets("zoe", sequence=sequence))
        await signed.turn()
    order(signed, operator.forgets("zoe", sequence=3))
    join(signed, zoe, zoe.enrolment)
    await signed.turn()
    told = [one for one in signed.receipts.sent if not isinstance(one, OrderAnswer)]
    assert [str(one.code) for one in told] == ["unknown_client"] * 3 + ["joined"]
    assert await list_erasures(signed.db, "mail") == []
    refusals = [event for event in await list_events(signed.db, "mail") if event.code]
    assert {(event.kind, event.code, event.client_id) for event in refusals} == {
        ("message_refused", "unknown_client", None)
    }
    assert not [event for event in refusals if "zoe" in event.detail]


async def test_strangers_who_ask_to_be_forgotten_do_not_crowd_out_others(serve):
    """Where anybody may ask, a few are looked for at a time; the others ask again, and one row says how many."""
    served = await serve(THREE, key=KEY)
    for i in range(100):
        name = f"nobody-{i}"
        payload = encode(Forget(federation="mail", client_id=name), f"foltr/v1/mail/clients/{name}/forget", 1, None)
        served.actor.receive(InboundMessage(f"foltr/v1/mail/clients/{name}/forget", payload, retained=False))
    await served.turn()
    codes = [str(one.code) for one in notices(served)]
    assert (codes.count("unknown_client"), codes.count("busy")) == (MAX_STRANGERS, 100 - MAX_STRANGERS)
    events = await list_events(served.db, "mail", limit=1000)
    assert sum(event.n for event in events if event.kind == "message_refused") == 100
    assert len(events) <= MAX_STRANGERS + 2
    assert not any("nobody" in event.detail or event.client_id for event in events)


async def test_no_words_say_a_name(signed, operator):
    """What is stored in words says of no client who it is, so that no name is ever looked for in them."""
    a, bob, knocker = operator.enrol("alice-1"), operator.enrol("bob-2"), operator.enrol("knocker-3")
    await signed.join([a, bob])
    signed.update(a)
    await signed.turn()
    order(signed, operator.quarantines("knocker-3", sequence=1))  # no client of this name has ever joined
    signed.receive(bob, ClientTopic.LEAVE, Leave(federation="mail", client_id="alice-1"))
    join(signed, bob, knocker.enrolment)  # the enrolment is not one of this client
    for topic in ("join", "updates", "leave", "unlearning", "chunks", "status"):
        signed.actor.receive(InboundMessage(f"foltr/v1/mail/clients/alice-1/{topic}", b"junk", retained=False))
    await signed.turn()
    said = [event.detail for event in await list_events(signed.db, "mail", limit=100)]
    said += await all_that_is_said_of("alice-1", signed, operator)
    assert len(said) > 10
    assert [words for words in said if any(name in words for name in ("alice-1", "bob-2", "knocker-3"))] == []


async def all_that_is_said_of(client_id: str, served, operator) -> list[str]:
    """What the intake, an enrolment and a lost key say of a member; the event of the intake is its own."""
    decisions, senders = Decisions(), [RefusedSender(client_id, 7, RefusalCause.RATE, 1.0)]
    answer_turned_away(served.actor.state, senders, 9, 1000.0, decisions)
    (turned_away,) = decisions.events
    assert (turned_away.client_id, turned_away.detail) == (
        client_id, "9 messages were dropped; most from this client: 7 (rate)",
    )  # fmt: skip
    with pytest.raises(MessageError) as not_enrolled:
        read_enrolment(operator.enrol("bob-2").enrolment, KEY.public, "mail", client_id)
    served.db.keys.destroy("mail", client_id)
    with pytest.raises(DataError) as unreadable:
        [row async for row in stream_updates(served.db, "mail", 1)]
    return [turned_away.detail, not_enrolled.value.detail, str(unreadable.value)]


async def test_what_a_client_must_not_have_retained_is_cleared(signed):
    """It would be delivered again at every connection; it is decided all the same, and what is its right stays."""
    kinds = [kind for kind in ClientTopic if kind is not ClientTopic.INBOX]
    for kind in kinds:
        topic = f"foltr/v1/mail/clients/alice/{kind}"
        signed.actor.receive(InboundMessage(topic, b"junk", retained=True))
        signed.actor.receive(InboundMessage(topic, b"", retained=False))
        assert (topic in signed.retained.topics) is not kind.is_retained, kind
    await signed.turn()
    refused = [event for event in await list_events(signed.db, "mail") if event.code is not None]
    assert sum(event.n for event in refused) == len(kinds)  # the junk; that it was cleared asks for nothing


@pytest.fixture
async def narrow(serve, operator):
    """An actor with room for one message, which somebody else's fills, and with carol forgotten."""
    served = await serve(THREE, enrolment_key=operator.key.public, key=KEY, limits=IntakeLimits(max_messages=1))
    carol = operator.enrol("carol")
    await served.join([carol])
    ask(served, carol)
    await served.turn()
    served.retained.topics.clear()
    served.flood(1)
    return served


@pytest.mark.parametrize("retained", [True, False])
async def test_of_the_forgotten_nothing_stays_that_was_turned_away(narrow, retained):
    """Her last will, say, as it is published or as the broker has kept it."""
    for name in ("alice", "carol"):
        narrow.actor.receive(InboundMessage(f"foltr/v1/mail/clients/{name}/status", b"a will", retained=retained))
    await narrow.turn()
    assert set(narrow.retained.topics) == {f"foltr/v1/mail/clients/carol/{kind}" for kind in ("status", "forget")}
    assert set(narrow.retained.topics.values()) == {None}


async def test_what_clears_is_not_cleared_though_it_was_turned_away(narrow):
    """The federator hears what it clears itself, and would clear for ever."""
    narrow.actor.receive(InboundMessage("foltr/v1/mail/clients/carol/status", b"", retained=False))
    await narrow.turn()
    assert not narrow.retained.topics

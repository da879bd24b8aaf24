"""What is believed of a federation's answers to a request to forget, and how it is put in words."""

import asyncio
from pathlib import Path

import pytest

from foltr.broker.link import InboundMessage
from foltr.core.errors import DataError
from foltr.core.operator.credentials import BrokerAccess, device_identity
from foltr.core.protocol.announcements import UnlearningProgress
from foltr.core.protocol.codec import encode
from foltr.core.protocol.fields import Message
from foltr.core.protocol.operator_keys import issue_link, issue_succession
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.core.protocol.roster import FederatorKey
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.operations.erasure_answers import ErasureAnswers, SignedErasureRequest

TOPICS = Topics("mail")
INBOX = TOPICS.client("device-1", ClientTopic.INBOX)
OPERATOR, FEDERATOR = SigningKey.generate(), SigningKey.generate()
CREDENTIALS = device_identity(
    OPERATOR, FEDERATOR.public, "mail", "device-1", 1, BrokerAccess(broker_url="mqtt://broker")
)
WISH = SignedErasureRequest(
    federation="mail",
    client_id="device-1",
    topic=TOPICS.operator,
    payload=b"",
    access=CREDENTIALS.broker,
    session="operator",
    credentials=CREDENTIALS,
    key_file=Path("x/operator.json"),
    named_by="the operator's folder x",
    retained=False,
)


def answers() -> ErasureAnswers:
    made = ErasureAnswers(WISH)
    made.begin()
    made.sent()
    return made


def hear(waiting: ErasureAnswers, message: Message, topic: str, key: SigningKey = FEDERATOR) -> None:
    waiting.received(InboundMessage(topic, encode(message, topic, 0, key), retained=False))


def notice(code: ReceiptCode) -> ErasureNotice:
    return ErasureNotice(federation="mail", client_id="device-1", code=code, detail="why")


def progress(state: str, step: int, detail: str = "", n_steps: int = 112) -> UnlearningProgress:
    fields = {"federation": "mail", "job": 1, "strategy": "rollback", "n_clients": 1}
    return UnlearningProgress(state=state, step=step, n_steps=n_steps, detail=detail, **fields)


async def test_a_state_says_why_and_what_to_do():
    """A paused job says what it waits for; one before its swap says what hastens it."""
    for told, said, not_said in (
        (None, ["not made yet", "when the open round ends", "foltr erasure list"], "job"),
        (progress("running", 3), ["job 1 is running, step 3 of 112"], "deadline"),
        (progress("running", 111), ["job 1 is running, step 111 of 112"], "deadline"),
        (progress("running", 0, n_steps=0), ["nothing to learn again; the model goes into service"], "of 0"),
        (progress("running", 112), ["when the open round ends", "`foltr rounds deadline`"], "paused"),
        (
            progress("paused", 0, "no device is online at step 1"),
            ["paused, step 0 of 112: no device is online at step 1;", "keep interactions", "foltr erasure list"],
            "deadline",
        ),
    ):
        waiting = answers()
        if told is not None:
            hear(waiting, told, TOPICS.unlearning_job(1))
        hear(waiting, notice(ReceiptCode.FORGETTING), INBOX)
        assert await waiting.notice(1.0) is None, told
        for words in said:
            assert words in waiting.state(), told
        assert not_said not in waiting.state(), told
        # What is known stays until the next visit knows better.
        before = waiting.state()
        waiting.begin()
        assert waiting.state() == before, told


async def test_only_the_federator_is_believed():
    """What another key has signed is no answer; a refusal by the right one ends the waiting."""
    waiting = answers()
    hear(waiting, notice(ReceiptCode.FORGOTTEN), INBOX, SigningKey.generate())
    assert await waiting.notice(0.01) is None
    assert not waiting.answered
    hear(waiting, notice(ReceiptCode.UNKNOWN_CLIENT), INBOX)
    with pytest.raises(DataError, match="unknown_client: why"):
        await waiting.notice(1.0)


async def test_who_gives_up_at_once_is_told_that_nobody_answered():
    """A timeout shorter than one visit leaves no half sentence behind."""
    waiting = answers()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):  # clock: runs out
            await waiting.notice(3.0)
    assert waiting.state().startswith("the federator has not answered; check that it runs")


async def test_a_federator_whose_operators_key_was_rotated_too_is_believed():
    """In whichever order the broker tells of the two; a doctor's empty message takes nothing back."""
    newest, new = SigningKey.generate(), SigningKey.generate()
    stated = FederatorKey(federation="mail", sequence=1, old_key=FEDERATOR.public, new_key=new.public)
    statement = encode(stated, TOPICS.federator_key, 1, newest)
    succession = issue_succession(newest, "mail", [issue_link(OPERATOR, "mail", 1, newest.public)], [])
    told = [(TOPICS.federator_key, statement), (TOPICS.operator_key, succession), (TOPICS.operator_key, b"")]
    waiting = answers()
    waiting.received(InboundMessage(*told[0], retained=True))
    assert await waiting.notice(0.01) is None
    assert "foltr operator publish" in waiting.state()
    for topic, payload in told[1:]:
        waiting.received(InboundMessage(topic, payload, retained=True))
    hear(waiting, notice(ReceiptCode.FORGOTTEN), INBOX)  # by the former key
    assert await waiting.notice(0.05) is None
    hear(waiting, notice(ReceiptCode.FORGOTTEN), INBOX, new)
    assert await waiting.notice(1.0) == notice(ReceiptCode.FORGOTTEN)
    assert waiting.federator_key == new.public

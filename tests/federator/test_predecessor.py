"""What a federator hears of the one before: what both have signed, and nothing else."""

from support.federator_by_hand import round_on

from foltr.broker.link import InboundMessage
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.chunks import manifest_of
from foltr.core.protocol.codec import Signer
from foltr.core.protocol.signing import EpochSequence, SigningKey
from foltr.core.protocol.topics import Topics
from foltr.federator.predecessor import Predecessor

TOPICS = Topics("mail")
KEY, OTHER = SigningKey(b"f" * 32), SigningKey(b"o" * 32)
MESSAGE = manifest_of(b"any that a federator signs", "mail")


def retained(epoch: int, topic: str = TOPICS.round, key: SigningKey | None = KEY, at: str | None = None):
    sequence = EpochSequence()
    sequence.begin(epoch)
    return InboundMessage(at or topic, Signer(key, sequence).sign(MESSAGE, topic), retained=True)


def heard(*messages: InboundMessage, key: SigningKey | None = KEY) -> int:
    predecessor = Predecessor(TOPICS, key)
    for message in messages:
        predecessor.receive(message)
    return predecessor.epoch


def test_the_newest_of_what_was_announced_counts():
    """A federator may have died between its model and its round."""
    assert heard() == 0
    assert heard(retained(7)) == 7
    assert heard(retained(8, TOPICS.model), retained(7)) == 8
    assert heard(retained(7, TOPICS.model), retained(4_000_000_000)) == 4_000_000_000


def test_nobody_else_raises_an_epoch():
    """Nor does a stolen key raise it to the maximum, which would outlast the key."""
    for foreign in [
        retained(9, key=OTHER),
        retained(9, key=None),
        retained(1 << 32),
        retained((1 << 33) - 1),
        retained(9, TOPICS.model, at=TOPICS.round),
        InboundMessage(TOPICS.round, b"", retained=True),
        InboundMessage(TOPICS.round, b"no envelope", retained=True),
    ]:
        assert heard(retained(7), foreign) == 7, foreign


def test_where_nothing_is_signed_nothing_is_believed():
    """Anybody may have announced that; and devices forget it with their connection."""
    assert heard(retained(9, key=None), key=None) == 0


def test_the_newest_round_is_heard():
    """By its number, which shows that a database is older; only as the federator has signed it."""
    predecessor = Predecessor(TOPICS, KEY)
    for key, number in ((OTHER, 9), (KEY, 7)):
        sequence = EpochSequence()
        sequence.begin(7)
        announced = Signer(key, sequence).sign(round_on(number, 0), TOPICS.round)
        predecessor.receive(InboundMessage(TOPICS.round, announced, retained=True))
    assert predecessor.round == 7


def test_the_head_of_the_audit_log_is_heard():
    """As both have signed it, and nobody else."""
    head = AuditHead(federation="mail", seq=3, hash=bytes(range(32)), at=1.0)

    def said(key):
        sequence = EpochSequence()
        sequence.begin(7)
        return InboundMessage(TOPICS.audit_head, Signer(key, sequence).sign(head, TOPICS.audit_head), retained=True)

    predecessor = Predecessor(TOPICS, KEY)
    predecessor.receive(said(OTHER))
    assert (predecessor.epoch, predecessor.audit_head) == (0, None)
    predecessor.receive(said(KEY))
    assert (predecessor.epoch, predecessor.audit_head) == (7, head)

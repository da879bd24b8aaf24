"""The operator's roster in chunks: put together whatever comes first, from what the operator signed alone."""

import random
import tracemalloc

import pytest

from foltr.core.operator.credentials import BrokerAccess
from foltr.core.operator.folder import create_authority, open_authority
from foltr.core.operator.register import read_register, write_register
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES
from foltr.core.protocol.roster_assembly import RosterAssembler
from foltr.core.protocol.topics import Topics
from foltr.federator.deciding.members import Members

BROKER = BrokerAccess(broker_url="mqtt://127.0.0.1:1883")
TOPICS = Topics("mail")


def revoked(folder, n):
    """The messages of an operator who has revoked so many, and the enrolment key."""
    with create_authority(folder, "mail", federator=BROKER, operator=BROKER) as authority:
        register = authority.register
    names = {f"device-{i:06d}": i + 2 for i in range(n)}
    write_register(folder, register.model_copy(update={"revoked": names, "roster_version": 7, "next_serial": n + 2}))
    with open_authority(folder) as authority:
        return authority.roster_messages(), authority.operator.enrolment_public_key


def test_chunks_make_a_roster_in_any_order(tmp_path):
    """The manifest first or last, and again; a small roster as it is; nothing that the operator did not sign."""
    messages, key = revoked(tmp_path / "operator", 10_000)
    assert len(messages) > 2
    assert all(len(payload) <= MAX_MESSAGE_BYTES for _, payload in messages)
    assembler, rng = RosterAssembler(TOPICS, key), random.Random(1)  # noqa: S311
    for _ in range(3):
        rng.shuffle(messages)
        made = [whole for topic, payload in messages if (whole := assembler.add(topic, payload)) is not None]
        assert len(made) == 1
        assert len(Members("mail", key).adopt_roster(made[0]).roster.revoked) == 10_000
    messages, key = revoked(tmp_path / "another", 1)
    assembler = RosterAssembler(TOPICS, key)
    ((topic, payload),) = messages
    assert assembler.add(topic, payload) == payload
    assert assembler.add(TOPICS.roster, b"junk") == b"junk"
    assert assembler.add(TOPICS.roster_chunk(0), b"junk") is None
    messages, key = revoked(tmp_path / "third", 10_000)
    assembler = RosterAssembler(TOPICS, key)
    (first, payload), *_ = messages
    assert assembler.add(TOPICS.roster_chunk(9), payload) is None
    unsigned = RosterAssembler(TOPICS, bytes(32))
    assert [unsigned.add(topic, part) for topic, part in messages[:-1]] == [None] * (len(messages) - 1)
    assert first == TOPICS.roster_chunk(0)


def test_chunks_behind_the_last_are_cleared_once_a_roster_is_smaller(tmp_path):
    folder = tmp_path / "operator"
    before, _ = revoked(folder, 10_000)
    register = read_register(folder, "mail")
    assert register.n_roster_chunks == len(before) - 1
    write_register(folder, register.model_copy(update={"revoked": {}, "roster_version": 8}))
    with open_authority(folder) as authority:
        after = authority.roster_messages()
    assert after[0][0] == TOPICS.roster
    assert after[1:] == [(TOPICS.roster_chunk(i), b"") for i in range(len(before) - 1)]


@pytest.mark.parametrize("n", [10_000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_many_revocations_are_published_and_adopted(tmp_path, n):
    """In some times the roster's own size of memory; 100,000 fit into what the intake holds of one sender, 8 MiB."""
    tracemalloc.start()
    messages, key = revoked(tmp_path / "operator", n)
    assembler = RosterAssembler(TOPICS, key)
    made = [whole for topic, payload in messages if (whole := assembler.add(topic, payload)) is not None]
    members = Members("mail", key)
    assert len(members.adopt_roster(made[0]).roster.revoked) == n
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(made[0]) < n * (8 * 1024 * 1024 // 100_000)
    assert peak < n * (400 * 1024 * 1024 // 100_000)

"""What the operator says in the middle of a round: who is revoked, when the round is to end, who is forgotten."""

import pytest
from support.intake_decisions import OPENED, POLICY, answers, backlog, decide, end_round, events, members, told

from foltr.core.protocol.orders import DismissProposals, ForgetTombstone, VoidOrder
from foltr.core.protocol.receipts import UpdateReceipt
from foltr.core.protocol.signed_orders import digest_of, issue_question
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.tombstones import tombstone_of
from foltr.core.protocol.topics import Topics
from foltr.federator import engine
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.deciding.orders import erasure_ordered
from foltr.federator.deciding.state import FederationState
from foltr.federator.plan import FederationPlan
from foltr.federator.reading import ReceivedStatement
from foltr.storage.records import StoredUpdate

STORED = {("a", "0" * 32): StoredUpdate(1, counts=True)}
SALT = bytes(range(32))
TOPICS = Topics("mail")


@pytest.fixture
def state(operator):
    state = FederationState(FederationPlan("mail", 1, POLICY, enrolment_key=operator.key.public))
    state.members.restore_forgotten(SALT, [])
    state.round, _ = state.open_round(1, 0, OPENED)
    return state


def test_a_revocation_withdraws_what_is_stored(state, operator):
    """The update of the open round goes, and the client is a member no more, in one commit with the roster."""
    a, b = members(state, operator, "a", "b")
    decide(state, a.updates(), b.updates())
    roster = operator.publishes(3, a=1)
    decisions = decide(state, roster)
    assert decisions.withdrawn == [(1, "a")]
    assert decisions.roster == (3, roster.payload)
    assert [(change.client_id, change.kind) for change in decisions.membership] == [("a", "revoked")]
    assert list(state.round.contributions) == ["b"]
    assert events(decisions) == [("roster_adopted", None, None), ("client_revoked", None, "a")]
    assert [(receipt.update_id, receipt.code, receipt.counted_through) for receipt in decisions.receipts] == [
        ("0" * 32, "revoked", 0)
    ]


def test_a_revocation_withdraws_what_came_in_the_same_batch(state, operator):
    """It was never stored, and its device is told so; the others that they count."""
    a, b = members(state, operator, "a", "b")
    # Both devices chose the same id, which only has to be unique for one client.
    decisions = decide(state, a.updates(), b.updates(), operator.publishes(1, a=1))
    assert told(decisions) == [("b", "accepted"), ("a", "revoked")]
    assert [receipt.counted_through for receipt in decisions.receipts] == [100, 0]
    assert [update.client_id for update in decisions.updates] == ["b"]
    assert decisions.withdrawn == []
    assert list(state.round.contributions) == ["b"]


def test_updates_of_the_revoked_are_refused_in_the_same_batch(state, operator):
    """From the roster on, and their old one cannot count twice or be called a duplicate."""
    (a,) = members(state, operator, "a")
    decide(state, a.updates())
    decisions = decide(state, operator.publishes(1, a=1), a.updates(), a.joins(9), stored=STORED)
    assert told(decisions) == [("a", "revoked")] * 3
    for receipt in decisions.receipts[:2]:
        assert isinstance(receipt, UpdateReceipt)
        assert (receipt.update_id, receipt.counted_through) == ("0" * 32, 0)


def test_a_revocation_comes_too_late_for_a_decided_round(state, operator):
    """What is in a model counts; the client is revoked all the same, and enrolled anew it goes on from there."""
    (a,) = members(state, operator, "a")
    decide(state, a.updates())
    end_round(state)
    newer = a.updates(2, base=1, update_id="1" * 32)
    decisions = decide(state, operator.publishes(1, a=1), a.updates(), newer, stored=STORED)
    assert (decisions.withdrawn, told(decisions)) == ([], [("a", "revoked")] * 2)
    assert decisions.receipts[0].counted_through == 100
    joined = decide(state, operator.enrol("a").joins())
    assert joined.receipts[0].counted_through == 100


def test_a_withdrawn_update_may_come_again_from_the_renewed_device(state, operator):
    """Revoked, enrolled anew and sent again in one batch: it is stored again, not called a duplicate."""
    (a,) = members(state, operator, "a")
    decide(state, a.updates())
    renewed = operator.enrol("a")
    decisions = decide(state, operator.publishes(1, a=1), renewed.joins(), renewed.updates(), stored=STORED)
    assert told(decisions) == [("a", "revoked"), ("a", "joined"), ("a", "accepted")]
    assert decisions.withdrawn == [(1, "a")]
    assert [update.client_id for update in decisions.updates] == ["a"]


@pytest.mark.parametrize(
    ("roster", "code"),
    [
        pytest.param(lambda operator: type(operator)().publishes(9, a=1), "bad_signature", id="forged"),
        pytest.param(lambda operator: operator.publishes(1, a=1), "replayed", id="older than the one known"),
        pytest.param(lambda _: ReceivedStatement(TOPICS.roster, b"\xc1"), "malformed", id="junk"),
    ],
)
def test_a_roster_that_is_not_believed_is_an_event(state, operator, roster, code):
    """It withdraws nothing and nobody is answered: who published it is not known."""
    (a,) = members(state, operator, "a")
    decide(state, operator.publishes(2), a.updates())
    decisions = decide(state, roster(operator))
    assert events(decisions) == [("roster_refused", code, None)]
    assert (decisions.roster, decisions.withdrawn, decisions.receipts) == (None, [], [])
    assert list(state.round.contributions) == ["a"]


def test_an_order_moves_the_deadline(state, operator):
    """In the round, in what is stored, and as an event; its row goes with that, and the operator is told."""
    order = operator.orders(1, 5.0, sequence=1)
    decisions = decide(state, order)
    assert state.round.closes_at == OPENED + 5
    assert (decisions.deadline.round, decisions.deadline.max_time_s) == (1, 5.0)
    assert decisions.deadline.closes_at.timestamp() == OPENED + 5
    assert events(decisions) == [("deadline_set", None, None)]
    (row,) = decisions.orders
    assert (row.number, row.kind, row.payload, row.outcome, row.code) == (
        1,
        "set_deadline",
        order.payload,
        "obeyed",
        None,
    )
    assert answers(decisions) == [(1, "obeyed", None)]
    assert state.last_order == 1


@pytest.mark.parametrize(
    ("order", "code"),
    [
        pytest.param(lambda operator: type(operator)().orders(1, 5.0, 2), "bad_signature", id="forged"),
        pytest.param(lambda operator: operator.orders(1, 5.0, 2, "web"), "bad_signature", id="another federation"),
        pytest.param(lambda operator: operator.orders(1, 5.0, 0), "malformed", id="without a number"),
        pytest.param(lambda _: ReceivedStatement(TOPICS.operator, b""), "malformed", id="empty"),
        pytest.param(
            lambda operator: ReceivedStatement(TOPICS.operator, operator.roster(9)), "bad_signature", id="a roster"
        ),
    ],
)
def test_what_is_no_order_of_the_operator_uses_up_no_number(state, operator, order, code):
    """The round goes on as it was, and the next good order is still obeyed."""
    decide(state, operator.orders(1, 40.0, sequence=1))
    decisions = decide(state, order(operator))
    assert events(decisions) == [("order_refused", code, None)]
    assert (answers(decisions), decisions.orders) == ([(0, "unread", code)], [])
    assert (state.round.closes_at, decisions.deadline) == (OPENED + 40, None)
    assert decide(state, operator.orders(1, 5.0, sequence=2)).deadline is not None


@pytest.mark.parametrize("number", [0, 2])
def test_a_refused_order_uses_up_its_number(state, operator, number):
    """The row says why. What comes under its number is another order: of another folder, or of a restored one."""
    decisions = decide(state, operator.orders(number, 5.0, sequence=1))
    assert (events(decisions), decisions.deadline) == ([("order_refused", "unknown_round", None)], None)
    assert [(row.outcome, row.code) for row in decisions.orders] == [("refused", "unknown_round")]
    assert answers(decisions) == [(1, "refused", "unknown_round")]
    again = decide(state, operator.orders(1, 5.0, sequence=1), orders=decisions.orders)
    assert (answers(again), again.deadline) == ([(1, "diverged", "replayed")], None)
    assert events(again) == [("order_refused", "replayed", None)]
    assert answers(decide(state, operator.orders(1, 5.0, sequence=2))) == [(2, "obeyed", None)]


def test_an_order_that_comes_again_is_answered_again_and_does_nothing(state, operator):
    """In the same batch, in a later one, and after a restart: from its row."""
    first = operator.orders(1, 5.0, sequence=1)
    decisions = decide(state, first, first)
    assert (answers(decisions), len(decisions.orders)) == ([(1, "obeyed", None)] * 2, 1)
    decide(state, operator.orders(1, 50.0, sequence=2))
    later = decide(state, first, orders=decisions.orders)
    assert (answers(later), later.deadline, later.orders, events(later)) == ([(1, "obeyed", None)], None, [], [])
    assert state.round.closes_at == OPENED + 50


def test_the_answer_names_the_bytes_that_it_answers_and_what_is_known(state, operator):
    """So that a command can tell its own order from another folder's."""
    members(state, operator, "a", "b")
    order = operator.orders(1, 5.0, sequence=1)
    (answer,) = decide(state, operator.publishes(3, a=1), order).receipts
    assert (answer.digest, answer.newest, answer.newest_digest) == (digest_of(order.payload), 1, answer.digest)
    assert (answer.roster_version, answer.newest_serial) == (3, 2)


def test_on_a_gap_nothing_is_obeyed_and_the_missing_ones_are_asked_for(state, operator):
    """They are obeyed in the order of their numbers, whichever came first."""
    decisions = decide(state, operator.orders(1, 50.0, sequence=3), operator.orders(1, 40.0, sequence=2))
    assert (answers(decisions), decisions.orders) == ([(3, "missing", None), (2, "missing", None)], [])
    assert ({receipt.newest for receipt in decisions.receipts}, events(decisions)) == ({0}, [])
    sent = [operator.orders(1, seconds, sequence=number) for number, seconds in ((1, 30.0), (2, 40.0), (3, 50.0))]
    assert [row.number for row in decide(state, *sent).orders] == [1, 2, 3]
    assert state.round.closes_at == OPENED + 50


def test_what_stands_for_an_order_is_answered_as_that_one(state, operator):
    """The order named somebody who was forgotten since, and the folder has replaced it."""
    members(state, operator, "a")
    decisions = decide(state, operator.quarantines("a", sequence=1))
    (row,) = decisions.orders
    stands_for = operator.says(VoidOrder(federation="mail", replaces=row.digest), 1)
    again = decide(state, stands_for, orders=[row])
    assert answers(again) == [(1, "obeyed", None)]
    assert again.receipts[0].digest == digest_of(stands_for.payload)
    unrelated = operator.says(VoidOrder(federation="mail"), 1)
    assert answers(decide(state, unrelated, orders=[row])) == [(1, "diverged", "replayed")]
    lost = operator.says(VoidOrder(federation="mail"), 2)  # in the place of an order that the folder has lost
    assert answers(decide(state, lost, operator.orders(1, 5.0, sequence=3))) == [
        (2, "obeyed", None),
        (3, "obeyed", None),
    ]


def test_the_question_for_the_newest_order_is_answered_with_its_challenge(state, operator):
    """And changes nothing."""
    decide(state, operator.orders(1, 5.0, sequence=1))
    question = ReceivedStatement(TOPICS.operator, issue_question(operator.key, "mail", b"c" * 16))
    decisions = decide(state, question)
    (answer,) = decisions.receipts
    assert (str(answer.reply), answer.number, answer.newest, answer.challenge) == ("newest", 0, 1, b"c" * 16)
    assert (decisions.orders, events(decisions)) == ([], [])


def test_an_order_revokes_without_a_roster(state, operator):
    """The member is out, its update is withdrawn, and its key is void; so it is after a restart."""
    a, b = members(state, operator, "a", "b")
    decide(state, a.updates(), b.updates())
    decisions = decide(state, operator.revokes("a", 1, void_below=2), a.joins(9))
    assert (decisions.withdrawn, told(decisions)) == ([(1, "a")], [("a", "revoked")] * 2)
    assert events(decisions)[0] == ("client_revoked", None, "a")
    restarted = FederationState(state.plan)
    restarted.round = state.round
    restarted.restore_orders(decisions.orders)
    assert told(decide(restarted, a.joins(10))) == [("a", "revoked")]
    assert told(decide(restarted, operator.enrol("a").joins())) == [("a", "joined")]


def test_a_roster_and_the_order_that_is_in_it_revoke_once(state, operator):
    """Whichever comes first."""
    members(state, operator, "a", "b")
    decide(state, operator.publishes(1, a=1))
    again = decide(state, operator.revokes("a", 1, void_below=2), operator.revokes("b", 2, void_below=3))
    assert [change.client_id for change in again.membership] == ["b"]
    assert decide(state, operator.publishes(2, a=1, b=2)).membership == []


def test_an_older_enrolment_than_the_one_that_joined_is_void_already(state, operator):
    """An order that was kept for long does not revoke who was enrolled anew since."""
    members(state, operator, "a")
    (a,) = members(state, operator, "a")
    decisions = decide(state, operator.revokes("a", 1, void_below=2), a.updates())
    assert (answers(decisions), told(decisions)) == ([(1, "obeyed", None)], [("a", "accepted")])


def test_a_proposal_is_dismissed(state, operator):
    """That is an event, by which those before it are closed; of a stranger there are none."""
    members(state, operator, "a")
    decisions = decide(
        state,
        *(operator.says(DismissProposals(federation="mail", client_id=name), n) for n, name in enumerate("ab", 1)),
    )
    assert events(decisions)[0] == ("proposal_dismissed", None, "a")
    assert answers(decisions) == [(1, "obeyed", None), (2, "refused", "unknown_client")]


def test_the_newest_key_stands(state, operator):
    """An older one, of a folder that was restored, is refused; a restart knows it."""
    new, old = SigningKey.generate().public, SigningKey.generate().public
    decisions = decide(state, operator.rotates(2, new, 1), operator.rotates(2, old, 2))
    assert answers(decisions) == [(1, "obeyed", None), (2, "refused", "replayed")]
    assert (state.key_sequence, state.federator_key) == (2, new)
    restarted = FederationState(state.plan)
    restarted.restore_orders(decisions.orders)
    assert (restarted.federator_key, restarted.last_order) == (new, 2)


def test_an_order_to_forget_ends_the_batch_and_its_row_waits_for_the_erasure(state, operator):
    """The next number is above that of an order which is stored, and this one is not yet."""
    members(state, operator, "a")
    waiting = backlog(operator.forgets("a", 1), operator.orders(1, 5.0, sequence=2))
    decisions, rest = engine.decide(state, waiting, OPENED + 1)
    (wanted,) = decisions.erasures
    assert (wanted.client_id, wanted.order.number, wanted.order.payload, wanted.order.client_id) == ("a", 1, None, None)
    assert (decisions.orders, answers(decisions), len(rest.messages), state.last_order) == ([], [], 1, 0)
    erasure_ordered(state, wanted.order, decisions, was_known=True)
    assert (answers(decisions), state.last_order) == ([(1, "obeyed", None)], 1)


def test_an_order_to_forget_is_not_about_whoever_was_enrolled_since(state, operator):
    """It is bound to the serial: an old one, sent late, forgets nobody else."""
    members(state, operator, "a")
    members(state, operator, "a")
    decisions = decide(state, operator.forgets("a", 1, serial=1))
    assert (decisions.erasures, answers(decisions)) == ([], [(1, "refused", "revoked")])


def test_a_tombstone_forgets_in_a_restored_database(state, operator):
    """It names nobody, and matches the name that it is of; where nobody has that name, it is obeyed all the same."""
    members(state, operator, "a", "b")
    tombstone = ForgetTombstone(
        federation="mail", salt=SALT, tombstone=tombstone_of(SALT, "a"), serial=9, replaces=bytes(32)
    )
    (wanted,) = decide(state, operator.says(tombstone, 1)).erasures
    assert (wanted.client_id, wanted.order.client_id) == ("a", None)
    erasure_ordered(state, wanted.order, Decisions(), was_known=True)
    assert answers(decide(state, operator.says(tombstone, 2))) == [(2, "obeyed", None)]


def test_a_roster_with_a_tombstone_forgets_and_its_name_is_not_used_again(state, operator):
    """Also where the database is one that never knew the client."""
    members(state, operator, "a", "b")
    tombstones = [tombstone_of(SALT, name) for name in ("a", "never-seen")]
    decisions = decide(state, operator.publishes(1, forgotten=tombstones))
    assert [(wanted.client_id, wanted.order) for wanted in decisions.erasures] == [("a", None)]
    assert told(decide(state, operator.enrol("never-seen").joins(), operator.enrol("a").joins())) == [
        ("never-seen", "forgotten"),
        ("a", "forgotten"),
    ]


def test_without_an_enrolment_key_nobody_is_the_operator(operator):
    """Neither rosters nor orders are believed."""
    state = FederationState(FederationPlan("mail", 1, POLICY))
    state.round, _ = state.open_round(1, 0, OPENED)
    decisions = decide(state, operator.orders(1, 5.0, sequence=1), operator.publishes(1, a=1))
    assert events(decisions) == [("order_refused", "not_enrolled", None), ("roster_refused", "not_enrolled", None)]
    decisions = decide(state, operator.quarantines("a", sequence=1))
    assert (events(decisions), decisions.quarantines) == ([("order_refused", "not_enrolled", None)], [])
    assert answers(decisions) == [(0, "unread", "not_enrolled")]
    assert state.round.closes_at == OPENED + 60


def test_an_ordered_deadline_makes_nothing_late_that_has_arrived(state, operator):
    """The order may lie in the past: the round ends now, with what has arrived, and not in the past."""
    a, b = members(state, operator, "a", "b")
    decisions = decide(state, a.updates(), operator.orders(1, 5.0, sequence=1), b.updates(), at=OPENED + 20)
    assert told(decisions) == [("a", "accepted"), ("b", "accepted")]
    assert OPENED + 20 < state.round.closes_at < OPENED + 20.001

"""What the operator says in the middle of a round: who is revoked, and when the round is to end."""

import pytest
from decisions import OPENED, POLICY, decide, events, members, told

from federator.deciding.state import FederationState
from federator.plan import FederationPlan
from federator.reading import OperatorSpoke
from foltr.protocol.receipts import UpdateReceipt
from foltr.protocol.states import AbandonReason
from storage.records import StoredUpdate

STORED = {("a", "0" * 32): StoredUpdate(1, counts=True)}


@pytest.fixture
def state(operator):
    state = FederationState(FederationPlan("mail", 1, POLICY, enrolment_key=operator.key.public))
    state.round, _ = state.open_round(1, 0, OPENED)
    return state


# --- revocation -----------------------------------------------------------------------------------------------


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


def test_what_counted_before_the_revocation_is_still_told_to_count(state, operator):
    """By the mark, whatever the code; and enrolled anew the client goes on from there."""
    (a,) = members(state, operator, "a")
    decide(state, a.updates())
    following, _ = state.following(1, OPENED + 20)
    state.round.stop_collecting()
    state.round.complete()
    state.follow(following, 1)
    decisions = decide(state, operator.publishes(1, a=1), a.updates(), stored=STORED)
    assert told(decisions) == [("a", "revoked")]
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


def test_a_revocation_comes_too_late_for_a_decided_round(state, operator):
    """Its updates are in a model; the client itself is revoked all the same."""
    a, b = members(state, operator, "a", "b")
    decide(state, a.updates(), b.updates())
    following, _ = state.following(1, OPENED + 20)
    state.round.stop_collecting()
    state.round.complete()
    state.follow(following, 1)
    decisions = decide(state, operator.publishes(1, a=1), a.updates(2, base=1, update_id="1" * 32))
    assert decisions.withdrawn == []
    assert told(decisions) == [("a", "revoked")]


@pytest.mark.parametrize(
    ("roster", "code"),
    [
        pytest.param(lambda operator: type(operator)().publishes(9, a=1), "bad_signature", id="forged"),
        pytest.param(lambda operator: operator.publishes(1, a=1), "replayed", id="older than the one known"),
        pytest.param(lambda _: OperatorSpoke("roster", b"\xc1"), "malformed", id="junk"),
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


def test_the_same_roster_again_is_silence(state, operator):
    """The broker retains it."""
    roster = operator.publishes(2)
    decide(state, roster)
    decisions = decide(state, roster)
    assert (decisions.roster, decisions.events) == (None, [])


# --- deadline -------------------------------------------------------------------------------------------------


def test_an_order_moves_the_deadline(state, operator):
    """In the round, in what is stored, and as an event."""
    decisions = decide(state, operator.orders(1, 5.0, nonce=7))
    assert state.round.closes_at == OPENED + 5
    assert (decisions.deadline.round, decisions.deadline.max_time_s, decisions.operator_nonce) == (1, 5.0, 7)
    assert decisions.deadline.closes_at.timestamp() == OPENED + 5
    assert events(decisions) == [("deadline_set", None, None)]
    assert (state.operator_nonce, decisions.receipts) == (7, [])


def test_the_last_of_several_orders_stands(state, operator):
    """Each is newer than the one before."""
    decisions = decide(state, operator.orders(1, 5.0, nonce=7), operator.orders(1, 50.0, nonce=8))
    assert state.round.closes_at == OPENED + 50
    assert (decisions.deadline.max_time_s, decisions.operator_nonce) == (50.0, 8)


@pytest.mark.parametrize(
    ("order", "code"),
    [
        pytest.param(lambda operator: type(operator)().orders(1, 5.0, 9), "bad_signature", id="forged"),
        pytest.param(lambda operator: operator.orders(1, 5.0, 7), "replayed", id="replayed"),
        pytest.param(lambda operator: operator.orders(1, 5.0, 6), "replayed", id="older"),
        pytest.param(lambda operator: operator.orders(2, 5.0, 9), "unknown_round", id="the next round"),
        pytest.param(lambda operator: operator.orders(0, 5.0, 9), "unknown_round", id="an earlier round"),
        pytest.param(lambda operator: operator.orders(1, 5.0, 9, "web"), "bad_signature", id="another federation"),
        pytest.param(lambda _: OperatorSpoke("order", b""), "malformed", id="empty"),
        pytest.param(lambda operator: OperatorSpoke("order", operator.roster(9)), "bad_signature", id="a roster"),
    ],
)
def test_an_order_that_is_not_obeyed_is_an_event(state, operator, order, code):
    """The round goes on as it was, and the next good order is still obeyed."""
    decide(state, operator.orders(1, 40.0, nonce=7))
    decisions = decide(state, order(operator))
    assert events(decisions) == [("order_refused", code, None)]
    assert (state.round.closes_at, decisions.deadline) == (OPENED + 40, None)
    assert decide(state, operator.orders(1, 5.0, nonce=8)).deadline is not None


@pytest.mark.parametrize("step", ["stop_collecting", "abandon"])
def test_an_order_for_a_round_that_is_decided_is_an_event(state, operator, step):
    """It came a moment too late; that must not end the federator."""
    if step == "abandon":
        state.round.abandon(AbandonReason.NO_UPDATES)
    else:
        state.round.stop_collecting()
    decisions = decide(state, operator.orders(1, 5.0, nonce=7))
    assert events(decisions) == [("order_refused", "unknown_round", None)]
    assert state.round.closes_at == OPENED + 60


def test_without_an_enrolment_key_nobody_is_the_operator(operator):
    """Neither rosters nor orders are believed."""
    state = FederationState(FederationPlan("mail", 1, POLICY))
    state.round, _ = state.open_round(1, 0, OPENED)
    decisions = decide(state, operator.orders(1, 5.0, nonce=7), operator.publishes(1, a=1))
    assert events(decisions) == [("order_refused", "not_enrolled", None), ("roster_refused", "not_enrolled", None)]
    decisions = decide(state, operator.quarantines("a", nonce=7))
    assert (events(decisions), decisions.quarantines) == ([("order_refused", "not_enrolled", None)], [])
    assert state.round.closes_at == OPENED + 60


def test_an_ordered_deadline_makes_nothing_late_that_has_arrived(state, operator):
    """The order may lie in the past: the round ends now, with what has arrived, and not in the past."""
    a, b = members(state, operator, "a", "b")
    decisions = decide(state, a.updates(), operator.orders(1, 5.0, nonce=7), b.updates(), at=OPENED + 20)
    assert told(decisions) == [("a", "accepted"), ("b", "accepted")]
    assert OPENED + 20 < state.round.closes_at < OPENED + 20.001

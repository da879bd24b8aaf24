"""What the operator says in the middle of a round: who is revoked, and when the round is to end."""

import pytest
from decided import OPENED, POLICY, decide, events, members, told

from federator.engine import Engine
from federator.plan import FederationPlan
from federator.reading import OperatorSpoke
from federator.round import AbandonReason
from foltr.protocol.receipts import UpdateReceipt


@pytest.fixture
def engine(operator):
    engine = Engine(FederationPlan("mail", 1, POLICY, enrolment_key=operator.key.public))
    engine.round, _ = engine.open_round(1, 0, OPENED)
    return engine


# --- revocation -----------------------------------------------------------------------------------------------


def test_a_revocation_withdraws_what_is_stored(engine, operator):
    """The update of the open round goes, and the client is a member no more, in one commit with the roster."""
    a, b = members(engine, operator, "a", "b")
    decide(engine, a.updates(), b.updates())
    roster = operator.publishes(3, a=1)
    decided = decide(engine, roster)
    assert decided.withdrawn == [(1, "a")]
    assert decided.roster == (3, roster.payload)
    assert [(change.client_id, change.kind) for change in decided.membership] == [("a", "revoked")]
    assert list(engine.round.contributions) == ["b"]
    assert events(decided) == [("roster_adopted", None, None), ("client_revoked", None, "a")]
    assert decided.receipts == []


def test_a_revocation_withdraws_what_came_in_the_same_batch(engine, operator):
    """It was never stored, and its device is not told that it counts; the others are."""
    a, b = members(engine, operator, "a", "b")
    # Both devices chose the same id, which only has to be unique for one client.
    decided = decide(engine, a.updates(), b.updates(), operator.publishes(1, a=1))
    assert told(decided) == [("b", "accepted")]
    assert [update.client_id for update in decided.updates] == ["b"]
    assert decided.withdrawn == []
    assert list(engine.round.contributions) == ["b"]


def test_updates_of_the_revoked_are_refused_in_the_same_batch(engine, operator):
    """From the roster on, and their old one cannot count twice or be called a duplicate."""
    (a,) = members(engine, operator, "a")
    decide(engine, a.updates())
    decided = decide(engine, operator.publishes(1, a=1), a.updates(), a.joins(9), stored={("a", "0" * 32): 1})
    assert told(decided) == [("a", "revoked"), ("a", "revoked")]
    assert isinstance(decided.receipts[0], UpdateReceipt)
    assert decided.receipts[0].update_id == "0" * 32


def test_what_counted_before_the_revocation_is_still_told_to_count(engine, operator):
    """Told otherwise, the device would train on it again and, enrolled anew, count it twice."""
    (a,) = members(engine, operator, "a")
    decide(engine, operator.publishes(1, a=1))
    decided = decide(engine, a.updates(), a.updates(update_id="1" * 32), stored={("a", "0" * 32): 1})
    assert told(decided) == [("a", "duplicate"), ("a", "revoked")]


def test_a_withdrawn_update_may_come_again_from_the_renewed_device(engine, operator):
    """Revoked, enrolled anew and sent again in one batch: it is stored again, not called a duplicate."""
    (a,) = members(engine, operator, "a")
    decide(engine, a.updates())
    renewed = operator.enrol("a")
    decided = decide(
        engine, operator.publishes(1, a=1), renewed.joins(), renewed.updates(), stored={("a", "0" * 32): 1}
    )
    assert told(decided) == [("a", "joined"), ("a", "accepted")]
    assert decided.withdrawn == [(1, "a")]
    assert [update.client_id for update in decided.updates] == ["a"]


def test_a_revocation_comes_too_late_for_a_decided_round(engine, operator):
    """Its updates are in a model; the client itself is revoked all the same."""
    a, b = members(engine, operator, "a", "b")
    decide(engine, a.updates(), b.updates())
    following, _ = engine.following(1, OPENED + 20)
    engine.round.stop_collecting()
    engine.round.complete()
    engine.follow(following, 1)
    decided = decide(engine, operator.publishes(1, a=1), a.updates(2, base=1, update_id="1" * 32))
    assert decided.withdrawn == []
    assert told(decided) == [("a", "revoked")]


@pytest.mark.parametrize(
    ("roster", "code"),
    [
        pytest.param(lambda operator: type(operator)().publishes(9, a=1), "bad_signature", id="forged"),
        pytest.param(lambda operator: operator.publishes(1, a=1), "replayed", id="older than the one known"),
        pytest.param(lambda _: OperatorSpoke("roster", b"\xc1"), "malformed", id="junk"),
    ],
)
def test_a_roster_that_is_not_believed_is_an_event(engine, operator, roster, code):
    """It withdraws nothing and nobody is answered: who published it is not known."""
    (a,) = members(engine, operator, "a")
    decide(engine, operator.publishes(2), a.updates())
    decided = decide(engine, roster(operator))
    assert events(decided) == [("roster_refused", code, None)]
    assert (decided.roster, decided.withdrawn, decided.receipts) == (None, [], [])
    assert list(engine.round.contributions) == ["a"]


def test_the_same_roster_again_is_silence(engine, operator):
    """The broker retains it."""
    roster = operator.publishes(2)
    decide(engine, roster)
    decided = decide(engine, roster)
    assert (decided.roster, decided.events) == (None, [])


# --- deadline -------------------------------------------------------------------------------------------------


def test_an_order_moves_the_deadline(engine, operator):
    """In the round, in what is stored, and as an event."""
    decided = decide(engine, operator.orders(1, 5.0, nonce=7))
    assert engine.round.closes_at == OPENED + 5
    assert (decided.deadline.round, decided.deadline.max_time_s, decided.operator_nonce) == (1, 5.0, 7)
    assert decided.deadline.closes_at.timestamp() == OPENED + 5
    assert events(decided) == [("deadline_set", None, None)]
    assert (engine.operator_nonce, decided.receipts) == (7, [])


def test_the_last_of_several_orders_stands(engine, operator):
    """Each is newer than the one before."""
    decided = decide(engine, operator.orders(1, 5.0, nonce=7), operator.orders(1, 50.0, nonce=8))
    assert engine.round.closes_at == OPENED + 50
    assert (decided.deadline.max_time_s, decided.operator_nonce) == (50.0, 8)


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
def test_an_order_that_is_not_obeyed_is_an_event(engine, operator, order, code):
    """The round goes on as it was, and the next good order is still obeyed."""
    decide(engine, operator.orders(1, 40.0, nonce=7))
    decided = decide(engine, order(operator))
    assert events(decided) == [("order_refused", code, None)]
    assert (engine.round.closes_at, decided.deadline) == (OPENED + 40, None)
    assert decide(engine, operator.orders(1, 5.0, nonce=8)).deadline is not None


@pytest.mark.parametrize("step", ["stop_collecting", "abandon"])
def test_an_order_for_a_round_that_is_decided_is_an_event(engine, operator, step):
    """It came a moment too late; that must not end the federator."""
    if step == "abandon":
        engine.round.abandon(AbandonReason.NO_UPDATES)
    else:
        engine.round.stop_collecting()
    decided = decide(engine, operator.orders(1, 5.0, nonce=7))
    assert events(decided) == [("order_refused", "unknown_round", None)]
    assert engine.round.closes_at == OPENED + 60


def test_without_an_enrolment_key_nobody_is_the_operator(operator):
    """Neither rosters nor orders are believed."""
    engine = Engine(FederationPlan("mail", 1, POLICY))
    engine.round, _ = engine.open_round(1, 0, OPENED)
    decided = decide(engine, operator.orders(1, 5.0, nonce=7), operator.publishes(1, a=1))
    assert events(decided) == [("order_refused", "not_enrolled", None), ("roster_refused", "not_enrolled", None)]
    decided = decide(engine, operator.quarantines("a", nonce=7))
    assert (events(decided), decided.quarantines) == ([("order_refused", "not_enrolled", None)], [])
    assert engine.round.closes_at == OPENED + 60


def test_an_ordered_deadline_makes_nothing_late_that_has_arrived(engine, operator):
    """The order may lie in the past: the round ends now, with what has arrived, and not in the past."""
    a, b = members(engine, operator, "a", "b")
    decided = decide(engine, a.updates(), operator.orders(1, 5.0, nonce=7), b.updates(), at=OPENED + 20)
    assert told(decided) == [("a", "accepted"), ("b", "accepted")]
    assert OPENED + 20 < engine.round.closes_at < OPENED + 20.001

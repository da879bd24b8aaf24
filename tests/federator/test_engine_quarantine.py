"""Quarantine by the operator: what a client has in the open round goes, what it sends is refused, until lifted."""

import pytest
from decided import OPENED, POLICY, decide, events, members, told

from federator.engine import Engine
from federator.plan import FederationPlan
from federator.round import RoundPolicy


@pytest.fixture
def engine(operator):
    engine = Engine(FederationPlan("mail", 1, POLICY, enrolment_key=operator.key.public))
    engine.round, _ = engine.open_round(1, 0, OPENED)
    return engine


def changes(decided):
    return [(change.client_id, change.reason) for change in decided.quarantines]


def test_a_quarantine_withdraws_what_is_stored(engine, operator):
    """One commit has the exclusion, its reason, the order's nonce, the event and the withdrawal."""
    a, b = members(engine, operator, "a", "b")
    decide(engine, a.updates(), b.updates())
    decided = decide(engine, operator.quarantines("a", nonce=7, reason="it flips signs"))
    assert changes(decided) == [("a", "it flips signs")]
    assert (decided.withdrawn, decided.operator_nonce, engine.operator_nonce) == ([(1, "a")], 7, 7)
    assert events(decided) == [("client_quarantined", None, "a")]
    assert decided.events[0].detail == "it flips signs"
    assert (list(engine.round.contributions), decided.receipts) == (["b"], [])


def test_a_quarantine_withdraws_what_came_in_the_same_batch(engine, operator):
    """It was never stored, and its device is not told that it counts."""
    a, b = members(engine, operator, "a", "b")
    decided = decide(engine, a.updates(), b.updates(), operator.quarantines("a", nonce=1))
    assert told(decided) == [("b", "accepted")]
    assert ([update.client_id for update in decided.updates], decided.withdrawn) == (["b"], [])


def test_what_it_sends_is_refused_but_it_stays_a_member(engine, operator):
    """Updates are told ``quarantined``, with an event; joins and leaves go on as ever."""
    (a,) = members(engine, operator, "a")
    decided = decide(engine, operator.quarantines("a", nonce=1), a.updates(), a.joins(5), a.leaves(6), a.joins(7))
    assert told(decided) == [("a", "quarantined"), ("a", "joined"), ("a", "left"), ("a", "joined")]
    assert ("update_rejected", "quarantined", "a") in events(decided)
    renewed = operator.enrol("a")
    assert told(decide(engine, renewed.joins(), renewed.updates())) == [("a", "joined"), ("a", "quarantined")]


def test_a_forged_update_does_not_learn_of_the_quarantine(engine, operator):
    """The signature is looked at first."""
    members(engine, operator, "a")
    decide(engine, operator.quarantines("a", nonce=1))
    mallory = operator.enrol("mallory").but(client_id="a")
    assert told(decide(engine, mallory.updates())) == [("a", "bad_signature")]


def test_what_counted_before_is_still_told_to_count(engine, operator):
    """Told otherwise, the device would train on it again and, let out, count it twice."""
    (a,) = members(engine, operator, "a")
    decide(engine, operator.quarantines("a", nonce=1))
    decided = decide(engine, a.updates(), a.updates(update_id="1" * 32), stored={("a", "0" * 32): 1})
    assert told(decided) == [("a", "duplicate"), ("a", "quarantined")]


def test_a_lifted_client_contributes_again(engine, operator):
    """In the same round, if that still collects."""
    (a,) = members(engine, operator, "a")
    decide(engine, a.updates(), operator.quarantines("a", nonce=1))
    decided = decide(engine, operator.lifts("a", nonce=2), a.updates(update_id="1" * 32))
    assert changes(decided) == [("a", None)]
    assert told(decided) == [("a", "accepted")]
    assert events(decided) == [("quarantine_lifted", None, "a")]


def test_an_order_that_changes_nothing_leaves_no_row(engine, operator):
    """Whoever is in quarantine stays there for the first reason, and nobody is let out twice; both orders were seen."""
    a, b = members(engine, operator, "a", "b")
    decide(engine, b.updates(), operator.quarantines("a", nonce=1))
    decided = decide(engine, operator.quarantines("a", nonce=2, reason="again"), operator.lifts("b", nonce=3))
    assert (changes(decided), events(decided), decided.withdrawn) == ([], [], [])
    assert (decided.operator_nonce, list(engine.round.contributions)) == (3, ["b"])
    assert told(decide(engine, a.updates())) == [("a", "quarantined")]


def test_the_last_of_several_orders_stands(engine, operator):
    """Of deadlines, quarantines and lifts in one batch each is obeyed, in order, and the newest nonce is stored."""
    (a,) = members(engine, operator, "a")
    decided = decide(
        engine,
        operator.quarantines("a", nonce=1),
        operator.orders(1, 5.0, nonce=2),
        operator.lifts("a", nonce=3),
        operator.quarantines("a", nonce=4, reason="again"),
        a.updates(),
    )
    assert changes(decided) == [("a", "it flips signs"), ("a", None), ("a", "again")]
    assert (decided.operator_nonce, engine.round.closes_at) == (4, OPENED + 5)
    assert told(decided) == [("a", "quarantined")]


@pytest.mark.parametrize(
    ("order", "code"),
    [
        pytest.param(lambda operator: type(operator)().quarantines("a", 9), "bad_signature", id="forged"),
        pytest.param(lambda operator: operator.quarantines("a", 7), "replayed", id="replayed"),
        pytest.param(lambda operator: operator.lifts("a", 6), "replayed", id="older"),
        pytest.param(lambda operator: operator.quarantines("nobody", 9), "unknown_client", id="a stranger"),
        pytest.param(lambda operator: operator.lifts("nobody", 9), "unknown_client", id="a stranger let out"),
    ],
)
def test_an_order_that_is_not_obeyed_is_an_event(engine, operator, order, code):
    """Nobody is excluded or let out, and the next good order is still obeyed."""
    (a,) = members(engine, operator, "a")
    decide(engine, operator.orders(1, 40.0, nonce=7), a.updates())
    decided = decide(engine, order(operator))
    assert events(decided) == [("order_refused", code, None)]
    assert (decided.quarantines, decided.withdrawn, decided.operator_nonce) == ([], [], None)
    assert changes(decide(engine, operator.quarantines("a", nonce=8))) == [("a", "it flips signs")]


def test_it_comes_too_late_for_a_decided_round_and_holds_for_the_next(engine, operator):
    """What is in a model stays there."""
    a, b = members(engine, operator, "a", "b")
    decide(engine, a.updates(), b.updates())
    following, _ = engine.following(1, OPENED + 20)
    engine.round.stop_collecting()
    engine.round.complete()
    engine.follow(following, 1)
    decided = decide(engine, operator.quarantines("a", 1), a.updates(2, base=1, update_id="1" * 32))
    assert (decided.withdrawn, told(decided)) == ([], [("a", "quarantined")])


def test_nobody_in_quarantine_is_asked(operator):
    """A random selection is of clients whose updates would be taken."""
    policy = RoundPolicy(1, 2, over_selection=0.0)
    engine = Engine(FederationPlan("mail", 1, policy, enrolment_key=operator.key.public))
    engine.round, _ = engine.open_round(1, 0, OPENED)
    members(engine, operator, "a", "b", "c")
    decide(engine, operator.quarantines("b", nonce=1))
    asked = engine.open_round(2, 0, OPENED)[0].asked
    assert asked is not None
    assert (asked.n_eligible, asked.n_selected) == (2, 2)
    assert list(engine.members.online()) == ["a", "c"]

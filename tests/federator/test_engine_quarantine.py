"""Quarantine by the operator: what a client has in the open round goes, what it sends is refused, until lifted."""

import pytest
from support.intake_decisions import OPENED, POLICY, answers, decide, end_round, events, members, told

from foltr.federator.deciding.state import FederationState
from foltr.federator.plan import FederationPlan


@pytest.fixture
def state(operator):
    state = FederationState(FederationPlan("mail", 1, POLICY, enrolment_key=operator.key.public))
    state.round, _ = state.open_round(1, 0, OPENED)
    return state


def changes(decisions):
    return [(change.client_id, change.reason) for change in decisions.quarantines]


def test_a_quarantine_withdraws_what_is_stored(state, operator):
    """One commit has the exclusion, its reason, the order, the event and the withdrawal."""
    a, b = members(state, operator, "a", "b")
    decide(state, a.updates(), b.updates())
    decisions = decide(state, operator.quarantines("a", sequence=1, reason="it flips signs"))
    assert changes(decisions) == [("a", "it flips signs")]
    assert (decisions.withdrawn, [(row.number, row.client_id) for row in decisions.orders]) == ([(1, "a")], [(1, "a")])
    assert events(decisions) == [("client_quarantined", None, "a")]
    assert decisions.events[0].detail == "it flips signs"
    assert list(state.round.contributions) == ["b"]
    assert told(decisions) == [("a", "quarantined")]
    assert answers(decisions) == [(1, "obeyed", None)]


def test_a_reason_that_names_a_client_is_refused(state, operator):
    """It is stored in words, in which nobody looks for a name to forget; names that were forgotten count, too."""
    members(state, operator, "device-1", "device-2")
    state.members.restore_forgotten(bytes(32), ())
    state.members.forget("device-2")
    for n, reason in enumerate(("copies device-2.", "device-1 flips signs", "see 'device-2'"), 1):
        decisions = decide(state, operator.quarantines("device-1", sequence=n, reason=reason))
        (refused,) = decisions.events
        assert (refused.kind, refused.code, refused.client_id) == ("order_refused", "malformed", None)
        assert refused.detail == "the reason for a quarantine names a client: say why without a name"
        assert (changes(decisions), state.members.takes_part("device-1")) == ([], True)
    assert changes(decide(state, operator.quarantines("device-1", sequence=4, reason="device-10 flips signs")))


def test_a_quarantine_withdraws_what_came_in_the_same_batch(state, operator):
    """It was never stored, and its device is told so."""
    a, b = members(state, operator, "a", "b")
    decisions = decide(state, a.updates(), b.updates(), operator.quarantines("a", sequence=1))
    assert told(decisions) == [("b", "accepted"), ("a", "quarantined")]
    assert ([update.client_id for update in decisions.updates], decisions.withdrawn) == (["b"], [])


def test_what_it_sends_is_refused_but_it_stays_a_member(state, operator):
    """Updates are told ``quarantined``, with an event; joins and leaves go on as ever."""
    (a,) = members(state, operator, "a")
    decisions = decide(state, operator.quarantines("a", sequence=1), a.updates(), a.joins(5), a.leaves(6), a.joins(7))
    assert told(decisions) == [("a", "quarantined"), ("a", "joined"), ("a", "left"), ("a", "joined")]
    assert ("update_rejected", "quarantined", "a") in events(decisions)
    assert list(state.members.present(0.0)) == [], "no round asks it"
    renewed = operator.enrol("a")
    assert told(decide(state, renewed.joins(), renewed.updates())) == [("a", "joined"), ("a", "quarantined")]


def test_a_forged_update_does_not_learn_of_the_quarantine(state, operator):
    """The signature is looked at first."""
    members(state, operator, "a")
    decide(state, operator.quarantines("a", sequence=1))
    mallory = operator.enrol("mallory").but(client_id="a")
    assert told(decide(state, mallory.updates())) == [("a", "bad_signature")]


def test_a_copy_of_what_a_quarantine_withdrew_counts_once_at_most(state, operator):
    """Let out, the device's new update and the copy cover the same: the second finds the watermark elsewhere."""
    (a,) = members(state, operator, "a")
    decide(state, a.updates(), operator.quarantines("a", sequence=1))
    decisions = decide(state, operator.lifts("a", sequence=2), a.updates(), a.updates(update_id="1" * 32))
    assert told(decisions) == [("a", "accepted"), ("a", "already_contributed")]
    end_round(state)
    assert told(decide(state, a.updates(2, base=1, update_id="1" * 32))) == [("a", "overlaps")]


@pytest.mark.parametrize("is_online", [True, False])
def test_who_is_let_out_is_back_if_it_is_connected(state, operator, is_online):
    """A job that paused for want of devices goes on with it."""
    (a,) = members(state, operator, "a")
    decide(state, operator.quarantines("a", sequence=1), a.status(is_online, 5))
    assert decide(state, operator.lifts("a", sequence=2)).returned is is_online
    assert not decide(state, operator.lifts("a", sequence=3)).returned


def test_an_order_that_changes_nothing_is_obeyed(state, operator):
    """Whoever is in quarantine stays there for the first reason, and nobody is let out twice."""
    a, b = members(state, operator, "a", "b")
    decide(state, b.updates(), operator.quarantines("a", sequence=1))
    decisions = decide(state, operator.quarantines("a", sequence=2, reason="again"), operator.lifts("b", sequence=3))
    assert (changes(decisions), events(decisions), decisions.withdrawn) == ([], [], [])
    assert (answers(decisions), list(state.round.contributions)) == ([(2, "obeyed", None), (3, "obeyed", None)], ["b"])
    assert told(decide(state, a.updates())) == [("a", "quarantined")]


def test_the_last_of_several_orders_stands(state, operator):
    """Of deadlines, quarantines and lifts in one batch each is obeyed, in order, and has a row."""
    (a,) = members(state, operator, "a")
    decisions = decide(
        state,
        operator.quarantines("a", sequence=1),
        operator.orders(1, 5.0, sequence=2),
        operator.lifts("a", sequence=3),
        operator.quarantines("a", sequence=4, reason="again"),
        a.updates(),
    )
    assert changes(decisions) == [("a", "it flips signs"), ("a", None), ("a", "again")]
    assert ([row.number for row in decisions.orders], state.round.closes_at) == ([1, 2, 3, 4], OPENED + 5)
    assert told(decisions) == [("a", "quarantined")]


@pytest.mark.parametrize(
    ("order", "told_why"),
    [
        pytest.param(
            lambda operator: type(operator)().quarantines("a", 2), (0, "unread", "bad_signature"), id="forged"
        ),
        pytest.param(lambda operator: operator.quarantines("a", 1), (1, "diverged", "replayed"), id="a used number"),
        pytest.param(
            lambda operator: operator.quarantines("nobody", 2), (2, "refused", "unknown_client"), id="a stranger"
        ),
        pytest.param(
            lambda operator: operator.lifts("nobody", 2), (2, "refused", "unknown_client"), id="a stranger let out"
        ),
    ],
)
def test_an_order_that_is_not_obeyed_is_an_event(state, operator, order, told_why):
    """Nobody is excluded or let out, no name of a stranger is noted, and the next good order is still obeyed."""
    (a,) = members(state, operator, "a")
    decide(state, operator.orders(1, 40.0, sequence=1), a.updates())
    decisions = decide(state, order(operator))
    assert (answers(decisions), events(decisions)) == ([told_why], [("order_refused", told_why[2], None)])
    assert (decisions.quarantines, decisions.withdrawn) == ([], [])
    assert "nobody" not in decisions.events[0].detail
    following = operator.quarantines("a", sequence=state.last_order + 1)
    assert changes(decide(state, following)) == [("a", "it flips signs")]


def test_it_comes_too_late_for_a_decided_round_and_holds_for_the_next(state, operator):
    """What is in a model stays there."""
    a, b = members(state, operator, "a", "b")
    decide(state, a.updates(), b.updates())
    end_round(state)
    decisions = decide(state, operator.quarantines("a", 1), a.updates(2, base=1, update_id="1" * 32))
    assert (decisions.withdrawn, told(decisions)) == ([], [("a", "quarantined")])

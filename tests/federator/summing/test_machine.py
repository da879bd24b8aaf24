"""What is asked of all helpers about one round, when, and when it is given up."""

import math

from support.secure_cohorts import SecureFederation

from foltr.core.aggregation.rule_spec import MEAN, read_rule
from foltr.core.protocol.helper_messages import (
    CheckAnswer,
    HelperRefusal,
    HelperRefusalCode,
    OpenAnswer,
    RefusedTicket,
    TicketFault,
)
from foltr.core.protocol.signed_tickets import set_digest, ticket_hash
from foltr.core.protocol.states import AbandonReason
from foltr.federator.secure_terms import SecureTerms
from foltr.federator.summing.cohorts import cohorts_of
from foltr.federator.summing.machine import AT_ONCE, FixSets, GiveUp, SumMachine
from foltr.storage.sum_records import TicketRow

FEDERATION = SecureFederation(n_min=3)
TERMS = SecureTerms(FEDERATION.policy, 1.0)


def rows(n: int, cohort: int = 0) -> list[TicketRow]:
    return [TicketRow(f"{cohort}-{i}", cohort, i, bytes([i % 256, cohort, i // 256]), b"enrolment") for i in range(n)]


def machine_of(tickets: list[TicketRow], rule=MEAN) -> SumMachine:
    return SumMachine("mail", 7, TERMS, rule, cohorts_of(tickets), 60.0, 0.0)


def about(request) -> dict:
    return {name: getattr(request, name) for name in ("federation", "helper", "policy_hash", "round", "cohort")}


def checked(request, *refused: int) -> CheckAnswer:
    digest = set_digest(ticket_hash(ticket) for ticket in request.tickets)
    faults = [RefusedTicket(position=position, fault=TicketFault.NOT_OPENED) for position in refused]
    return CheckAnswer(**about(request), first=request.first, digest=digest, refused=faults)


def opened(request) -> OpenAnswer:
    return OpenAnswer(**about(request), digest=request.digest, dim=3, start=0, values=bytes(24))


def check_all(machine: SumMachine, refused=lambda _request: ()) -> None:
    while requests := machine.requests(0.0):
        for request in requests:
            machine.handle_answer(checked(request, *refused(request)), b"", 0.0)


def fixed(machine: SumMachine) -> FixSets:
    step = machine.step(0.0)
    assert isinstance(step, FixSets)
    machine.sets_stored(step.sets, 0.0)
    return step


def test_only_a_few_requests_to_a_helper_are_under_way():
    """The next ones follow the answers, so that a helper that is slow is not buried."""
    machine = machine_of(rows(2000))
    first = machine.requests(0.0)
    assert len(first) == 2 * AT_ONCE
    assert machine.requests(0.0) == []
    machine.handle_answer(checked(first[0]), b"", 0.0)
    (following,) = machine.requests(0.0)
    assert (following.helper, following.first) == (first[0].helper, 256 * AT_ONCE)


def test_what_is_not_answered_is_repeated_ever_more_rarely():
    """After 2, 4, 8, 8 seconds ..., each time the same question."""
    machine = machine_of(rows(3))
    asked = machine.requests(0.0)
    times = []
    for half in range(1, 60):
        if again := machine.requests(half / 2):
            assert again == asked
            times.append(half / 2)
    assert times == [2.0, 6.0, 14.0, 22.0]
    assert machine.wake_at() == 30.0


def test_too_few_in_all_cohorts_or_too_few_cohorts_for_the_rule_is_given_up():
    """Nobody was asked to open anything."""
    lonely = machine_of(rows(2))
    check_all(lonely)
    step = lonely.step(0.0)
    assert isinstance(step, GiveUp)
    assert step.reason is AbandonReason.COHORTS_TOO_SMALL
    median = machine_of(rows(3, 0) + rows(3, 1) + rows(2, 2), read_rule("median"))
    check_all(median)
    step = median.step(0.0)
    assert isinstance(step, GiveUp)
    assert "2 of 3 cohorts have 3 clients" in step.detail
    enough = machine_of(rows(3, 0) + rows(3, 1) + rows(3, 2), read_rule("median"))
    check_all(enough)
    assert len(fixed(enough).sets) == 3


def test_an_answer_counts_once_it_is_stored():
    """Before that the sums are not all opened, whatever has come."""
    machine = machine_of(rows(3))
    check_all(machine)
    fixed(machine)
    for request in machine.requests(0.0):
        machine.handle_answer(opened(request), request.helper.encode(), 0.0)
    assert machine.step(0.0) is None
    answers = machine.unstored()
    assert [(each.helper, each.answer) for each in answers] == [("north", b"north"), ("south", b"south")]
    machine.stored(answers)
    assert type(machine.step(0.0)).__name__ == "AllOpened"


def test_an_answer_to_nothing_that_is_asked_changes_nothing():
    """Of a helper that is none of the policy's, about another policy, round or cohort, or for another set."""
    machine = machine_of(rows(3))
    asked = machine.requests(0.0)
    for changes in ({"helper": "east"}, {"policy_hash": bytes(32)}, {"round": 9}, {"cohort": 5}):
        for request in asked:
            machine.handle_answer(checked(request).model_copy(update=changes), b"", 0.0)
        assert machine.step(0.0) is None, changes
    for request in asked:
        machine.handle_answer(checked(request), b"", 0.0)
    fixed(machine)
    for request in machine.requests(0.0):
        machine.handle_answer(opened(request).model_copy(update={"digest": bytes(32)}), b"", 0.0)
    assert (machine.step(0.0), machine.unstored()) == (None, [])


def test_a_helper_that_will_not_open_a_sum_ends_the_round_at_once():
    """What it will not do now it will not do later."""
    for code in [code for code in HelperRefusalCode if not code.startswith("unknown")]:
        machine = machine_of(rows(3))
        (request, *_) = machine.requests(0.0)
        digest = checked(request).digest
        machine.handle_answer(HelperRefusal(**about(request), digest=digest, code=code, detail="no"), b"", 0.0)
        assert machine.step(0.0) == GiveUp(AbandonReason.HELPERS_REFUSED, f"north: {code}: no"), code


def test_a_helper_that_does_not_know_the_policy_yet_is_asked_until_the_deadline():
    """The broker may still have to give it the policy."""
    machine = machine_of(rows(3))
    for request in machine.requests(0.0):
        if request.helper == "south":
            machine.handle_answer(checked(request), b"", 0.0)
        else:
            digest, code = checked(request).digest, HelperRefusalCode.UNKNOWN_POLICY
            machine.handle_answer(HelperRefusal(**about(request), digest=digest, code=code, detail=""), b"", 1.0)
    assert machine.step(59.9) is None
    step = machine.step(60.0)
    assert isinstance(step, GiveUp)
    assert step.reason is AbandonReason.HELPERS_REFUSED


def test_silence_is_counted_from_the_last_useful_answer():
    """A helper with many pages may take its time; one that was not asked is not silent."""
    machine = machine_of(rows(600))
    requests = machine.requests(0.0)
    for request in requests:
        if request.helper == "south":
            machine.handle_answer(checked(request), b"", 0.0)
    mine = [request for request in requests if request.helper == "north"]
    machine.handle_answer(checked(mine[0]), b"", 50.0)
    assert machine.step(109.0) is None
    assert machine.step(110.0) == GiveUp(AbandonReason.HELPERS_SILENT, "north said nothing for 60 s")


def test_a_round_without_questions_wakes_nobody():
    """All is checked: what follows waits for no clock."""
    machine = machine_of(rows(3))
    check_all(machine)
    assert machine.wake_at() == math.inf

"""A helper at its desk: it believes the operator and the federator, and remembers what it has opened."""

import base64
import contextlib

from support.helper_desks import TOPICS, contributions
from support.secure_cohorts import FEDERATION, SecureFederation

from foltr.core.protocol.codec import decode, encode
from foltr.core.protocol.enrolment import issue_federator_key, issue_roster, read_enrolment
from foltr.core.protocol.helper_messages import CheckAnswer, HelperRefusal, HelperRefusalCode, OpenAnswer, TicketFault
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.operator_keys import (
    document_digest,
    enrolment_digest,
    issue_kept_enrolments,
    issue_link,
    issue_succession,
)
from foltr.core.protocol.roster import FederatorKey, Revocation, Roster
from foltr.core.protocol.signed_tickets import set_digest, ticket_hash
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics
from foltr.core.secure.field import read_words, to_signed
from foltr.core.secure.masks import release_sum
from foltr.helper.request_handler import RequestHandler
from foltr.helper.store import HelperStore


def code_of(answers):
    (refusal,) = answers
    assert isinstance(refusal, HelperRefusal), refusal
    return refusal.code


def opened(federation, helper, sent, **request):
    """Check and open, which succeeds; returns the sum."""
    check = {name: value for name, value in request.items() if name in ("round", "cohort", "policy_hash")}
    (checked,) = helper.ask(federation, federation.check(sent, helper=helper.pair.name, **check))
    assert isinstance(checked, CheckAnswer), checked
    assert checked.refused == []
    (answer,) = helper.ask(federation, federation.open(sent, helper=helper.pair.name, **request))
    assert isinstance(answer, OpenAnswer), answer
    return read_words(answer.values, answer.dim)


def test_two_helpers_open_a_sum(running):
    """With the noise of both in it: a few thousand for each, where a mask is some 2^63."""
    federation, north, south = running(n_helpers=2)
    sent = contributions(federation, 4)
    answers = [opened(federation, helper, sent) for helper in (north, south)]
    left = to_signed(release_sum([one.masked for one in sent], answers, 3)) - sum(one.vector for one in sent)
    assert (abs(left) < 20_000).all()
    assert left.any()


def test_an_answer_names_what_it_answers(running):
    """The page by its digest, and a refusal the set that it refuses."""
    federation, north = running()
    sent = contributions(federation)
    (checked,) = north.ask(federation, federation.check(sent))
    digest = set_digest(ticket_hash(one.ticket) for one in sent)
    assert (checked.first, checked.digest, checked.round, checked.helper) == (0, digest, 4, "north")
    (refusal,) = north.ask(federation, federation.open(sent, [0, 1]))
    assert refusal.digest == federation.open(sent, [0, 1]).digest
    (refusal,) = north.ask(federation, federation.check(sent, policy_hash=bytes(32)))
    assert (refusal.code, refusal.digest) == (HelperRefusalCode.UNKNOWN_POLICY, digest)


def test_what_it_did_is_counted(running):
    """One sum, however often it is asked for; a refusal; and what nobody signed who may."""
    federation, north = running()
    sent = contributions(federation, 4)
    opened(federation, north, sent)
    north.ask(federation, federation.open(sent))
    north.ask(federation, federation.open(sent, [0, 1, 2]))
    north.ask_raw(federation.open(sent), SigningKey.generate())
    measures = north.measures
    assert (measures.sums_opened.counts[""], measures.tickets_good.counts[""]) == (1, 4)
    assert measures.refused.counts["answered_otherwise"] == 1
    assert measures.ignored.counts["bad_signature"] == 1


def test_what_a_helper_has_said_is_known_after_a_restart(running):
    """What was checked; the noise, which is never drawn again; the set: for ever no other one, and no other check."""
    federation, north = running()
    sent = contributions(federation, 4)
    north.ask(federation, federation.check(sent))
    north.restart()
    (answer,) = north.ask(federation, federation.open(sent))
    assert isinstance(answer, OpenAnswer)
    request = federation.agreed(federation.open(sent))
    first = north.ask_raw(request, federation.federator)
    north.restart()
    assert north.ask_raw(request, federation.federator) == first
    assert code_of(north.ask(federation, federation.open(sent, [0, 1, 2]))) is HelperRefusalCode.ANSWERED_OTHERWISE
    assert code_of(north.ask(federation, federation.check(sent))) is HelperRefusalCode.ROUND_OVER
    # Its answers are gone with a later round, so nothing could be said twice of it in two ways.
    later = [federation.contribute(one.client, 5, 2) for one in sent]
    opened(federation, north, later, round=5)
    assert code_of(north.ask(federation, federation.open(sent))) is HelperRefusalCode.ROUND_OVER
    assert north.store.rows("SELECT round FROM committed_sets") == [(5,)]


def test_a_page_that_is_shown_again_takes_its_own_place(running):
    """With another ticket at a position, or one less: the set is of what was shown last."""
    federation, north = running()
    sent = contributions(federation, 5)
    north.ask(federation, federation.check(sent[:4]))
    again = [*sent[:3], sent[4]]
    (checked,) = north.ask(federation, federation.check(again))
    assert checked.refused == []
    assert code_of(north.ask(federation, federation.open(sent[:4]))) is HelperRefusalCode.UNKNOWN_SET
    (answer,) = north.ask(federation, federation.open(again))
    assert isinstance(answer, OpenAnswer)


def test_pages_of_a_cohort_make_one_set(running):
    """A client that has another ticket on the second one is out there; a long sum comes in parts that are signed."""
    federation, north = running(dim=30_000)
    sent = contributions(federation, 4)
    north.ask(federation, federation.check(sent[:2]))
    again = federation.contribute(sent[0].client)
    (checked,) = north.ask(federation, federation.check([again, *sent[2:]], first=2))
    assert [(one.position, one.fault) for one in checked.refused] == [(2, TicketFault.DUPLICATE_CLIENT)]
    parts = north.ask(federation, federation.open([*sent[:2], again, *sent[2:]], [0, 1, 3, 4]))
    assert [(part.start, part.dim) for part in parts] == [(0, 30_000), (24_576, 30_000)]


def test_tickets_that_have_other_places_now_are_in_the_set_once(running):
    """As of a federator that went back to a backup, and has put them in another order."""
    federation, north = running()
    sent = contributions(federation, 5)
    north.ask(federation, federation.check(sent))
    moved = [sent[4], sent[2], sent[0], sent[1]]
    for first in (0, 2):
        (checked,) = north.ask(federation, federation.check(moved[first : first + 2], first=first))
        assert checked.refused == []
    assert code_of(north.ask(federation, federation.open(sent))) is HelperRefusalCode.UNKNOWN_SET
    twice = [*moved, sent[4]]
    assert code_of(north.ask(federation, federation.open(twice))) is HelperRefusalCode.UNKNOWN_SET
    (answer,) = north.ask(federation, federation.open(moved))
    assert isinstance(answer, OpenAnswer)
    assert north.store.rows("SELECT count(*) FROM clients") == [(4,)]


def faults(federation, north, client, number, participation=1):
    sent = [federation.contribute(client, number, participation)]
    (checked,) = north.ask(federation, federation.check(sent, round=number))
    return [one.fault for one in checked.refused]


def test_a_participation_is_charged_when_the_sum_is_opened(running):
    """Not when the ticket was checked: an abandoned round costs at the helper nothing, and on the device all."""
    federation, north = running(max_participations=1)
    clients = federation.clients(3)
    for number in (4, 5):
        sent = [federation.contribute(client, number) for client in clients]
        (checked,) = north.ask(federation, federation.check(sent, round=number))
        assert checked.refused == []
    north.ask(federation, federation.open(sent, round=5))
    north.restart()
    # Under its name with another key, too: after a revocation, say, or on another machine.
    for client in (clients[0], federation.client("device-0", serial=2)):
        assert faults(federation, north, client, 6) == [TicketFault.PARTICIPATIONS_SPENT]
    assert faults(federation, north, federation.client("another"), 6) == []


def test_a_device_is_in_no_more_sums_than_the_policy_allows(running):
    """One that says 1 each time has lost its store; a helper without a memory learns what was charged before."""
    for said in ((1, 1, 1), (2, 1)):
        federation, north = running(max_participations=3)
        clients = federation.clients(3)
        for number, participation in enumerate(said, start=4):
            sent = [federation.contribute(client, number, participation=participation) for client in clients]
            opened(federation, north, sent, round=number)
        assert faults(federation, north, clients[0], 7) == [TicketFault.PARTICIPATIONS_SPENT]
        north.store.close()
        north.path.unlink()


def test_a_participation_counts_whatever_the_policy(running):
    """A newer policy begins nobody's count anew, and may allow more."""
    federation, north = running(max_participations=1)
    clients = federation.clients(3)
    opened(federation, north, [federation.contribute(client) for client in clients])
    federation.policy = federation.issue(version=2, max_participations=1)
    north.hear(TOPICS.policy, federation.policy.signed)
    assert faults(federation, north, clients[0], 5) == [TicketFault.PARTICIPATIONS_SPENT]
    federation.policy = federation.issue(version=3, max_participations=2)
    north.hear(TOPICS.policy, federation.policy.signed)
    assert faults(federation, north, clients[0], 5) == []


def test_cohorts_of_a_round_are_opened_each_once(running):
    """In any order; the answer of one is kept when the next one is opened."""
    federation, north = running(cohorts=2)
    sent = contributions(federation, 20)
    halves = [[one for one in sent if decode(one.ticket, MESSAGE_TYPES["ticket"]).cohort == i] for i in range(2)]
    requests = [federation.agreed(federation.open(halves[i], cohort=i)) for i in range(2)]
    for i in (1, 0):
        opened(federation, north, halves[i], cohort=i)
    again = [north.ask_raw(request, federation.federator) for request in requests]
    assert all(len(answers) == 1 for answers in again)
    assert again == [north.ask_raw(request, federation.federator) for request in requests]
    assert north.store.rows("SELECT count(*) FROM clients") == [(20,)]


def test_older_keys_are_destroyed_when_a_newer_policy_is_obeyed(running):
    """Not when it arrives: the open round ends under its own. No byte of a destroyed key is left in the file."""
    federation, north = running()
    old, former = federation.policy, north.pair.sealing_key
    sent = contributions(federation)
    north.make_key()
    federation.helpers[0] = north.pair
    federation.policy = newer = federation.issue(version=2)
    north.hear(TOPICS.policy, newer.signed)
    federation.policy = old
    opened(federation, north, sent)
    assert former.private in north.path.read_bytes() + north.path.with_name("north.sqlite-wal").read_bytes()
    federation.policy = newer
    clients = federation.clients(3)
    later = [federation.contribute(client, 5, participation=2) for client in clients]
    waiting = north.store.make_sealing_keys(0)[0]  # for a later policy
    opened(federation, north, later, round=5)
    assert north.store.sealing_key(waiting) is not None
    federation.policy = old
    missed = [federation.contribute(client, 6, participation=3) for client in clients]
    assert code_of(north.ask(federation, federation.check(missed, round=6))) is HelperRefusalCode.KEY_DESTROYED
    assert code_of(north.ask(federation, federation.open(missed, round=6))) is HelperRefusalCode.KEY_DESTROYED
    for file in north.path.parent.iterdir():
        assert former.private not in file.read_bytes(), file


def test_an_older_policy_never_takes_the_place_of_a_newer_one(running):
    """Nor another one of its version, or by somebody else, also after a restart; the helper's first one counts."""
    federation, north = running()
    newest, forged = federation.policy, SecureFederation(2).issue(version=9)
    for payload in (forged.signed, b""):
        north.hear(TOPICS.policy, payload)
    request = federation.check(contributions(federation), policy_hash=forged.hash)
    assert code_of(north.ask(federation, request)) is HelperRefusalCode.UNKNOWN_POLICY
    north.hear(TOPICS.policy, federation.issue(version=3).signed)
    for version in (2, 3):
        late = federation.issue(version=version, n_min=2)
        north.hear(TOPICS.policy, late.signed)
        request = federation.check(contributions(federation), policy_hash=late.hash)
        assert code_of(north.ask(federation, request)) is HelperRefusalCode.UNKNOWN_POLICY
    north.restart()
    assert [version for (version,) in north.store.rows("SELECT version FROM policies ORDER BY version")] == [1, 3]
    assert isinstance(north.ask(federation, federation.check(contributions(federation)))[0], CheckAnswer)
    assert federation.policy is newest


def test_a_policy_comes_with_the_credentials(running, tmp_path):
    """So that a helper serves whatever the broker has lost."""
    federation, north = running()
    with contextlib.closing(HelperStore(tmp_path / "other.sqlite", "mail/north", exclusive=True)) as store:
        carried = base64.b64encode(federation.policy.signed).decode()
        RequestHandler(north.credentials.model_copy(update={"policy": carried}), store)
        assert store.policies() == [federation.policy.signed]


def test_a_request_that_the_federator_did_not_sign_is_ignored(running):
    """Signed by nobody, by a stranger, by a client, for the other helper or for another federation; nothing changes."""
    federation, north = running()
    sent = contributions(federation)
    request = federation.check(sent)
    for key in (None, SigningKey.generate(), sent[0].client.key, federation.operator):
        assert north.ask_raw(request, key) == []
    topic, other = TOPICS.helper_requests("north"), TOPICS.helper_requests("south")
    for signed_for in (other, Topics("search").helper_requests("north"), TOPICS.policy):
        assert north.desk.handle(topic, encode(request, signed_for, 7, federation.federator)) == []
    assert north.desk.handle(other, encode(request, other, 7, federation.federator)) == []
    # An answer, a policy, or about another helper or federation: though the federator has signed it for this topic.
    others = [federation.check(sent, **changed) for changed in ({"helper": "south"}, {"federation": "search"})]
    (answer,) = north.ask(federation, federation.open(sent))
    for message in (answer, federation.policy.policy, *others):
        assert north.ask_raw(message, federation.federator) == []
    for payload in (b"", b"no message", encode(request, topic, 7, federation.federator)[:-1]):
        assert north.desk.handle(topic, payload) == []
    assert north.store.rows("SELECT count(*) FROM checked_tickets") == [(0,)]


def test_a_flood_of_what_is_ignored_does_not_fill_the_log(running, caplog):
    """The first of a kind is said, and then ever more seldom, with how many there were."""
    _, north = running()
    for _ in range(1000):
        north.hear(TOPICS.helper_requests("north"), b"no message")
    ignored = [record for record in caplog.records if "message_ignored" in record.message]
    assert len(ignored) == 10
    assert "n_ignored=512" in ignored[-1].message


def test_the_federators_new_key_is_believed(running):
    """By the operator's statement, and after a restart; the old key no longer is, and an older statement is not."""
    federation, north = running()
    old, request = federation.federator, federation.check(contributions(federation))

    def stated(sequence, key, operator):
        said = FederatorKey(federation=FEDERATION, sequence=sequence, old_key=old.public, new_key=key.public)
        return issue_federator_key(operator, said)

    new = SigningKey.generate()
    north.hear(TOPICS.federator_key, stated(2, SigningKey.generate(), SigningKey.generate()))
    assert north.ask_raw(request, old) != []
    north.hear(TOPICS.federator_key, stated(2, new, federation.operator))
    north.hear(TOPICS.federator_key, stated(1, old, federation.operator))
    for _ in range(2):
        assert north.ask_raw(request, old) == []
        assert north.ask_raw(request, new) != []
        north.restart()


def test_the_operators_new_key_is_believed(running):
    """By the succession; of the former key count the policy and the enrolments that are kept, after a restart, too."""
    federation, north = running()
    sent, new = contributions(federation), SigningKey.generate()
    links = [issue_link(federation.operator, FEDERATION, 1, new.public)]
    succession = issue_succession(new, FEDERATION, links, [document_digest(federation.policy.signed)])
    read = [(one.client.enrolment, federation.operator.public, FEDERATION, one.client.name) for one in sent]
    people = [read_enrolment(*each) for each in read]
    kept = [enrolment_digest(each) for each in people[1:]]
    north.hear(TOPICS.operator_key, succession)
    north.hear(TOPICS.kept_enrolments, issue_kept_enrolments(federation.operator, FEDERATION, 9, []))  # a thief's
    north.hear(TOPICS.kept_enrolments, issue_kept_enrolments(new, FEDERATION, 1, kept))
    north.hear(TOPICS.roster, issue_roster(federation.operator, roster(9, people[2].client_id)))  # a thief's
    for _ in range(2):
        (checked,) = north.ask(federation, federation.check(sent))
        assert [(each.position, each.fault) for each in checked.refused] == [(0, TicketFault.NOT_ENROLLED)]
        north.restart()
    north.hear(TOPICS.roster, issue_roster(new, roster(9, people[2].client_id)))
    (checked,) = north.ask(federation, federation.check(sent))
    assert [each.fault for each in checked.refused] == [TicketFault.NOT_ENROLLED, TicketFault.REVOKED]


def roster(version, *names):
    revoked = [Revocation(client_id=name, void_below=2) for name in names]
    about = {"version": version, "through": version, "revoked": revoked}
    return Roster(federation=FEDERATION, salt=bytes(32), forgotten=[], **about)


def test_the_newest_roster_counts(running):
    """Whatever comes after it, and after a restart; one that is not the operator's is ignored."""
    federation, north = running()
    request = federation.check(contributions(federation))

    def faults():
        (checked,) = north.ask(federation, request)
        return {one.position: one.fault for one in checked.refused}

    assert faults() == {}
    north.hear(TOPICS.roster, issue_roster(SigningKey.generate(), roster(9, "device-0")))
    assert faults() == {}
    north.hear(TOPICS.roster, issue_roster(federation.operator, roster(3, "device-1")))
    north.hear(TOPICS.roster, issue_roster(federation.operator, roster(2, "device-2")))
    for _ in range(2):
        assert faults() == {1: TicketFault.REVOKED}
        north.restart()


def test_no_name_is_in_the_store(running):
    """Neither before nor after a sum is opened: clients are remembered by an HMAC under a key in the file."""
    federation, north = running()
    sent = [federation.contribute(federation.client(f"somebody-{i}")) for i in range(3)]
    north.ask(federation, federation.check(sent))
    for _ in range(2):
        for file in north.path.parent.iterdir():
            assert b"somebody" not in file.read_bytes(), file
        north.ask(federation, federation.open(sent))
    assert north.store.rows("SELECT count(*), max(length(client)) FROM clients") == [(3, 32)]
    assert north.store.rows("SELECT count(*) FROM checked_tickets") == [(0,)]

"""A helper whose store was put back from a copy has forgotten what it opened; it still opens no second set."""

import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from support.helper_desks import TOPICS, Running, contributions
from support.secure_cohorts import FEDERATION, SecureFederation

from foltr.core.protocol.codec import decode, open_envelope
from foltr.core.protocol.helper_messages import CheckAnswer, HelperRefusal, HelperRefusalCode, OpenAnswer, SetCommitment
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.helper.request_handler import RequestHandler
from foltr.helper.store import HelperStore


def copied(helper):
    """Copy the store's file and its log while the helper goes on."""
    copies = helper.path.parent / "copies"
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir()
    for file in helper.path.parent.glob(f"{helper.path.name}*"):
        shutil.copyfile(file, copies / file.name)
    return copies


def put_back(helper, copies):
    """Start the helper on the copy, as after a restore."""
    helper.store.close()
    for file in helper.path.parent.glob(f"{helper.path.name}*"):
        file.unlink()
    for file in copies.iterdir():
        shutil.copyfile(file, helper.path.parent / file.name)
    helper.store = HelperStore(helper.path, f"{FEDERATION}/{helper.pair.name}", exclusive=True)
    helper.desk = RequestHandler(helper.credentials, helper.store)


def checked(federation, helpers, sent, **request):
    for helper in helpers:
        (answer,) = helper.ask(federation, federation.check(sent, helper=helper.pair.name, **request))
        assert isinstance(answer, CheckAnswer), answer
        assert not answer.refused


def committed(federation, helper, sent, kept=None, **request):
    """What a helper says to a set that no other helper has committed itself to, with the signed bytes."""
    asked = federation.open(sent, kept, helper=helper.pair.name, **request)
    (payload,) = helper.ask_raw(asked, federation.federator)
    return decode(payload, MESSAGE_TYPES[open_envelope(payload).kind]), payload


def opened(federation, helper, sent, others, kept=None, **request):
    asked = federation.open(sent, kept, helper=helper.pair.name, commitments=others, **request)
    (answer,) = helper.ask_once(federation, asked)
    return answer


def checked_by_both(running):
    """A federation of two helpers that have checked the tickets of four clients."""
    federation, north, south = running(n_helpers=2)
    sent = contributions(federation, 4)
    checked(federation, (north, south), sent)
    return federation, north, south, sent


def test_s_and_s_without_one_are_not_opened_by_a_restored_helper(running):
    """The other helper has committed itself to S, and gives nobody a second commitment: whatever a federator asks."""
    federation, north, south, sent = checked_by_both(running)
    copies = copied(north)
    _, of_north = committed(federation, north, sent)
    _, of_south = committed(federation, south, sent)
    assert isinstance(opened(federation, north, sent, [of_south]), OpenAnswer)
    assert isinstance(opened(federation, south, sent, [of_north]), OpenAnswer)
    put_back(north, copies)
    without = [0, 1, 2]
    answer, again = committed(federation, north, sent, without)
    assert isinstance(answer, SetCommitment)  # it has forgotten
    refusal, _ = committed(federation, south, sent, without)
    assert refusal.code is HelperRefusalCode.ANSWERED_OTHERWISE
    for others in ([], [of_south], [of_north], [again], [of_south, again]):
        answer = opened(federation, north, sent, others, without)
        assert not isinstance(answer, OpenAnswer), others


def test_no_sum_is_opened_before_all_others_have_committed(running):
    """With none, with its own, with one of another set, or of another round: no sum."""
    federation, north, south, sent = checked_by_both(running)
    _, own = committed(federation, north, sent)
    _, other_set = committed(federation, south, sent, [0, 1, 2])
    assert isinstance(opened(federation, north, sent, []), SetCommitment)
    for others in ([own], [other_set], [b"nothing"]):
        answer = opened(federation, north, sent, others)
        assert isinstance(answer, HelperRefusal)
        assert answer.code is HelperRefusalCode.NOT_COMMITTED
    assert "south" in answer.detail


def test_a_restored_helper_knows_itself_by_what_it_has_signed(running, tmp_path):
    """Its own newest commitment, which the broker retains, is not in its store, be it empty: it opens nothing more."""
    federation, north, _, sent = checked_by_both(running)
    copies = copied(north)
    _, of_north = committed(federation, north, sent)
    assert north.desk.commitment == of_north
    with contextlib.closing(HelperStore(tmp_path / "new.sqlite", f"{FEDERATION}/north", exclusive=True)) as empty:
        desk = RequestHandler(north.credentials, empty)
        desk.handle(TOPICS.helper_commitment("north"), of_north)
        assert "round 4" in desk.restored
    put_back(north, copies)
    north.hear(TOPICS.helper_commitment("north"), of_north)
    for request in (federation.check(sent), federation.open(sent, [0, 1, 2])):
        (refusal,) = north.ask(federation, request)
        assert refusal.code is HelperRefusalCode.STORE_RESTORED
        assert "foltr helper enrol north --replace" in refusal.detail
    north.restart()
    (refusal,) = north.ask(federation, federation.check(sent, round=9))
    assert refusal.code is HelperRefusalCode.STORE_RESTORED


@pytest.mark.parametrize("what", ["its own newest", "an older one", "another helper's", "garbage", "none"])
def test_what_says_nothing_against_a_store_changes_nothing(running, what):
    """All helpers that are started again at once go on: each finds what it has signed in its store."""
    federation, north, south = running(n_helpers=2)
    clients = federation.clients(3)
    signed = {"garbage": b"garbage", "none": b""}  # "another helper's" is what a replaced one's predecessor has signed
    for number in (4, 5):
        sent = [federation.contribute(client, number, number) for client in clients]
        checked(federation, (north, south), sent, round=number)
        signed["an older one"] = signed.get("its own newest")
        signed["its own newest"] = committed(federation, north, sent, round=number)[1]
        signed["another helper's"] = committed(federation, south, sent, round=number)[1]
    for helper in (north, south):
        helper.restart()
    north.desk.handle(TOPICS.helper_commitment("north"), signed[what])
    assert isinstance(opened(federation, north, sent, [signed["another helper's"]], round=5), OpenAnswer)


class RestoredHelper(RuleBasedStateMachine):
    """North goes back to copies at will, South never; the federator is hostile and keeps all that it ever heard."""

    def __init__(self):
        super().__init__()
        self.cleanup = contextlib.ExitStack()
        self.opened = {}
        self.heard = []

    @initialize()
    def starts(self):
        folder = Path(self.cleanup.enter_context(tempfile.TemporaryDirectory()))
        self.federation = SecureFederation(dim=1, n_min=2)
        self.helpers = [Running(folder / name, name) for name in ("north", "south") if not (folder / name).mkdir()]
        self.federation.helpers[:] = [helper.pair for helper in self.helpers]
        self.federation.policy = self.federation.issue(n_min=2)
        for helper in self.helpers:
            helper.start(self.federation)
        self.cleanup.callback(lambda: [helper.store.close() for helper in self.helpers])
        clients = self.federation.clients(3)
        self.sent = {
            number: [self.federation.contribute(client, number, number) for client in clients] for number in (1, 2)
        }
        self.copy = copied(self.helpers[0])

    def teardown(self):
        self.cleanup.close()

    @rule()
    def copies(self):
        self.copy = copied(self.helpers[0])

    @rule()
    def restores(self):
        put_back(self.helpers[0], self.copy)

    @rule(place=st.integers(0, 1), number=st.integers(1, 2), left_out=st.integers(0, 3))
    def asks(self, place, number, left_out):
        """To check all tickets, and to open those of all but one, or of all, with whatever commitments there are."""
        helper, sent = self.helpers[place], self.sent[number]
        about = {"round": number, "helper": helper.pair.name}
        helper.ask_once(self.federation, self.federation.check(sent, **about))
        kept = [i for i in range(3) if i != left_out]
        for commitments in ([], self.heard[-8:]):
            request = self.federation.open(sent, kept, **about, commitments=commitments)
            for payload in helper.ask_raw(request, self.federation.federator):
                answer = decode(payload, MESSAGE_TYPES[open_envelope(payload).kind])
                if isinstance(answer, SetCommitment):
                    self.heard.append(payload)
                if isinstance(answer, OpenAnswer):
                    assert self.opened.setdefault((helper.pair.name, number), answer.digest) == answer.digest


TestRestoredHelper = RestoredHelper.TestCase
TestRestoredHelper.settings = settings(max_examples=15, stateful_step_count=25, derandomize=True)

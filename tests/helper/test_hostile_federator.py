"""Whatever a federator asks: nobody's mask is in two sums, and no norm proof gets two answers."""

import contextlib
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.secure_cohorts import FEDERATION, HelperPair, SecureFederation

from foltr.core.protocol.codec import decode, encode, open_envelope
from foltr.core.protocol.fields import Message
from foltr.core.protocol.helper_messages import CheckAnswer, OpenAnswer, OpenRequest, SetCommitment, position_bits
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.signed_tickets import open_ticket, set_digest, ticket_hash
from foltr.core.protocol.topics import Topics
from foltr.helper.request_handler import RequestHandler
from foltr.helper.store import HelperStore

TOPICS = Topics(FEDERATION)
N_MIN, N_CLIENTS, N_POSITIONS = 2, 4, 6
N_TIMES = 2
"""So often a client takes part; there are three rounds."""
seldom = st.sampled_from([False] * 5 + [True])
# (round, cohort, policy); all clients are in cohort 0, which nobody need believe.
requests = st.tuples(st.integers(1, 3), st.sampled_from([0] * 5 + [1]), st.sampled_from([0] * 15 + [1]))
# (client, participation).
pages = st.lists(
    st.tuples(st.integers(0, N_CLIENTS - 1), st.integers(1, N_TIMES)),
    min_size=2,
    max_size=4,
    unique_by=lambda one: one[0],
)


class HostileFederator(RuleBasedStateMachine):
    """It has the federator's key, the operator's policies, and every ticket that a device or a thief would sign."""

    def __init__(self):
        super().__init__()
        self.cleanup = contextlib.ExitStack()
        self.federation = SecureFederation(dim=1, n_min=N_MIN, max_participations=N_TIMES, proofs=True)
        self.clients = self.federation.clients(N_CLIENTS)
        self.signed = {}
        self.shown = {}
        self.opened = {}
        self.charged = {}
        self.said = {}

    @initialize()
    def starts(self):
        folder = Path(self.cleanup.enter_context(tempfile.TemporaryDirectory()))
        self.store = HelperStore(folder / "north.sqlite", f"{FEDERATION}/north", exclusive=True)
        self.cleanup.callback(self.store.close)
        first, second = (self.store.sealing_key(self.store.make_sealing_keys(0)[0]) for _ in range(2))
        signing_key = self.federation.helpers[0].signing_key
        self.policies = []
        for version, key in enumerate((first, second), start=1):
            self.federation.helpers[0] = HelperPair("north", signing_key, key)
            self.policies.append(self.federation.issue(version=version, n_min=N_MIN, max_participations=N_TIMES))
        self.starts_again()
        for policy in self.policies:
            self.desk.handle(TOPICS.policy, policy.signed)

    def teardown(self):
        self.cleanup.close()

    @rule()
    def starts_again(self):
        """Only what is in the store is left."""
        self.desk = RequestHandler(self.federation.credentials(self.federation.helpers[0]), self.store)

    @rule(page=pages, about=requests, mixed=seldom, first=st.integers(0, 2), forged=st.booleans())
    def shows_a_page(self, page, about, mixed, first, forged=False):
        """Tickets of any clients at any positions; now and then some are of another round, or have another's seals."""
        round_number, cohort, policy = about
        sent = [self.contribution(client, round_number, i, policy) for client, i in page]
        if mixed:
            sent[0] = self.contribution(page[0][0], round_number % 3 + 1, page[0][1], policy)
        if forged:
            sent[0] = self.forged(sent[0], page[0][0], round_number, page[0][1], policy)
        names = {"round": round_number, "cohort": cohort, "policy_hash": self.policies[policy].hash}
        (answer,) = self.ask(self.federation.check(sent, first=first, **names))
        if isinstance(answer, CheckAnswer):
            shown = self.shown.setdefault((round_number, cohort), {})
            refused = {one.position for one in answer.refused}
            for position, one in enumerate(sent, start=first):
                shown[position] = (one.ticket, position not in refused)
            good = [one for position, one in enumerate(sent, start=first) if position not in refused]
            self.hears([open_ticket(one.ticket).ticket for one in good], answer.proofs)

    def hears(self, tickets, proofs):
        """Of each seal the helper says one thing."""
        n_bytes = len(proofs) // max(1, len(tickets))
        assert (n_bytes > 0) == bool(tickets)
        for i, ticket in enumerate(tickets):
            about = proofs[i * n_bytes : (i + 1) * n_bytes]
            assert self.said.setdefault(ticket.seals[0], about) == about

    def forged(self, sent, client, round_number, participation, policy):
        """Another ticket of this client for the same round, with the same seals."""
        seals = list(open_ticket(sent.ticket).ticket.seals)
        signed_by = self.clients[client], round_number, participation
        return self.federation.contribute(*signed_by, policy=self.policies[policy], seals=seals)

    @rule(page=pages, about=requests, first=st.integers(0, 2))
    def has_a_round(self, page, about, first):
        """As an honest one would: a page, and the sum of what is good of it."""
        self.shows_a_page(page, about, False, first)
        shown = self.shown.get(about[:2], {})
        places = range(first, first + len(page))
        chosen = {place: shown[place][0] for place in places if place in shown and shown[place][1]}
        if chosen:
            self.opens(*about[:2], self.policies[about[2]], chosen)

    @rule(about=requests, bad=seldom, data=st.data())
    def asks_for_a_sum(self, about, bad, data):
        """Of most tickets that it has shown for this round and cohort; now and then of those that are out, too."""
        round_number, cohort, policy = about
        shown = self.shown.get((round_number, cohort), {})
        chosen = {position: ticket for position, (ticket, is_good) in shown.items() if is_good or bad}
        if chosen:
            left_out = data.draw(st.sets(st.sampled_from(sorted(chosen)), max_size=1))
            kept = {position: ticket for position, ticket in chosen.items() if position not in left_out}
            self.opens(round_number, cohort, self.policies[policy], kept)

    def opens(self, round_number, cohort, policy, chosen):
        signed = [chosen[position] for position in sorted(chosen)]
        digest = set_digest(map(ticket_hash, signed))
        about = {"round": round_number, "cohort": cohort, "policy_hash": policy.hash}
        bits = {"n_tickets": N_POSITIONS, "kept": position_bits(list(chosen), N_POSITIONS)}
        request = OpenRequest(federation=FEDERATION, helper="north", digest=digest, **about, **bits)
        (answer,) = self.ask(request)
        if not isinstance(answer, SetCommitment):
            return
        # The other helper works together with it, and signs whatever it is asked to.
        agreed = self.federation.agreed(request)
        (answer,) = self.ask(agreed)
        if isinstance(answer, OpenAnswer):
            self.judge((round_number, cohort), signed, answer.values)
            self.starts_again()
            assert self.ask(agreed) == [answer]

    def judge(self, about, chosen, values):
        """Another set is never opened, the same one is the same bytes, and nobody is in more sums than it may be."""
        digest = set_digest(map(ticket_hash, chosen))
        if about in self.opened:
            assert self.opened[about] == (digest, values)
            return
        assert all(about[0] >= before for before, _ in self.opened)
        assert len(chosen) >= N_MIN
        for claimed in map(open_ticket, chosen):
            ticket = claimed.ticket
            assert (ticket.round, ticket.cohort) == about
            self.charged[ticket.client_id] = self.charged.get(ticket.client_id, 0) + 1
            assert self.charged[ticket.client_id] <= N_TIMES
        self.opened[about] = (digest, values)

    @invariant()
    def the_store_knows_whom_it_has_charged(self):
        if self.opened:
            assert self.store.rows("SELECT count(*) FROM clients") == [(len(self.charged),)]

    def contribution(self, client, round_number, participation, policy):
        """A ticket that this device signs once, whatever asks for it."""
        key = (client, round_number, participation, policy)
        if key not in self.signed:
            self.signed[key] = self.federation.contribute(
                self.clients[client], round_number, participation, policy=self.policies[policy]
            )
        return self.signed[key]

    def ask(self, request: Message):
        topic = TOPICS.helper_requests("north")
        self.desk.noise.tick()  # so that there is noise for it
        self.desk.noise.release()
        payloads = self.desk.handle(topic, encode(request, topic, 7, self.federation.federator))
        assert payloads
        return [decode(payload, MESSAGE_TYPES[open_envelope(payload).kind]) for payload in payloads]


TestHostileFederator = HostileFederator.TestCase
TestHostileFederator.settings = settings(max_examples=40, stateful_step_count=25, derandomize=True)

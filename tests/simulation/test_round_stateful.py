"""The round against a second, simpler account of the same rules: any sequence of events, under both policies."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.client_selection import ticket
from foltr.core.protocol.states import AbandonReason, Pacing, RoundState
from foltr.federator.round import (
    Abandon,
    Aggregate,
    Record,
    RecordedUpdate,
    Reject,
    Round,
    RoundPolicy,
    SelectedClients,
    UpdateHeader,
)
from foltr.storage.records import StoredUpdate

NUMBER, BASE, GRACE_S = 5, 4, 3.0
SEED = b"seed" * 8
CLIENTS = [f"client-{i}" for i in range(6)]
UPDATES = ["one", "two"]
clients = st.sampled_from(CLIENTS)


@st.composite
def policies(draw: st.DrawFn) -> RoundPolicy:
    """A policy of either kind, small enough that a few events fill it."""
    max_clients = draw(st.integers(1, 4))
    max_time_s = draw(st.sampled_from([5.0, 20.0]))
    buffered = draw(st.booleans())
    return RoundPolicy(
        min_clients=draw(st.integers(1, max_clients)),
        max_clients=max_clients,
        min_time_s=draw(st.sampled_from([0.0, 2.0, max_time_s])),
        max_time_s=max_time_s,
        pacing=Pacing.BUFFERED if buffered else Pacing.DEADLINE,
        staleness_limit=draw(st.integers(0, 2)) if buffered else 0,
    )


@dataclass
class Account:
    """What is known of a round, as a person would write it down. Times are seconds."""

    policy: RoundPolicy
    opened_at: float
    closes_at: float
    min_time_s: float
    max_time_s: float
    asked: frozenset[str] | None
    ended_as: str = ""  # "", "aggregating", "completed" or "abandoned"
    held: dict[str, RecordedUpdate] = field(default_factory=dict)  # by client, as stored
    before: dict[tuple[str, str], bool] = field(default_factory=dict)  # of an earlier round: whether it counts still
    watermarks: dict[str, int] = field(default_factory=dict)

    def has(self, client_id: str, update_id: str) -> bool:
        held = self.held.get(client_id)
        return held is not None and held.update_id == update_id

    def answer(self, offer: UpdateHeader, now: float) -> str:
        """The code of the receipt."""
        if self.has(offer.client_id, offer.update_id):
            return "round_abandoned" if self.ended_as == "abandoned" else "duplicate"
        if (counts := self.before.get((offer.client_id, offer.update_id))) is not None:
            return "duplicate" if counts else "round_abandoned"
        is_buffer = self.policy.pacing is Pacing.BUFFERED
        oldest = BASE - self.policy.staleness_limit if is_buffer else BASE
        reasons = [
            ("unknown_round", offer.round > NUMBER),
            ("late", offer.round < NUMBER and not is_buffer),
            ("already_contributed", offer.client_id in self.held),
            ("not_selected", self.asked is not None and offer.client_id not in self.asked),
            ("late", bool(self.ended_as) or now >= self.closes_at or self.is_full()),
            ("stale", not oldest <= offer.base_version <= BASE),
            ("overlaps", offer.after != self.watermarks.get(offer.client_id, 0)),
        ]
        return next((code for code, applies in reasons if applies), "accepted")

    def is_full(self) -> bool:
        return len(self.held) == self.policy.max_clients

    def due(self, now: float) -> str:
        """What has to happen now: "", "aggregate", "no_updates" or "too_few_clients"."""
        if self.ended_as:
            return "aggregate" if self.ended_as == "aggregating" else ""
        enough, over = len(self.held) >= self.policy.min_clients, now >= self.closes_at
        if enough and (over or now >= self.opened_at + self.min_time_s):
            return "aggregate"
        return ("too_few_clients" if self.held else "no_updates") if over else ""


class RoundAgainstAccount(RuleBasedStateMachine):
    """Whatever happens, the round and the account agree on what counts, what is due and what is held."""

    @initialize(policy=policies(), n_asked=st.none() | st.integers(1, len(CLIENTS)))
    def open(self, policy: RoundPolicy, n_asked: int | None) -> None:
        self.now = 1_000.0
        selection = chosen = None
        if n_asked is not None and policy.pacing is Pacing.DEADLINE:
            by_ticket = sorted(CLIENTS, key=lambda client_id: ticket(SEED, client_id))
            chosen = frozenset(by_ticket[:n_asked])
            selection = SelectedClients(SEED, ticket(SEED, by_ticket[n_asked - 1]), n_asked, len(CLIENTS))
        self.round = Round.open(NUMBER, BASE, policy, self.now, selection)
        self.account = Account(
            policy, self.now, self.now + policy.max_time_s, policy.min_time_s, policy.max_time_s, chosen
        )

    @rule(
        client_id=clients,
        update=st.sampled_from(UPDATES),
        number=st.integers(NUMBER - 2, NUMBER + 1),
        base=st.integers(BASE - 3, BASE + 1),
        ago=st.sampled_from([0.0, 0.0, 1.0]),
        after=st.sampled_from([0, 5]),
    )
    def offer(self, client_id: str, update: str, number: int, base: int, ago: float, after: int) -> None:
        """An update; it may have arrived a while before it is looked at."""
        offer = UpdateHeader(client_id, f"{update} of {client_id}", number, base, after, after + 5)
        self._decide(offer, self.now - ago)

    @rule(client_id=clients, update=st.sampled_from(UPDATES))
    def offer_what_fits(self, client_id: str, update: str) -> None:
        """An update as a device with the newest model makes it."""
        after = self.account.watermarks.get(client_id, 0)
        self._decide(UpdateHeader(client_id, f"{update} of {client_id}", NUMBER, BASE, after, after + 5), self.now)

    def _decide(self, offer: UpdateHeader, at: float) -> None:
        expected = self.account.answer(offer, at)
        counts = self.account.before.get((offer.client_id, offer.update_id))
        stored = None if counts is None else StoredUpdate(NUMBER - 1, counts)
        watermark = self.account.watermarks.get(offer.client_id, 0)
        decision = self.round.decide(offer, at, counted_through=watermark, stored=stored)
        if expected == "accepted":
            assert decision == Record(BASE - offer.base_version)
            self.account.held[offer.client_id] = RecordedUpdate(offer.update_id, offer.after)
            self.account.watermarks[offer.client_id] = offer.through
        else:
            assert isinstance(decision, Reject)
            assert decision.code == expected

    @rule(client_id=clients, update=st.sampled_from(UPDATES), counts=st.booleans())
    def stored_before(self, client_id: str, update: str, counts: bool) -> None:
        """An earlier round has this one already; it counts, or its round was abandoned."""
        if not self.account.has(client_id, f"{update} of {client_id}"):
            self.account.before[client_id, f"{update} of {client_id}"] = counts

    @rule(client_id=clients)
    def withdraw(self, client_id: str) -> None:
        """Only what a collecting round holds can be taken out."""
        expected = None if self.account.ended_as else self.account.held.pop(client_id, None)
        assert self.round.withdraw(client_id) == expected
        if expected is not None:
            self.account.watermarks[client_id] = expected.after

    @rule(max_time_s=st.sampled_from([0.5, 4.0, 30.0]))
    def set_deadline(self, max_time_s: float) -> None:
        """The operator's order counts from the opening; what has stopped collecting takes none."""
        if self.account.ended_as:
            with pytest.raises(ProtocolViolationError):
                self.round.set_deadline(max_time_s)
            return
        self.round.set_deadline(max_time_s)
        self.account.closes_at = self.account.opened_at + max_time_s
        self.account.max_time_s = max_time_s
        self.account.min_time_s = min(self.account.min_time_s, max_time_s)

    @rule(seconds=st.sampled_from([0.0, 0.5, 2.0, 6.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def do_what_is_due(self) -> None:
        """What the caller does once the round says so; and nothing else moves it."""
        due = self.account.due(self.now)
        if due == "aggregate" and not self.account.ended_as:
            self.round.stop_collecting()
            self.account.ended_as = "aggregating"
        elif due in ("no_updates", "too_few_clients"):
            self.round.abandon(AbandonReason(due))
            self.account.ended_as = "abandoned"

    @precondition(lambda self: self.account.ended_as == "aggregating")
    @rule(works=st.booleans())
    def aggregation_ends(self, works: bool) -> None:
        """With a model or without."""
        if works:
            self.round.complete()
        else:
            self.round.abandon(AbandonReason.AGGREGATION_FAILED)
        self.account.ended_as = "completed" if works else "abandoned"

    @precondition(lambda self: self.account.ended_as in ("", "aggregating"))
    @rule(clock_moved=st.sampled_from([0.0, 0.0, 7.0, -7.0, -200.0]), away_s=st.sampled_from([0.0, 8.0]))
    def restart(self, clock_moved: float, away_s: float) -> None:
        """All that is left is what was stored, and the clock may have been set meanwhile."""
        self.now += away_s + clock_moved
        old, account = self.round, self.account
        self.round = Round.resume(
            old.number,
            old.base_version,
            old.policy,
            opened_at=old.opened_at,
            closes_at=old.closes_at,
            state=old.state,
            contributions=dict(account.held),
            selection=old.selection,
            now=self.now,
            grace_s=GRACE_S,
        )
        account.opened_at = min(account.opened_at, self.now)
        no_sooner, no_later = self.now + GRACE_S, self.now + max(account.max_time_s, GRACE_S)
        account.closes_at = sorted((no_sooner, account.closes_at, no_later))[1]

    @invariant()
    def they_agree(self) -> None:
        """On what is held, what is due, and whether it still collects."""
        round_, account = self.round, self.account
        assert round_.contributions == account.held
        assert round_.full == account.is_full()
        assert (round_.state is RoundState.COLLECTING) == (not account.ended_as)
        due, step = account.due(self.now), round_.next_step(self.now)
        assert step == {"": None, "aggregate": Aggregate()}.get(due, step)
        if due in ("no_updates", "too_few_clients"):
            assert step == Abandon(AbandonReason(due))

    @invariant()
    def it_wakes_in_time(self) -> None:
        """If nothing arrives, what is due later is due exactly when the round says it has to be looked at."""
        if self.account.ended_as or self.account.due(self.now):
            return
        wake_at = self.round.wake_at()
        assert wake_at > self.now
        assert not self.account.due((self.now + wake_at) / 2)
        assert self.account.due(wake_at)

    @invariant()
    def it_never_waits_longer_than_it_may(self) -> None:
        """No round that collects is further from its end than a new one would be."""
        limit = max(self.account.max_time_s, GRACE_S)
        assert self.account.ended_as or self.round.closes_at <= self.now + limit


RoundAgainstAccount.TestCase.settings = settings(stateful_step_count=40)
TestRoundAgainstAccount = RoundAgainstAccount.TestCase

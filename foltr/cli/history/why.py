"""What an open round waits for, in words. No I/O: `foltr rounds why` hands over what the database holds."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from foltr.protocol.client_selection import is_selected
from foltr.protocol.states import ASKING_HELPERS, Pacing, RoundState

if TYPE_CHECKING:
    from foltr.aggregation.standing import Standing as Votes
    from storage.records import RoundRow

# A federator ends a due round within moments, but it may be waiting for the database.
_DUE_TOLERANCE_S = 5.0
_SILENCE_S = 60.0
_SHOWN_NAMES = 10
_START = "Start it: foltr federator run"
_ASK = "foltr rounds why --credentials foltr-operator/operator.json"


BrokerSays = Literal["there", "silent", "away", "unknown", "unreachable"]


@dataclass(frozen=True)
class Standing:
    """What the database knows of a federation's newest round, at the moment ``at``.

    Attributes:
        round: the open round, else the newest one; None if there never was one.
        contributed: the clients whose updates the round has.
        online: the members that are connected, as far as was last heard.
        quarantined: the members whose updates are not taken; they are not among those online.
        refused: by reason code, updates that named this round.
        last_activity: when anything of this federation was last stored.
        given_up: of a round for which helpers are awaited, why the one before ended without its sum.
        held_until: of a round that is held back as verifiers have disagreed, until when devices do not hear of it.
        n_disagreed: how many rounds ended so since the last one with a model.
        votes: on the anchor of the round, as they stand; None where it has none.
        taken_back: what was told of the model that the round before was abandoned with, as it was taken back.
        broker: what the broker says of the federator: ``there``, ``silent``, ``away``, ``unknown``, or ``unreachable``;
            None where it was not asked.
        broker_detail: since when it is silent, or why the broker was not reached.
        connected: the devices that the broker says are connected.
    """

    at: datetime
    federation: str
    round: "RoundRow | None"
    contributed: list[str] = field(default_factory=list)
    online: list[str] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    started_at: datetime | None = None
    last_activity: datetime | None = None
    given_up: str | None = None
    held_until: datetime | None = None
    n_disagreed: int = 0
    votes: "Votes | None" = None
    taken_back: str | None = None
    broker: BrokerSays | None = None
    broker_detail: str = ""
    connected: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether no round is open any more."""
        return self.round is not None and self.round.state in (RoundState.COMPLETED, RoundState.ABANDONED)

    @property
    def awaited(self) -> list[str]:
        """Who is online, was asked, and has not contributed."""
        contributed = set(self.contributed)
        return [client for client in self.online if client not in contributed and self._asked(client)]

    @property
    def n_not_asked(self) -> int:
        return sum(not self._asked(client) for client in self.online)

    @property
    def overdue_s(self) -> float | None:
        """For how long the round should have ended; None while it rightly collects, or where none is open."""
        row, n = self.round, len(self.contributed)
        if row is None or row.state is not RoundState.COLLECTING:
            return None
        age = _seconds(row.opened_at, self.at)
        past_deadline = _seconds(row.closes_at, self.at)
        past = [past_deadline]
        if n >= row.min_clients:
            past.append(age - row.min_time_s)
        if n >= row.max_clients:
            past.append(self._silence_s)
        return None if max(past) < 0 else max(past)

    @property
    def federator(self) -> str:
        """``stopped`` if the broker says so or something due was not done.

        ``silent`` if nothing was stored for a while, else ``active``.
        """
        if self.broker in ("away", "unknown"):
            return "stopped"
        overdue = self.overdue_s
        if overdue is not None and min(overdue, self._silence_s) > _DUE_TOLERANCE_S:
            return "stopped"
        if self.round is not None and self.round.state is RoundState.AGGREGATING and self._silence_s > _SILENCE_S:
            return "stopped"
        return "silent" if self._silence_s > _SILENCE_S else "active"

    @property
    def _silence_s(self) -> float:
        return 0.0 if self.last_activity is None else max(0.0, _seconds(self.last_activity, self.at))

    def _asked(self, client_id: str) -> bool:
        row = self.round
        if row is None or row.selection_seed is None or row.selection_cutoff is None:
            return True
        return is_selected(row.selection_seed, row.selection_cutoff, client_id)


_ASKED = {RoundState.CHECKING: "check their tickets", RoundState.OPENING: "open their sums"}


def explain(standing: Standing) -> list[str]:
    """Sentences, the most important first."""
    said, stored = _broker_says(standing), _stored(standing)
    if standing.broker == "away" and standing.is_over:
        return stored  # as it was told
    return [*stored, *said] if standing.broker in ("there", None) else [*said, *stored]


def _broker_says(standing: Standing) -> list[str]:
    """What the broker says of the federator; it knows at once what the database shows at the deadline."""
    is_, s = ("is", "s") if len(standing.connected) == 1 else ("are", "")
    waiting = f" {_names(standing.connected)} {is_} connected and wait{s} for it." if standing.connected else ""
    match standing.broker:
        case "away":
            return [f"Its federator is not running, or has lost the broker, which says so.{waiting} {_START}"]
        case "unknown":
            return [f"The broker has heard no federator of {standing.federation}.{waiting} {_START}"]
        case "silent":
            why = "it hangs, or cannot reach its database (or the clocks differ): look at its log"
            return [f"Its federator has not beaten for {standing.broker_detail}, {why}.{waiting}"]
        case "there":
            return ["Its federator is there, as the broker says."]
        case "unreachable":
            return [f"Whether its federator is there could not be asked: {standing.broker_detail}"]
        case None:
            is_open = standing.round is not None and not standing.is_over
            return [f"Whether its federator runs the broker knows: {_ASK}"] if is_open else []


def _stored(standing: Standing) -> list[str]:
    row = standing.round
    if row is None:
        return [f"No round of {standing.federation} was ever opened: its federator has not run. {_START}"]
    if row.state is RoundState.AGGREGATING:
        have = _updates(len(standing.contributed))
        return [f"Round {row.number} has {have} and is being aggregated; it takes no more.", *_life(standing)]
    if row.state in ASKING_HELPERS:
        have, asked = _updates(len(standing.contributed)), _ASKED[row.state]
        waits = "A helper that is silent for helper_deadline_s ends it with nothing released."
        return [
            f"Round {row.number} has {have}, and helpers are asked to {asked}; it takes no more.",
            waits,
            *_life(standing),
        ]
    if row.state is not RoundState.COLLECTING:
        return [_ended(row), *_life(standing)]
    if standing.given_up is not None and not standing.contributed:
        return _helpers_awaited(standing, row, standing.given_up)
    if standing.held_until is not None and not standing.contributed:
        return _held_back(standing, row, standing.held_until)
    return [
        _collected(standing, row),
        _ends(standing, row),
        *_waits_for(standing),
        *_kept_out(standing, row),
        *_refused(standing),
        *_voted(standing, row),
        *_life(standing),
    ]


def _voted(standing: Standing, row: "RoundRow") -> list[str]:
    """What devices find of the newest model, and whether they had the one before taken back."""
    said = [] if standing.taken_back is None else [f"The round before it was abandoned: {standing.taken_back}."]
    votes = standing.votes
    if votes is None or not votes.n_voters:
        return said
    if row.base_version == row.anchor_version:
        return [*said, f"Devices have nothing to vote on yet: model {row.base_version} is the anchor itself."]
    compared = f"model {row.base_version} against model {row.anchor_version}, the anchor"
    decide = "more than half of the updates decide"
    if votes.n_tallies is not None:
        decide += ", by more than the noise can be"
    return [*said, f"Votes on {compared}: {votes.in_words}; {decide}."]


def _helpers_awaited(standing: Standing, row: "RoundRow", given_up: str) -> list[str]:
    waits = f"Round {row.number} has no update, and devices do not hear of it before all helpers have answered"
    return [
        f"{waits}: the last one that had updates ended without its sum ({given_up}).",
        "Have that helper run, and look at its log: foltr helper run. If it is lost for good: foltr policy new",
        *_life(standing),
    ]


def _held_back(standing: Standing, row: "RoundRow", until: datetime) -> list[str]:
    left, n = _span(_seconds(standing.at, until)), standing.n_disagreed
    ended = "one round has ended" if n == 1 else f"{n} rounds have ended"
    waits = f"Round {row.number} has no update, and devices hear of it in {left}: {ended} as verifiers_disagree"
    waits += " since the last model"
    return [
        f"{waits}. Most norm proofs of a cohort failed, and each such round costs its devices a participation.",
        "No device is blamed: a helper that lies makes all fail. A policy with other helpers ends it: foltr policy new",
        *_life(standing),
    ]


def _collected(standing: Standing, row: "RoundRow") -> str:
    n = len(standing.contributed)
    have = "no update" if n == 0 else _updates(n)
    what = "The buffer of round" if row.pacing is Pacing.BUFFERED else "Round"
    age = _span(_seconds(row.opened_at, standing.at))
    return (
        f"{what} {row.number} has {have} of at least {row.min_clients} (at most {row.max_clients}), opened {age} ago."
    )


def _ends(standing: Standing, row: "RoundRow") -> str:
    n, overdue = len(standing.contributed), standing.overdue_s
    if standing.federator == "stopped" and overdue is not None:
        return (
            f"It should have ended {_span(overdue)} ago and is still open: its federator is not running, or cannot "
            f"reach this database. {_START}; nothing accepted is lost"
        )
    if overdue is not None:
        return "It is due and about to end."
    left = _span(-_seconds(row.closes_at, standing.at))
    until_min = row.min_time_s - _seconds(row.opened_at, standing.at)
    if n >= row.min_clients:
        return f"It has enough and ends in {_span(until_min)}, or at once with {row.max_clients}."
    from_then = "" if until_min <= 0 else f" in {_span(until_min)} or later"
    at_once = f"at once with {row.max_clients}, " if row.max_clients > row.min_clients else ""
    missing = row.min_clients - n
    buffered = (
        f" Updates count that were made on one of the last {row.staleness_limit + 1} models."
        if row.pacing is Pacing.BUFFERED
        else ""
    )
    return (
        f"It ends {at_once}as soon as {missing} more {'has' if missing == 1 else 'have'} contributed{from_then}, and "
        f"at the latest in {left}, then without a model.{buffered}"
    )


def _waits_for(standing: Standing) -> list[str]:
    n_online, awaited = len(standing.online), standing.awaited
    if not n_online:
        if standing.broker in ("away", "unknown", "silent"):
            return []  # nobody has written down who came
        return ["No member is online: start devices, or look at the broker with: foltr doctor"]
    asked = f"; {standing.n_not_asked} were not asked" if standing.n_not_asked else ""
    of = f"(of {n_online} online member{'s' * (n_online != 1)}{asked})"
    if not awaited:
        row = standing.round
        short = row is not None and len(standing.contributed) < row.min_clients
        hint = " More devices must come, or set a smaller min_clients for the rounds to follow." if short else ""
        return [f"Everybody online who was asked has contributed {of}.{hint}"]
    return [f"Online and not yet heard from: {_names(awaited)} {of}."]


def _kept_out(standing: Standing, row: "RoundRow") -> list[str]:
    """Who is in quarantine, and what to do where too few are left for the quorum."""
    if not standing.quarantined:
        return []
    n_left = len({*standing.contributed, *standing.awaited})
    hint = (
        f" Only {n_left} can contribute, fewer than min_clients ({row.min_clients}): let one out with foltr clients "
        "quarantine NAME --lift, add devices, or set a smaller min_clients for the rounds to follow."
        if n_left < row.min_clients
        else ""
    )
    return [f"In quarantine, so that nothing of theirs is taken: {_names(standing.quarantined)}.{hint}"]


def _refused(standing: Standing) -> list[str]:
    if not standing.refused or standing.round is None:
        return []
    counts = ", ".join(f"{code} {n}" for code, n in standing.refused.items())
    return [f"Refused in this round: {counts}; see: foltr rounds show {standing.round.number}"]


def _ended(row: "RoundRow") -> str:
    is_abandoned = row.state is RoundState.ABANDONED
    how = f"abandoned ({row.reason})" if is_abandoned else f"completed with model {row.model_version}"
    when = "" if row.closed_at is None else f" on {row.closed_at:%Y-%m-%d %H:%M:%S}"
    return (
        f"No round is open: round {row.number}, the newest, was {how}{when}. A federator opens the next one with the "
        "end of the last, so it was told to stop after this one: run it again without --rounds, or with more"
    )


def _life(standing: Standing) -> list[str]:
    if standing.last_activity is None:
        return []
    started = "never" if standing.started_at is None else f"{_span(_seconds(standing.started_at, standing.at))} ago"
    last = f"Last stored {_span(_seconds(standing.last_activity, standing.at))} ago, last federator start {started}."
    state = None if standing.round is None else standing.round.state
    if standing.federator == "stopped" and state in (None, RoundState.AGGREGATING):
        last += f" Its federator is not running. {_START}; it goes on where it was"
    elif standing.federator == "silent" and state is RoundState.COLLECTING:
        known = "." if standing.broker == "there" else "; the database shows at the deadline whether it runs."
        last += f" That is usual while no device sends anything{known}"
    return [last]


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


def _updates(n: int) -> str:
    return f"{n} update{'s' * (n != 1)}"


def _seconds(since: datetime, at: datetime) -> float:
    return (at - since).total_seconds()


def _span(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 600:
        return f"{seconds:.0f} s"
    if seconds < 3 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 72 * 3600 else f"{seconds / 86_400:.0f} days"

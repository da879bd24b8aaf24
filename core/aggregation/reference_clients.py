"""The crowd that clients are compared with: clients that have sent enough to be judged, and still contribute.

A client is a name, and names cost little. So the crowd is counted in updates as well as in names: it is *established*
once its members have sent three quarters of all updates. A name that misses its turns leaves the crowd, so an attacker
that keeps changing names has at most as many there as it has places in a round.
"""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.client_records import ClientRecords, with_rounds_passed
from foltr.core.aggregation.evidence import sample_of

LEAST_CLIENTS = 4
LEAST_UPDATES = 6
WELL_KNOWN = 50
"""How many compared updates make a client well known."""
LEAST_TIME_ALONE = timedelta(days=7)
"""An absence shorter than this does not count, in any number of rounds: nights and holidays are short."""
# A client that sends nothing stays in the crowd for so many rounds, and so many of its usual turns.
_ACTIVE, _MISSED_TURNS = 200, 4.0
# The share of all updates that judged clients must have sent before anybody is judged: the first ones that happen to
# have sent enough may be hostile.
_MOST_OF_UPDATES = 0.75


@dataclass(frozen=True, eq=False)
class ReferenceClients:
    """All clients that can be judged, in the round or not.

    Attributes:
        clients: (N,) their records.
        sample: of them, whose drifts are compared.
        place: (n,) the index of each of the round's clients in it; -1 if not in it.
        established: whether others can be compared with them.
    """

    clients: NDArray[np.void]
    sample: NDArray[np.int64]
    place: NDArray[np.int64]
    established: bool


def reference_clients(records: ClientRecords, names: tuple[str, ...]) -> ReferenceClients:
    """Find the crowd after a round that ``names`` were in."""
    inside = _can_be_judged(records)
    at = np.flatnonzero(inside)
    places = {records.client_ids[i]: place for place, i in enumerate(at.tolist())}
    place = np.array([places.get(name, -1) for name in names], np.int64)
    sample = sample_of(len(at), records.key, records.n_rounds)
    return ReferenceClients(records.clients[at], sample, place, _is_established(records, inside))


def usual_length(records: ClientRecords, quantile: float = 0.5) -> float | None:
    """Return the median, or another quantile, over clients, of each one's usual update length.

    It is over the crowd, once that is established, and over all known clients before. It is never over a round's
    clients, most of whom may happen to be hostile. Takes the lower one of two in the middle. None for too few.
    """
    clients = records.clients
    known = (clients["size_weight"] > 0.0) & _is_recent(records)
    inside = known & _can_be_judged(records)
    if _is_established(records, inside):
        known = inside
    if int(known.sum()) < LEAST_CLIENTS:
        return None
    trusted = known & (clients["n_suspected"] == 0)
    compared = clients[trusted if trusted.any() else known]
    sizes = np.sort(compared["log_size"] / compared["size_weight"])
    return float(np.exp(sizes[int(quantile * (len(sizes) - 1))]))


def has_well_known(records: ClientRecords) -> bool:
    """Whether well-known clients have sent more than half of all updates of the clients that still contribute."""
    clients = records.clients
    n_updates = np.where(_still_comes(records), clients["n_updates"], 0)
    of_well_known = n_updates[clients["n_compared"] >= WELL_KNOWN]
    return bool(len(of_well_known) >= LEAST_CLIENTS and 2 * of_well_known.sum() > n_updates.sum())


def after_suspects_alone(stored: bytes | None, n_rounds: int) -> bytes | None:
    """Return the memory of clients after rounds in which only suspected ones contributed since the last model.

    After as many rounds as it takes to leave the crowd, the others no longer count for comparison: the remaining
    clients are judged from scratch, among themselves. Fewer rounds change nothing.

    Args:
        stored: what `ClientRecords.to_bytes` made after the last round that made a model; None: nothing yet.
        n_rounds: with suspects only, and with room for others in each, so that suspects cannot fill rounds before
            others come. Counted only once `LEAST_TIME_ALONE` has passed since the last model.
    """
    return stored if stored is None or n_rounds < _ACTIVE else with_rounds_passed(stored, n_rounds)


def trusted_elsewhere(records: ClientRecords, names: tuple[str, ...], *, established: bool) -> NDArray[np.void]:
    """The records of unsuspected clients that were compared before and are not among ``names``."""
    clients, here = records.clients, set(names)
    chosen = _can_be_judged(records) if established else _is_recent(records)
    chosen &= (clients["n_suspected"] == 0) & (clients["n_compared"] > 0)
    chosen &= np.array([name not in here for name in records.client_ids], np.bool_)
    return clients[np.flatnonzero(chosen)]


def _is_recent(records: ClientRecords) -> NDArray[np.bool_]:
    recent: NDArray[np.bool_] = records.clients["last_round"] > records.n_rounds - _ACTIVE
    return recent


def _still_comes(records: ClientRecords) -> NDArray[np.bool_]:
    """(N,) bool: who contributed lately, and has not missed many turns since."""
    clients = records.clients
    turns = clients["n_updates"] / (clients["last_round"] - clients["first_round"] + 1.0)
    missed: NDArray[np.float64] = (records.n_rounds - clients["last_round"]) * turns
    return _is_recent(records) & (missed <= _MISSED_TURNS)


def _can_be_judged(records: ClientRecords) -> NDArray[np.bool_]:
    enough: NDArray[np.bool_] = records.clients["n_updates"] >= LEAST_UPDATES
    return _still_comes(records) & enough


def _is_established(records: ClientRecords, inside: NDArray[np.bool_]) -> bool:
    n_updates = records.clients["n_updates"]
    everybody = n_updates[_still_comes(records)].sum()
    return bool(inside.sum() >= LEAST_CLIENTS and n_updates[inside].sum() >= _MOST_OF_UPDATES * everybody)
